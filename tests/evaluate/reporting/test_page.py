"""The HTML report: well formed, whole in itself, honest, and whole whatever is missing."""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from ridgefill.core.errors import RidgeFillError
from ridgefill.evaluate.reporting import page as report
from ridgefill.evaluate.reporting import plots
from ridgefill.evaluate.verdict import Limits
from tests.evaluate.reporting.synthetic import (
    DEAD,
    DOUBTFUL,
    IDENTITY,
    SAFE,
    Fill,
    increases,
    results,
    times,
)

FEW: dict[str, Any] = {"samples": 4, "documents": 6, "splices": 5, "lengths": (2048,)}
LENIENT = Limits(max_distant_loss=0.01, min_needle=0.5)
HIDES = "Mean loss hides this"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
_VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Checks nesting, and collects tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def page(found: dict[str, Any], images: dict[str, bytes] | None = None, timed: bool = True) -> Page:
    return Page(report.render(found, times(found) if timed else None, images or {}))


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return results((IDENTITY, DEAD, DOUBTFUL, SAFE), samples=4, documents=6, limits=LENIENT)


def verdict_of(html: str, plan: str) -> str:
    """The text of a plan's verdict."""
    articles = re.findall(r"<article.*?</article>", html, re.DOTALL)
    (text,) = (Page(a).text for a in articles if f"<h3>{plan}</h3>" in a)
    return text


def render(found: dict[str, Any]) -> str:
    return report.render(found, None, {})


def test_it_parses_and_needs_nothing_else(found: dict[str, Any]) -> None:
    html = report.render(found, times(found), plots.draw(found))
    parsed = Page(html)
    assert html.startswith("<!doctype html>")
    assert not re.search(r"(https?:)?//\w", re.sub(r"base64,[\w+/=]+", "", html))
    assert not parsed.all("script") + parsed.all("link") + parsed.all("iframe")
    assert "url(" not in html
    assert "@import" not in html
    sources = [attrs["src"] or "" for attrs in parsed.all("img")]
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_every_plot_is_embedded_once_with_words(found: dict[str, Any]) -> None:
    images = {name: PNG + name.encode() for name in (*plots.draw(found), "extra.png")}
    shown = page(found, images).all("img")
    assert sorted(attrs["src"] or "" for attrs in shown) == sorted(
        report._image(name, data).uri for name, data in images.items()
    )
    assert all(len(attrs["alt"] or "") > 8 for attrs in shown)


def test_tables_are_headed(found: dict[str, Any]) -> None:
    """Every heading says what it heads, and every row has as many columns as its table."""
    parsed = page(found)
    assert all(attrs.get("scope") for attrs in parsed.all("th"))
    assert len(parsed.all("caption")) == len(parsed.all("table")) - 1 >= 9
    assert all(attrs["aria-label"] for attrs in parsed.all("div") if "tabindex" in attrs)


@pytest.mark.parametrize("lengths", [(2048,), (2048, 4096)])
def test_rows_fill_their_tables(lengths: tuple[int, ...]) -> None:
    found = results(**{**FEW, "lengths": lengths})
    for rows in grids(report.render(found, times(found), {})):
        assert len(set(rows)) == 1, rows


def test_losses_by_source() -> None:
    """Every plan has the rows of every source, beside those over all of them."""
    found = results(**FEW)
    rows = [row for row in found["loss"] if row["length"] == 2048]
    found["loss_by_source"] = [
        {**row, "length": None, "source": source} for source in ("code", "novels") for row in rows
    ]
    html = render(found)
    assert html.count(">code</th>") == html.count(">novels</th>") == 2
    assert "Losses by source" in html
    assert all(len(set(widths)) == 1 for widths in grids(html))


def grids(html: str) -> Iterator[list[int]]:
    """The widths of the rows of every table, cells that span rows counted in each."""
    for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
        below: dict[int, int] = {}
        widths = []
        for number, row in enumerate(re.findall(r"<tr>.*?</tr>", table, re.DOTALL)):
            width = below.get(number, 0)
            for tag, attrs in Page(f"<table>{row}</table>").tags:
                if tag not in ("td", "th"):
                    continue
                width += int(attrs.get("colspan") or 1)
                for later in range(1, int(attrs.get("rowspan") or 1)):
                    below[number + later] = below.get(number + later, 0) + 1
            widths.append(width)
        yield widths


