"""The text that ships with the package: prose, manual and code, in two disjoint parts.

``fit`` is meant for fitting maps, ``held_out`` for measuring them; no document is in both.
Sources, licences and changes are listed in ``LICENSES.md`` beside this file.
"""

import json
import lzma
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

PARTS = ("fit", "held_out")
KINDS = ("novel", "manual", "code")


@dataclass(frozen=True)
class Document:
    """One text: its ``name``, its ``kind`` (one of :data:`KINDS`) and the ``text`` itself."""

    name: str
    kind: str
    text: str


def sample(part: str) -> list[Document]:
    """Return the documents of one part of the bundled sample.

    Args:
        part: ``"fit"`` or ``"held_out"``.

    Raises:
        ValueError: if ``part`` is neither.
    """
    if part not in PARTS:
        raise ValueError(
            f"unknown part {part!r} of the text sample: use one of {', '.join(map(repr, PARTS))}"
        )
    return list(_read(part))


@lru_cache(maxsize=len(PARTS))
def _read(part: str) -> tuple[Document, ...]:
    """Unpack one part; the result is kept, since a run often asks for it several times."""
    packed = resources.files(__name__).joinpath(f"{part}.json.xz").read_bytes()
    return tuple(Document(**entry) for entry in json.loads(lzma.decompress(packed)))


__all__ = ["KINDS", "PARTS", "Document", "sample"]
