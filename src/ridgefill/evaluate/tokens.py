"""Token-level losses of a document as a file of columns, one row per scored token."""

import io
from pathlib import Path

import numpy as np

from ridgefill.core.artefact import write_file
from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.loss import DocumentScores

FORMATS = ("npz", "parquet")


def check_format(kind: str) -> None:
    """Raise RidgeFillError unless token-level losses can be written as ``kind``."""
    if kind not in FORMATS:
        raise RidgeFillError(f"--dump-tokens takes {' or '.join(FORMATS)}, got {kind!r}")
    if kind == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise RidgeFillError(
                "the package pyarrow is needed to write parquet: pip install pyarrow, or dump npz"
            ) from None


def columns(scores: DocumentScores, length: int) -> dict[str, np.ndarray]:
    """Columns ``[tail]`` by name; a plan's are ``loss:NAME``, ``kl:NAME`` and ``agree:NAME``.

    ``length`` is the document's number of tokens: ``position`` counts from its first token.
    """
    tail = len(scores.token_ids)
    table = {
        "position": np.arange(length - tail, length),
        "token_id": scores.token_ids.numpy(),
        "distant": scores.distant.numpy(),
        "novel": scores.novel.numpy(),
        "local_loss": scores.local_loss.numpy(),
    }
    for name, found in scores.by_method.items():
        table[f"loss:{name}"] = found.loss.numpy()
        table[f"kl:{name}"] = found.kl.numpy()
        table[f"agree:{name}"] = found.agree.numpy()
    return table


def write_tokens(path: Path, scores: DocumentScores, length: int) -> None:
    """Write `columns` as npz or parquet, by the path's suffix, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table, buffer = columns(scores, length), io.BytesIO()
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(table), buffer)
    else:
        np.savez_compressed(buffer, **table)  # type: ignore[arg-type]
    write_file(path, buffer.getvalue())
