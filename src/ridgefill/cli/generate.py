"""``ridgefill generate``: generate text after a filled prefill."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ridgefill.cli import options
from ridgefill.cli.output import print_json, say
from ridgefill.core.errors import RidgeFillError

if TYPE_CHECKING:
    from torch import Tensor

    from ridgefill.core.maps import FillMaps
    from ridgefill.core.rows import RowPlan


def generate(
    model: options.Model,
    maps: Annotated[
        str | None, typer.Option(metavar="DIR", help="Maps: a directory or hub repository.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="The prompt.")] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(help="A file with the prompt; - reads stdin.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens to generate.")] = 128,
    tail: options.Tail = None,
    sinks: options.Sinks = None,
    chosen: Annotated[
        str | None, typer.Option(help="More exact rows, as prompt columns: 10,11.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--no-chat",
            help="Put the prompt into the chat template. Default: if the tokenizer has one.",
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Fill nothing.")] = False,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 0.0,
    seed: options.Seed = 0,
    strict: options.Strict = True,
    dtype: options.Dtype = "auto",
    device_map: options.DeviceMap = None,
    gguf_file: options.GgufFile = None,
    revision: options.Revision = None,
    trust_remote_code: options.TrustRemoteCode = False,
    as_json: options.Json = False,
) -> None:
    """Prefill a prompt with filled late-layer caches and generate from it.

    The text goes to stdout as it comes; exact and filled prompt rows and the TTFT to stderr.

    \b
    Example:
      ridgefill generate ./model --maps maps --prompt-file long.txt --max-new-tokens 64
      cat long.txt | ridgefill generate ./model --maps maps --prompt-file - --json
    """
    options.at_least(1, max_new_tokens=max_new_tokens)
    if temperature < 0:
        raise RidgeFillError(f"--temperature must be 0 or more, got {temperature}")
    text = _prompt_text(prompt, prompt_file)
    fill_maps = _maps(maps, exact)
    plan = _plan(fill_maps, tail, sinks, chosen)
    loaded, tokenizer = options.load_model(
        model,
        quiet=as_json,
        dtype=dtype,
        device_map=device_map,
        gguf_file=gguf_file,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    ids = _encode(tokenizer, text, chat).to(loaded.device)
    exact_rows, filling = _filling(loaded, fill_maps, plan, ids.shape[1], strict)
    with filling:
        result = _run(loaded, tokenizer, ids, as_json, max_new_tokens, _sampling(temperature, seed))
    rows = {"exact_rows": exact_rows, "filled_rows": ids.shape[1] - exact_rows}
    if as_json:
        print_json({"model": model, "maps": maps if fill_maps else None, **rows, **result})
        return
    say(
        f"prompt rows: {rows['exact_rows']} exact, {rows['filled_rows']} filled; "
        f"TTFT {result['ttft_s']:.3f} s; {result['new_tokens']} tokens in {result['total_s']:.3f} s"
    )


def _prompt_text(prompt: str | None, file: Path | None) -> str:
    if (prompt is None) == (file is None):
        raise RidgeFillError("give the prompt by exactly one of --prompt and --prompt-file")
    if file is None:
        text = prompt or ""
    elif str(file) == "-":
        text = sys.stdin.read()
    else:
        text = options.read_file(file, "--prompt-file")
    if not text.strip():
        raise RidgeFillError("the prompt is empty: give some text")
    return text


def _maps(maps: str | None, exact: bool) -> "FillMaps | None":
    if exact:
        return None
    if maps is None:
        raise RidgeFillError("name the maps with --maps, or pass --exact to fill nothing")
    from ridgefill.core.maps import FillMaps

    return FillMaps.from_pretrained(maps)


def _plan(
    maps: "FillMaps | None", tail: int | None, sinks: int | None, chosen: str | None
) -> "RowPlan | None":
    from ridgefill.core.rows import RowPlan

    rows = None if chosen is None else options.whole_numbers(chosen, "--chosen")
    if maps is None:
        return None
    return RowPlan(
        tail=maps.config.tail if tail is None else tail,
        sinks=maps.config.sinks if sinks is None else sinks,
        chosen=rows,
    )


def _encode(tokenizer: Any, text: str, chat: bool | None) -> "Tensor":
    """Token ids of the prompt, int64 ``[1, seq]``."""
    has_template = getattr(tokenizer, "chat_template", None) is not None
    if chat and not has_template:
        raise RidgeFillError("the tokenizer has no chat template: pass --no-chat")
    if not (has_template if chat is None else chat):
        return tokenizer(text, return_tensors="pt", verbose=False)["input_ids"]
    messages = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]


def _filling(
    model: Any, maps: "FillMaps | None", plan: "RowPlan | None", length: int, strict: bool
) -> "tuple[int, AbstractContextManager[Any]]":
    """How many of ``length`` prompt rows are exact, and the context in which others are filled."""
    if maps is None or plan is None:
        return length, nullcontext()
    import torch

    from ridgefill.engines.transformers import Filler

    filler = Filler(model, maps, strict=strict)
    exact = plan.exact_mask(torch.ones(1, length, dtype=torch.bool))
    return int(exact.sum()), filler.attach(plan)


def _sampling(temperature: float, seed: int) -> dict[str, Any]:
    """Arguments of ``generate``; seeds torch when tokens are drawn."""
    if temperature == 0:
        return {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    import torch

    torch.manual_seed(seed)
    return {"do_sample": True, "temperature": temperature}


def _run(
    model: Any,
    tokenizer: Any,
    ids: "Tensor",
    silent: bool,
    max_new_tokens: int,
    sampling: dict[str, Any],
) -> dict[str, Any]:
    """Generate, streaming to stdout unless ``silent``; the text and what it took."""
    import torch

    from ridgefill.cli.streaming import Streamer

    length = ids.shape[1]
    streamer = Streamer(tokenizer, silent)
    with torch.no_grad():
        start = time.perf_counter()
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            streamer=streamer,
            **sampling,
        )
        total = time.perf_counter() - start
    return {
        "text": tokenizer.decode(output[0, length:], skip_special_tokens=True),
        "prompt_tokens": length,
        "new_tokens": output.shape[1] - length,
        "ttft_s": streamer.first_token - start,
        "total_s": total,
    }
