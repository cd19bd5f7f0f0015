"""What a table of a report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One cell; ``kind`` is ``head``, ``text``, ``number`` or ``range``.

    ``rows``: how many rows it spans; ``strong``: whether it stands out.
    """

    text: str
    kind: str = "number"
    rows: int = 1
    strong: bool = False


@dataclass(frozen=True)
class Column:
    """A heading over ``width`` columns of one ``kind``, under the heading ``group`` if any."""

    label: str
    kind: str = "number"
    group: str = ""

    @property
    def width(self) -> int:
        return 2 if self.kind == "interval" else 1


@dataclass(frozen=True)
class Table:
    """``blocks`` of rows belong together."""

    caption: str
    columns: Sequence[Column]
    blocks: Sequence[Sequence[Sequence[Cell]]]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The upper headings with their widths; empty where there are none."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group:
                found[-1] = (column.group, found[-1][1] + column.width)
            else:
                found.append((column.group, column.width))
        return found if any(name for name, _ in found) else []
