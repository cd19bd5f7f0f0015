"""Figures that need no display, and their PNG files."""

import io
from typing import Any


def figure(width: float = 6.4, height: float = 4.0) -> Any:
    """An empty matplotlib figure of a size in inches, drawn without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def png(drawn: Any) -> bytes:
    """A figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def plain(text: str, longest: int = 48) -> str:
    """A text as a label: shortened, and nothing in it read as a formula or as hidden."""
    short = text if len(text) <= longest else text[: longest - 1] + "…"
    return (" " if short.startswith("_") else "") + short.replace("$", r"\$")
