"""One evaluation from plans and texts to results on disk."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ridgefill.bench.record import environment
from ridgefill.core.artefact import write_file
from ridgefill.core.engine import Method, SpliceEngine
from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.documents import Document, Window, draw_windows, first_tokens
from ridgefill.evaluate.items import Context, Item
from ridgefill.evaluate.journal import Journal, write_json
from ridgefill.evaluate.loss import LossOptions
from ridgefill.evaluate.plans import check_fills, filled_mask
from ridgefill.evaluate.suite import Amounts, make_items, run_items
from ridgefill.evaluate.summary import summarise
from ridgefill.evaluate.tasks import Task
from ridgefill.evaluate.verdict import Limits

RESULTS, TIMES, TOKENS = "results.json", "times.json", "tokens"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        lengths: prompt lengths in tokens.
        amounts: how much of everything, per length.
        seed: of everything drawn at random.
        loss: how tokens are grouped.
        limits: of the verdicts.
        dump: ``npz`` or ``parquet`` to keep token-level losses, or None.
    """

    lengths: tuple[int, ...]
    amounts: Amounts
    seed: int = 0
    loss: LossOptions = field(default_factory=LossOptions)
    limits: Limits = field(default_factory=Limits)
    dump: str | None = None


class Evaluation:
    """Compares plans on one model.

    Args:
        engine: runs the model.
        methods: the plans, the exact one first.
        tokenizer: the model's.
        tasks: those with generated answers; see `ridgefill.evaluate.ruler`.
        needles: the names of those that ask for one place of the prompt.
        documents: for the losses, read once.
        settings: what is measured.
        stop: ids that end an answer.
        config: more that the samples depend on (the model, hashes of texts ...), JSON values.

    Raises RidgeFillError for a plan that fills nothing at one of the lengths, and
    NotEnoughTextError where no document is long enough.
    """

    def __init__(
        self,
        engine: SpliceEngine,
        methods: Sequence[Method],
        tokenizer: Any,
        tasks: Sequence[Task],
        documents: Iterable[Document],
        settings: Settings,
        *,
        needles: Sequence[str] = (),
        stop: Iterable[int] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.engine, self.methods, self.tokenizer = engine, list(methods), tokenizer
        self.tasks, self.needles, self.settings = list(tasks), list(needles), settings
        self.stop, self.config = frozenset(stop), dict(config or {})
        self.fills = [method for method in self.methods if method.plan is not None]
        self._check_tails()
        for length in settings.lengths:
            check_fills(self.methods, length)
        amounts, self.windows = settings.amounts, dict[int, list[Window]]()
        count = max(amounts.documents, amounts.splices)
        if count:
            self.windows = draw_windows(
                tokenizer, documents, settings.lengths, count, settings.seed
            )
        self.items = make_items(
            self.methods,
            self.tasks,
            settings.lengths,
            self.windows,
            amounts,
            self._layers,
            tokenizer,
            self.needles,
        )

    def run(
        self, output: Path | None = None, report: Callable[[Item], None] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run what is missing in ``output`` and return results and times, written there too.

        The same call goes on where a killed run was, and ends in the same ``results.json``.
        Raises RidgeFillError when ``output`` holds a run of something else.
        """
        journal = Journal(output, self._identity())
        context = Context(
            self.engine,
            self.methods,
            self.tokenizer,
            self.stop,
            first_tokens(self.tokenizer),
            self.settings.loss,
            self._token_folder(output),
        )
        records = run_items(self.items, context, journal, report)
        results = self._results(records)
        times = {"environment": environment(), "rows": self._times(records)}
        if output is not None:
            write_json(output / RESULTS, results)
            write_json(output / TIMES, times)
        return results, times

    @property
    def _layers(self) -> int:
        return next(method.maps.config.num_layers for method in self.methods if method.maps)

    def _check_tails(self) -> None:
        """Distant tokens are looked for in the later half of the shortest tail."""
        for method in self.fills:
            if method.plan is not None and method.plan.tail < 2:
                raise RidgeFillError(
                    f"plan {method.name!r} has a tail of {method.plan.tail}: losses need 2 rows"
                )

    def _token_folder(self, output: Path | None) -> tuple[Path, str] | None:
        if self.settings.dump is None or output is None:
            return None
        return output / TOKENS, self.settings.dump

    def _identity(self) -> dict[str, Any]:
        """All that a record depends on; how many there are may differ between runs."""
        return {
            "format_version": FORMAT_VERSION,
            "plans": [_plan(method) for method in self.methods],
            "seed": self.settings.seed,
            "loss": asdict(self.settings.loss),
            "by_layer": list(self.settings.amounts.by_layer),
            "dump": self.settings.dump,
            "versions": environment()["versions"],
            **self.config,
        }

    def _results(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        found = environment()
        settings = self.settings
        amounts = {k: v for k, v in asdict(settings.amounts).items() if k != "by_layer"}
        return {
            "format_version": FORMAT_VERSION,
            "config": {
                **self._identity(),
                "lengths": list(settings.lengths),
                "tasks": [task.name for task in self.tasks],
                **amounts,
                "limits": asdict(settings.limits),
            },
            "environment": {key: found[key] for key in ("versions", "device")},
            "plans": [self._plan_row(method) for method in self.methods],
            **summarise(
                records,
                self.methods[0].name,
                [method.name for method in self.fills],
                self.needles,
                settings.limits,
            ),
        }

    def _plan_row(self, method: Method) -> dict[str, Any]:
        lengths = self.settings.lengths
        return {
            **_plan(method),
            "ideal": {str(length): self.engine.ideal(method, length) for length in lengths},
            "filled_rows": {str(n): int(filled_mask(method, n).sum()) for n in lengths},
        }

    def _times(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Median prefill times over the answered prompts, exact and filled ones interleaved."""
        rows = []
        for length in self.settings.lengths:
            laps = [r["times"] for r in records if r["kind"] == "answer" and r["length"] == length]
            if not laps:
                continue
            exact = _medians(laps, self.methods[0].name)
            for method in self.methods:
                found = _medians(laps, method.name)
                ratios = {f"ratio_{clock}": exact[clock] / found[clock] for clock in found}
                rows.append(
                    {
                        "plan": method.name,
                        "length": length,
                        "prefills": len(laps),
                        **{f"{clock}_s": seconds for clock, seconds in found.items()},
                        **ratios,
                        "ideal": self.engine.ideal(method, length),
                    }
                )
        return rows


def _medians(laps: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    floor = 1e-9  # a clock too coarse for a tiny model gives 0
    return {
        clock: max(median(lap[name][f"{clock}_s"] for lap in laps), floor)
        for clock in ("cpu", "wall")
    }


def _plan(method: Method) -> dict[str, Any]:
    """A plan as the results name it."""
    if method.maps is None or method.plan is None:
        return {"name": method.name, "fill": "exact"}
    config, plan = method.maps.config, method.plan
    return {
        "name": method.name,
        "fill": config.kind,
        "split": config.split,
        "sources": list(config.sources),
        "target": config.target,
        "tail": plan.tail,
        "sinks": plan.sinks,
        "every": plan.every,
        "maps_sha256": _maps_digest(method),
    }


def _maps_digest(method: Method) -> str | None:
    if method.maps is None or method.maps.is_identity:
        return None
    digest = hashlib.sha256()
    for name, tensor in sorted(method.maps.tensors().items()):
        if tensor is not None:
            digest.update(name.encode())
            digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def write_report(output: Path, results: Mapping[str, Any], times: Mapping[str, Any] | None) -> None:
    """Write the plots and ``report.html`` of results to a directory, each file atomically."""
    from ridgefill.evaluate.reporting import page, plots

    images = plots.draw(results)
    for name, data in images.items():
        write_file(output / name, data)
    write_file(output / "report.html", page.render(results, times, images).encode())
