"""lm-evaluation-harness on filled prefills: its own HFLM with a row plan.

Importing this module registers the model ``ridgefill`` with the harness (package ``lm-eval``) and
changes nothing else there.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from torch import Tensor
from tqdm.auto import tqdm

from ridgefill.core.errors import RidgeFillError, UnsupportedError
from ridgefill.core.maps import FillMaps
from ridgefill.core.rows import RowPlan
from ridgefill.engines.transformers.filler import Filler
from ridgefill.engines.transformers.identity import identity_maps
from ridgefill.engines.transformers.scoring import Request, Scored, group, left_pad, log_likelihood

log = logging.getLogger(__name__)

FILLS = ("ridge", "identity")
WAYS = {
    "filled": "filled",
    "exact_short": "exact, prompt not longer than sinks + tail",
    "exact_scored": "exact, more scored tokens than the tail holds",
    "exact_rolling": "exact, every token is scored",
}
"""How a request can run under maps, and in words."""

Answer = tuple[float, bool]


@register_model("ridgefill")
class RidgeFillLM(HFLM):
    """The harness's own transformers model, its prompts prefilled under fill maps.

    Args:
        pretrained: as for HFLM: a name, or a loaded model (then with ``tokenizer``).
        maps: a directory or hub id; without maps and fill everything runs exact, as HFLM itself.
        fill: ``ridge`` (the maps) or ``identity`` (needs ``split``).
        split: of an identity fill.
        tail, sinks: exact rows; default: the maps' own.
        strict: see `Filler`.
        more: HFLM's own arguments.

    ``generate_until`` fills every prompt longer than sinks + tail. ``loglikelihood`` fills a
    request's context only when all rows that are scored are exact, that is when the continuation
    fits into the tail; any other request runs exact as a whole, and so does all of
    ``loglikelihood_rolling``. ``fill_counts`` says how many requests ran in which of the `WAYS`;
    it is empty without maps.

    Raises RidgeFillError for arguments that do not fit each other, before anything is loaded,
    ArtefactError for maps that cannot be read, and as `Filler` does.
    """

    def __init__(
        self,
        pretrained: Any,
        *,
        maps: str | None = None,
        fill: str = "ridge",
        split: int | None = None,
        tail: int | None = None,
        sinks: int | None = None,
        strict: bool = True,
        **more: Any,
    ) -> None:
        _check(maps, fill, split, tail, sinks)
        ridge = None if maps is None else FillMaps.from_pretrained(maps)
        super().__init__(pretrained, **more)
        self.maps_name = maps and (Path(maps).name if Path(maps).exists() else maps)
        self.filler: Filler | None = None
        self.fill_counts: dict[str, int] = {}
        self.plan = RowPlan()
        found = ridge if split is None else identity_maps(self.model, split)
        if found is None:
            return
        if self.backend != "causal":
            raise UnsupportedError(f"{self.backend} models cannot be filled: use a causal one")
        self.filler = Filler(self.model, found, strict=strict)
        own = self.filler.default_plan
        self.plan = RowPlan(
            tail=own.tail if tail is None else tail, sinks=own.sinks if sinks is None else sinks
        )
        self.fill_counts = dict.fromkeys(WAYS, 0)

    def fill_info(self) -> dict[str, Any]:
        """What was filled and how: JSON values only."""
        if self.filler is None:
            return {"fill": "exact"}
        config = self.filler.maps.config
        return {
            "fill": config.kind,
            "maps": self.maps_name,
            "split": config.split,
            "tail": self.plan.tail,
            "sinks": self.plan.sinks,
            "requests": dict(self.fill_counts),
        }

    def fill_summary(self) -> str:
        """`fill_counts` in a sentence."""
        if self.filler is None:
            return "all requests ran exact"
        parts = [f"{n} {WAYS[way]}" for way, n in self.fill_counts.items() if n or way == "filled"]
        return f"{sum(self.fill_counts.values())} requests: {'; '.join(parts)}"

    def get_model_info(self) -> dict[str, Any]:
        """HFLM's, with `fill_info`; the harness asks for it once, when all requests have run."""
        if self.filler is not None:
            log.warning("ridgefill: %s", self.fill_summary())
        return {**super().get_model_info(), "ridgefill": self.fill_info()}

    def _fits(self, tokens: int) -> bool:
        """Whether a prompt has nothing to fill."""
        return tokens <= self.plan.sinks + self.plan.tail

    def _model_generate(
        self, context: Tensor, max_length: int, stop: list[str], **options: Any
    ) -> Tensor:
        """Generate from left-padded prompts ``[batch, seq]``, filled where they are long."""
        call = {"context": context, "max_length": max_length, "stop": stop, **options}
        if self.filler is None:
            return super()._model_generate(**call)
        mask = options.get("attention_mask")
        real = torch.ones_like(context) if mask is None else mask
        for tokens in real.sum(1).tolist():
            self.fill_counts["exact_short" if self._fits(tokens) else "filled"] += 1
        with self.filler.attach(self.plan):
            return super()._model_generate(**call)

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """HFLM's, exact: its windows are scored in full, and filled rows have no logits."""
        if self.filler is not None:
            self.fill_counts["exact_rolling"] += len(requests)
        return super().loglikelihood_rolling(requests, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self,
        requests: Sequence[Request],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[Answer]:
        """One answer per request ``((context, continuation), context ids, continuation ids)``.

        Windows of a rolling likelihood have no texts and run exact.
        """
        stock = super()._loglikelihood_tokens
        if self.filler is None or any(texts is None for texts, _, _ in requests):
            return stock(requests, disable_tqdm=disable_tqdm, override_bs=override_bs)
        ways = [self._way(request) for request in requests]
        for way in ways:
            self.fill_counts[way] += 1
        exact = [index for index, way in enumerate(ways) if way != "filled"]
        answers: dict[int, Answer] = {}
        if exact:
            chosen = [requests[index] for index in exact]
            found = stock(chosen, disable_tqdm=disable_tqdm, override_bs=override_bs)
            answers.update(zip(exact, found, strict=True))
        filled = {index: requests[index] for index, way in enumerate(ways) if way == "filled"}
        answers.update(self._score_filled(self.filler, filled, disable_tqdm))
        return [answers[index] for index in range(len(requests))]

    def _way(self, request: Request) -> str:
        _, context, continuation = request
        if self._fits(min(len(context) + len(continuation) - 1, self.max_length)):
            return "exact_short"
        # The harness has its own words for an empty continuation.
        return "filled" if 1 <= len(continuation) <= self.plan.tail else "exact_scored"

    def _score_filled(
        self, filler: Filler, requests: dict[int, Request], disable_tqdm: bool
    ) -> dict[int, Answer]:
        """Answers by index of requests whose continuation fits into the tail."""
        prompts = group(requests, self.max_length, share=self.logits_cache)
        self._warn_of_cuts(list(requests.values()))
        size = self._filled_batch_size([requests[prompt.requests[0]] for prompt in prompts])
        answers: dict[int, Answer] = {}
        bar = tqdm(
            total=len(requests),
            disable=disable_tqdm or self.rank != 0,
            desc="Running filled loglikelihood requests",
        )
        with bar:
            for start in range(0, len(prompts), size):
                batch = prompts[start : start + size]
                for prompt, rows in zip(batch, self._log_probs(filler, batch), strict=True):
                    for index in prompt.requests:
                        texts, _, continuation = requests[index]
                        answers[index] = log_likelihood(rows, continuation)
                        self.cache_hook.add_partial("loglikelihood", texts, answers[index])
                        bar.update()
        return answers

    def _warn_of_cuts(self, requests: Sequence[Request]) -> None:
        most = self.max_length
        cut = sum(len(context) + len(scored) - 1 > most for _, context, scored in requests)
        if cut:
            log.warning(
                "ridgefill: %d prompts are longer than the model's maximum of %d tokens and lose "
                "their first ones",
                cut,
                most,
            )

    def _filled_batch_size(self, longest_first: list[Request]) -> int:
        """The batch size; "auto" is settled by exact prefills, which need more memory."""
        if self.batch_size != "auto":
            return int(self.batch_size)
        return int(self._detect_batch_size(longest_first, 0)) if longest_first else 1

    def _log_probs(self, filler: Filler, batch: Sequence[Scored]) -> Tensor:
        """Log-probabilities ``[batch, most scored rows, vocab]`` of the last rows."""
        ids, mask = left_pad([prompt.ids for prompt in batch], self.device)
        keep = max(prompt.keep for prompt in batch)
        precision = self.mixed_precision_dtype
        with torch.autocast(self.device.type, dtype=precision, enabled=precision is not None):
            logits = filler.prefill(ids, mask, self.plan, keep=keep).logits
        return F.log_softmax(logits, dim=-1, dtype=self.softmax_dtype)


def _check(
    maps: str | None, fill: str, split: int | None, tail: int | None, sinks: int | None
) -> None:
    """Raise RidgeFillError for arguments that do not fit each other."""
    if fill not in FILLS:
        raise RidgeFillError(f"fill must be one of {', '.join(FILLS)}, got {fill!r}")
    if fill == "identity" and (split is None or maps is not None):
        raise RidgeFillError("fill 'identity' needs a split and takes no maps")
    if fill == "ridge" and split is not None:
        raise RidgeFillError(f"split {split} is for fill 'identity': maps have their own split")
    if fill == "ridge" and maps is None and (tail, sinks) != (None, None):
        raise RidgeFillError("tail and sinks need something to fill: name maps, or fill 'identity'")
    RowPlan(tail=1 if tail is None else tail, sinks=0 if sinks is None else sinks)
