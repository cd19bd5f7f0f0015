"""``python -m ridgefill``, which torchrun needs."""

from ridgefill.cli import app

if __name__ == "__main__":
    app(prog_name="ridgefill")