def test_names_are_escaped() -> None:
    name = '<b>&"x'
    found = results((Fill(name, gap=0.5),), **FEW)
    found["config"]["model"] = "<i>model</i>"
    html = report.render(found, times(found), plots.draw(found))
    parsed = Page(html)
    assert "<b>&" not in html
    assert not parsed.all("b") + parsed.all("i")
    assert parsed.text.count(name) >= 5
    assert "<i>model</i>" in parsed.text


def test_verdicts_are_said(found: dict[str, Any]) -> None:
    html, model = render(found), found["config"]["model"]
    for fill, answer in ((IDENTITY, "harmful"), (DEAD, "harmful"), (SAFE, "safe")):
        text = verdict_of(html, fill.name)
        assert f"{answer} " in text
        assert f"{answer.capitalize()} on {model} under this plan" in text
    dead = verdict_of(html, DEAD.name)
    assert "it keeps 0.0 % [0.0, " in dead
    assert "short of the 50.0 % asked for" in dead
    assert "over the limit of 1.0 %" in dead
    safe = verdict_of(html, SAFE.name)
    assert "both limits hold" in safe
    assert "it keeps 100.0 %" in safe
    assert "n = 12 documents" in safe


def test_unsure_says_which_interval_and_how_many_more() -> None:
    found = results((SAFE,), **FEW)
    (check,) = (c for c in found["verdicts"][0]["checks"] if c["answer"] == "unsure")
    text = verdict_of(render(found), SAFE.name)
    assert "Unsure on" in text
    low, high = (f"{100 * check['interval'][end]:.1f}" for end in ("low", "high"))
    assert f"The 99.0 % asked for lies inside the interval [{low}, {high}]" in text
    assert f"about {check['more']} more needle prompts like these would decide" in text


def test_unsure_where_no_number_would_decide() -> None:
    found = results((SAFE,), **FEW)
    for check in found["verdicts"][0]["checks"]:
        check["more"] = None
    assert "no affordable number of needle prompts would decide" in render(found)


def test_unsure_by_one_document() -> None:
    """Without an interval the report says so, and shows no limits."""
    found = results((DEAD,), **{**FEW, "documents": 1, "samples": 0})
    text = verdict_of(render(found), DEAD.name)
    assert "[–, –] (n = 1 document)" in text
    assert "The limit of 1.0 % cannot be judged by 1 document" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"samples": 0}, ["one limit is unmeasured", "Unmeasured: there was no needle"]),
        ({"documents": 0}, ["one limit is unmeasured", "Unmeasured: there was no distant token"]),
        ({"samples": 0, "documents": 0}, ["neither limit is measured"]),
    ],
)
def test_unmeasured_is_said(changes: dict[str, Any], said: list[str]) -> None:
    found = results((SAFE,), **{**FEW, **changes}, limits=LENIENT)
    text = verdict_of(render(found), SAFE.name)
    assert "unmeasured in part" in text
    assert all(words in text for words in ["Unsure on", *said])


def test_a_limit_that_rounding_hides_gets_more_digits(found: dict[str, Any]) -> None:
    close = {**found["verdicts"][3]["checks"][1], "answer": "unsure", "limit": 0.99, "more": 5}
    close["interval"] = {"mean": 0.98, "low": 0.96, "high": 0.9904, "n": 90}
    verdict = {**found["verdicts"][3], "answer": "unsure", "checks": [close]}
    assert "[96.00, 99.04]" in verdict_of(render({**found, "verdicts": [verdict]}), SAFE.name)


LOSING = increases(0.012, 0.002, 0.002)
DISTANT = increases(0.004, 0.09, 0.03)


@pytest.mark.parametrize(
    ("fill", "hides"),
    [
        (Fill("answers gone", keeps=0.0, increase=LOSING), True),
        (Fill("distant tokens gone", increase=DISTANT), True),
        (Fill("mean loss tells", keeps=0.0, increase=increases(0.05, 0.2, 0.1)), False),
        (Fill("nothing to hide", increase=increases(0.001, 0.001, 0.001)), False),
        (Fill("not above the limit for sure", increase=increases(0.001, 0.0099, 0.001)), False),
    ],
    ids=lambda value: value.name.replace(" ", "-") if isinstance(value, Fill) else None,
)
def test_hidden_damage_is_said_exactly_when_there_is_some(fill: Fill, hides: bool) -> None:
    found = results((fill,), samples=5, documents=6, splices=0, limits=LENIENT)
    assert (HIDES in verdict_of(render(found), fill.name)) is hides
    mean = next(r["relative"] for r in found["loss"] if r["length"] is None)
    assert f"{100 * mean['mean']:.1f} %" in verdict_of(render(found), fill.name)


