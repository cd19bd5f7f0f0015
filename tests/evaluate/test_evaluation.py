"""Whole evaluations on a tiny model: resumed runs, refusals, and what the records say."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ridgefill.core.errors import NotEnoughTextError, RidgeFillError
from ridgefill.evaluate.documents import Document
from ridgefill.evaluate.evaluation import Evaluation, Settings
from ridgefill.evaluate.journal import CONFIG, SAMPLES
from ridgefill.evaluate.suite import Amounts
from tests.engines.transformers.builders import tiny_tokenizer
from tests.evaluate.builders import EXACT, TAIL, LookUp, engine, fills

AMOUNTS = Amounts(samples=3, documents=2, splices=1, by_layer=("loss", "retrieval"))
LENGTHS = (40, 60)


def documents(seed: int) -> list[Document]:
    draw = random.Random(seed)
    texts = [" ".join(f"w{draw.randrange(3, 101)}" for _ in range(400)) for _ in range(3)]
    return [Document("ab"[number % 2], text) for number, text in enumerate(texts)]


def evaluation(seed: int, session: Any = None, **changes: Any) -> Evaluation:
    session = session or engine(seed)
    settings = Settings(LENGTHS, AMOUNTS, seed=seed)
    rows = changes.pop("rows", {})
    more = {"config": changes.pop("config", {}), "needles": ["look-up"]}
    return Evaluation(
        session,
        [EXACT, *fills(session, **rows)],
        tiny_tokenizer(),
        [LookUp(seed=seed), LookUp("other", seed)],
        documents(seed),
        replace(settings, **changes),
        **more,
    )


@pytest.fixture
def session(seed: int) -> Any:
    return engine(seed)


def results(folder: Path) -> bytes:
    return (folder / "results.json").read_bytes()


def test_killed_anywhere_a_run_ends_in_the_same_results(
    session: Any, seed: int, tmp_path: Path
) -> None:
    """Killed after any number of items, with any part of the next line written."""
    whole = tmp_path / "whole"
    evaluation(seed, session).run(whole)
    lines = (whole / SAMPLES).read_bytes().splitlines(keepends=True)
    assert len(lines) == len(evaluation(seed, session).items) == 2 * (2 * 3 + 2) + 2
    draw = random.Random(seed)
    for done in range(len(lines)):
        folder = tmp_path / str(done)
        folder.mkdir()
        (folder / CONFIG).write_bytes((whole / CONFIG).read_bytes())
        torn = lines[done][: draw.randrange(len(lines[done]))]
        (folder / SAMPLES).write_bytes(b"".join(lines[:done]) + torn)
        seen: list[str] = []
        evaluation(seed, session).run(folder, lambda item, seen=seen: seen.append(item.id))
        assert results(folder) == results(whole)
        assert len(seen) == len(lines)
        kept = (folder / SAMPLES).read_bytes().splitlines(keepends=True)
        assert kept[:done] == lines[:done]
        assert len(kept) == len(lines)


def test_interrupted_by_an_exception(session: Any, seed: int, tmp_path: Path) -> None:
    evaluation(seed, session).run(tmp_path / "whole")
    calls = 0

    def stop(item: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluation(seed, session).run(tmp_path / "cut", stop)
    assert len((tmp_path / "cut" / SAMPLES).read_bytes().splitlines()) == 4
    assert not (tmp_path / "cut" / "results.json").exists()
    evaluation(seed, session).run(tmp_path / "cut")
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


def test_in_memory_as_on_disk(session: Any, seed: int, tmp_path: Path) -> None:
    found, times = evaluation(seed, session).run()
    on_disk, _ = evaluation(seed, session).run(tmp_path / "run")
    assert found == on_disk == json.loads(results(tmp_path / "run"))
    assert {(row["plan"], row["length"]) for row in times["rows"]} == {
        (plan, length) for plan in ("exact", "identity", "random") for length in LENGTHS
    }


def test_a_larger_run_keeps_the_samples_of_a_smaller_one(
    session: Any, seed: int, tmp_path: Path
) -> None:
    small, large = AMOUNTS, replace(AMOUNTS, samples=5, documents=4)
    evaluation(seed, session, amounts=small).run(tmp_path / "grown")
    before = (tmp_path / "grown" / SAMPLES).read_bytes()
    evaluation(seed, session, amounts=large).run(tmp_path / "grown")
    assert (tmp_path / "grown" / SAMPLES).read_bytes().startswith(before)
    evaluation(seed, session, amounts=large).run(tmp_path / "at-once")
    assert results(tmp_path / "grown") == results(tmp_path / "at-once")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rows": {"sinks": 3}}, "another plans"),
        ({"config": {"model": "other"}}, r"another model \(null, now \"other\"\)"),
    ],
)
def test_another_run_in_the_directory_is_refused_untouched(
    session: Any, seed: int, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    evaluation(seed, session).run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RidgeFillError, match=says):
        evaluation(seed, session, **changes).run(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_records_say_where_the_evidence_lies(session: Any, seed: int, tmp_path: Path) -> None:
    evaluation(seed, session, amounts=replace(AMOUNTS, samples=12)).run(tmp_path)
    records = [json.loads(line) for line in (tmp_path / SAMPLES).read_text().splitlines()]
    answers = [record for record in records if record["kind"] == "answer"]
    assert len(answers) == 2 * 2 * 12
    for record in answers:
        (_, start, _) = record["spans"][0]
        rows = record["prompt_tokens"]
        place = "filled" if 2 <= start < rows - TAIL else "exact"
        assert record["plans"]["random"]["regions"] == [place]
        assert record["plans"]["exact"]["regions"] == ["exact"]
        assert record["plans"]["random"]["filled_rows"] == rows - TAIL - 2


def test_summary_rows_equal_hand_counts(session: Any, seed: int, tmp_path: Path) -> None:
    amounts = replace(AMOUNTS, documents=20)
    found, _ = evaluation(seed, session, amounts=amounts).run(tmp_path)
    records = [json.loads(line) for line in (tmp_path / SAMPLES).read_text().splitlines()]
    for row in found["answers"]:
        part = [
            r
            for r in records
            if r["kind"] == "answer"
            and row["task"] in (r["task"], "needles")
            and row["length"] in (r["length"], None)
            and (row["region"] == "all" or row["region"] in r["plans"][row["plan"]]["regions"])
        ]
        assert row["n"] == len(part)
        scores = [r["plans"][row["plan"]]["score"] for r in part]
        assert row["score"]["mean"] == pytest.approx(np.mean(scores))
    sources = {record["source"] for record in records if record["kind"] == "loss"}
    assert {row["source"] for row in found["loss_by_source"]} == sources == {"a", "b"}
    for row in [*found["loss"], *found["loss_by_source"]]:
        part = [
            r
            for r in records
            if r["kind"] == "loss"
            and row["length"] in (r["length"], None)
            and row.get("source") in (r["source"], None)
        ]
        tokens = sum(r["tokens"][row["group"]] for r in part)
        ours = sum(r["plans"][row["plan"]]["loss"][row["group"]] for r in part)
        theirs = sum(r["plans"]["exact"]["loss"][row["group"]] for r in part)
        assert row["tokens"] == tokens
        assert row["loss"]["mean"] == pytest.approx(ours / tokens)
        assert row["relative"]["mean"] == pytest.approx(ours / theirs - 1)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_token_losses_on_disk(session: Any, seed: int, tmp_path: Path, kind: str) -> None:
    evaluation(seed, session, dump=kind).run(tmp_path)
    records = [json.loads(line) for line in (tmp_path / SAMPLES).read_text().splitlines()]
    for record in (r for r in records if r["kind"] == "loss"):
        path = tmp_path / "tokens" / f"{record['id'].replace('/', '-')}.{kind}"
        table = _columns(path)
        assert len(table["token_id"]) == TAIL
        assert table["position"].tolist() == list(range(record["length"] + 1))[-TAIL:]
        for plan, sums in record["plans"].items():
            for group in ("distant", "novel"):
                total = table[f"loss:{plan}"][table[group]].sum()
                assert total == pytest.approx(sums["loss"][group], abs=1e-4)


def _columns(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return dict(np.load(path))
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def test_a_plan_that_fills_nothing_is_named(session: Any, seed: int) -> None:
    """Its scores would be the exact prefill's: 100 % of nothing."""
    with pytest.raises(RidgeFillError, match=r"'identity' fills nothing of a prompt of 40 tokens"):
        evaluation(seed, session, rows={"tail": 60})


def test_short_documents_are_refused_before_anything_runs(session: Any, seed: int) -> None:
    with pytest.raises(NotEnoughTextError, match="no document has the 601 tokens"):
        evaluation(seed, session, lengths=(600,))


def test_a_prompt_that_leaves_nothing_to_fill_stops_the_run(session: Any, seed: int) -> None:
    """The budget has filled rows, but the prompt made for it (4 tokens shorter) has none."""
    run = evaluation(seed, session, lengths=(40,), rows={"tail": 36, "sinks": 2})
    with pytest.raises(RidgeFillError, match="look-up/40/0: plan 'identity' fills nothing"):
        run.run()


def test_one_seed_one_result(session: Any, seed: int) -> None:
    a, b = (evaluation(seed, session).run()[0] for _ in range(2))
    assert a == b
