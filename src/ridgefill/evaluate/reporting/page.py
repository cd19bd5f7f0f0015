"""The report of an evaluation: one HTML file that needs nothing else."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.reporting import facts, tables
from ridgefill.evaluate.reporting.cells import Table
from ridgefill.evaluate.reporting.rows import rows_of, values
from ridgefill.evaluate.reporting.splices import MEASURES, carriers
from ridgefill.evaluate.reporting.words import verdicts

TEMPLATE = "report.html.j2"
_ALTS = {
    "retrieval.png": "Score in the filled region by prompt length: a point with its interval for "
    "every plan, and the exact prefill's on the same references beside it.",
    "loss.png": "Relative increase of the loss on all, distant and novel tokens: a point with its "
    "interval for every plan, and a line at the limit for distant tokens.",
    "tasks.png": "Difference in score from the exact prefill by task: a point with its interval "
    "for every plan.",
}


@dataclass(frozen=True)
class Image:
    """A plot as the page holds it: the file's name, its bytes as a data URI, and its words."""

    name: str
    uri: str
    alt: str


@dataclass(frozen=True)
class SpliceSection:
    """The splices measured one way."""

    measure: str
    title: str
    sentences: list[tuple[str, str]]
    table: Table
    image: Image | None


def render(
    results: Mapping[str, Any], times: Mapping[str, Any] | None, plots: Mapping[str, bytes]
) -> str:
    """The report as one HTML page.

    Args:
        results: those of a run; parts that were not measured may be missing.
        times: its times, or None.
        plots: PNG files by name, of `plots.draw`; all of them are embedded.

    Raises RidgeFillError when jinja2 is not installed.
    """
    images = {name: _image(name, data) for name, data in plots.items()}
    splices = [
        _splice_section(results, measure, images)
        for measure in values(rows_of(results, "splice"), "measure")
    ]
    retrieval = tables.retrieval_tables(results)
    tasks = [*tables.task_tables(results), *tables.longbench_tables(results)]
    losses = tables.loss_tables(results)
    placed = {section.image.name for section in splices if section.image}
    placed |= {"retrieval.png", "tasks.png"} if retrieval or tasks else set()
    placed |= {"loss.png"} if losses else set()
    return _template().render(
        model=(results.get("config") or {}).get("model", "a model"),
        subtitle=facts.subtitle(results),
        verdicts=verdicts(results),
        cautions=facts.cautions(results),
        plans=tables.plan_table(results, times),
        images=images,
        retrieval=retrieval,
        tasks=tasks,
        losses=losses,
        splices=splices,
        others=[image for name, image in images.items() if name not in placed],
        definitions=facts.definitions(results),
        settings=facts.settings(results),
    )


def _splice_section(
    results: Mapping[str, Any], measure: str, images: Mapping[str, Image]
) -> SpliceSection:
    return SpliceSection(
        measure=measure,
        title=MEASURES.get(measure, measure),
        sentences=carriers(results, measure),
        table=tables.splice_table(results, measure),
        image=images.get(f"splice-{measure}.png"),
    )


def _image(name: str, data: bytes) -> Image:
    uri = "data:image/png;base64," + base64.b64encode(data).decode("ascii")
    stem = name.removesuffix(".png")
    alt = _ALTS.get(name, f"Plot {stem}")
    if stem.startswith("splice-"):
        measure = stem.removeprefix("splice-")
        alt = (
            f"Heat maps of splices by {MEASURES.get(measure, measure)}: components by layer, one "
            "map for every plan. Sums over all late layers are in the table."
        )
    return Image(name, uri, alt)


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise RidgeFillError(
            "the report needs jinja2: install it with pip install 'ridgefill[eval]'"
        ) from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = files("ridgefill.evaluate.reporting").joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(source)