def test_hidden_damage_needs_a_certain_mean() -> None:
    """One document leaves open whether the mean loss is small, so nothing is said to hide."""
    fill = Fill("one document", keeps=0.0, increase=LOSING)
    found = results((fill,), **{**FEW, "documents": 1, "samples": 8}, limits=LENIENT)
    assert found["verdicts"][0]["answer"] == "harmful"
    assert HIDES not in render(found)


@pytest.mark.parametrize("missing", ["answers", "loss", "splice", "verdicts", "environment"])
@pytest.mark.parametrize("kind", ["absent", "empty"])
def test_any_part_may_be_missing(found: dict[str, Any], missing: str, kind: str) -> None:
    left = {key: value for key, value in found.items() if key != missing}
    if kind == "empty":
        left[missing] = type(found[missing])()
    parsed = page(left, {"retrieval.png": PNG, "loss.png": PNG, "splice-loss.png": PNG})
    assert "How it was measured" in parsed.text
    assert len(parsed.all("img")) == 3


def test_nothing_measured_and_odd_keys() -> None:
    assert "No plan was judged" in Page(report.render({}, None, {})).text
    found = results(samples=0, documents=0, splices=0)
    found["later"] = found["config"]["later"] = {"anything": [1, 2]}
    text = page(found).text
    assert "Retrieval" not in text
    assert "What carries the error" not in text


def test_times_stand_beside_the_ideal(found: dict[str, Any]) -> None:
    ideal = found["plans"][-1]["ideal"]["4096"]
    ratio = 1 + 0.9 * (ideal - 1)
    cells = f'>{ideal:.2f}</td>\n<td class="number">{ratio:.2f}</td>'
    assert cells in report.render(found, times(found), {})
    assert cells not in report.render(found, None, {})


def test_splices_name_what_carries_the_error(found: dict[str, Any]) -> None:
    text = page(found).text
    assert f"{DEAD.name}. Exact keys close " in text
    assert ": keys carry most of the error. Of the keys, their scale alone " in text
    sure = next(r for r in found["splice"] if r["plan"] == SAFE.name)
    assert sure["closed"] is None
    assert "is not certain to be above zero, so no component" in text


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.5, 0.1, 0.4, 0.5), "the intervals overlap, so which of them carries more is open"),
        ((0.1, 0.0, 0.1, 0.4), "values carry the largest share of the error"),
        ((-0.5, 0.0, -0.4, -0.1), "No component by itself closes any of the gap"),
    ],
)
def test_splices_are_not_read_for_more_than_they_say(shares: tuple[float, ...], said: str) -> None:
    found = results((Fill("plan", gap=2.0, shares=shares),), **{**FEW, "splices": 12})
    assert said in page(found).text


def test_honest_labels(found: dict[str, Any]) -> None:
    text = page(found).text
    assert "Haystacks are made of the bundled text" in text
    assert "Losses are on the bundled text" in text
    assert "Small sample: verdicts rest on" in text
    own = {**found, "config": {**found["config"], "texts": {"documents": "own text"}}}
    assert "bundled text" not in page(own).text


def test_a_model_that_fails_itself_is_said(found: dict[str, Any]) -> None:
    rows = [{**row, "exact": {**row["exact"], "mean": 0.2}} for row in found["answers"]]
    text = page({**found, "answers": rows}).text
    assert "The exact prefill itself scores only 20.0 % on the needle tasks" in text


def test_numbers_are_formatted(found: dict[str, Any]) -> None:
    row = next(r for r in found["loss"] if r["length"] is None and r["plan"] == DEAD.name)
    html = render(found)
    assert f"<strong>+{row['delta']['mean']:.3f}</strong>" in html
    assert f"<strong>+{100 * row['relative']['mean']:.1f}</strong>" in html
    assert "nan" not in Page(html).text
    assert "None" not in Page(html).text
    assert not re.search(r"[-−]0\.0+(?!\d)", Page(html).text)


def test_without_jinja2(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]) -> None:
    report._template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(RidgeFillError, match=r"pip install 'ridgefill\[eval\]'"):
        report.render(found, None, {})


def test_the_same_results_give_the_same_page(found: dict[str, Any]) -> None:
    assert render(found) == render(found)


def test_the_template_is_in_the_package() -> None:
    assert files("ridgefill.evaluate.reporting").joinpath(report.TEMPLATE).is_file()
