import pytest

from ridgefill.bench.plots import plot_bars, plot_ratios


def rows(lengths):
    return [
        {
            "method": name,
            "length": length,
            "ratio_cpu": ratio,
            "ratio_wall": ratio,
            "ideal": ratio + 0.1,
            "ttft_cpu_s": 2.0 / ratio,
            "ttft_wall_s": 1.0 / ratio,
            **({} if name == "exact" else {"kind": "ridge"}),
        }
        for length in lengths
        for name, ratio in (("exact", 1.0), ("maps", 1.6))
    ]


@pytest.mark.parametrize("clock", ["cpu", "wall"])
@pytest.mark.parametrize(
    ("plot", "lengths"), [(plot_ratios, (2048, 4096, 8192)), (plot_bars, (4096,))]
)
def test_writes_one_png(tmp_path, plot, lengths, clock):
    plot(rows(lengths), tmp_path / "plot.png", "title", clock)
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
