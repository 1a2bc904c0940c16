"""Degraded replies: the published spans, words from another dialogue, the same for the same seed."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnscore_assessment.commands.main import app
from turnscore_assessment.distortion import ReplyCorpus, count_replaced, distort, read_corpus
from turnscore_assessment.errors import BadFileError
from typer.testing import CliRunner

PUBLISHED = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 8: 3, 9: 4, 15: 4, 16: 5, 29: 5, 30: 6, 34: 6, 35: 7, 100: 20}


def test_spans_are_as_long_as_published() -> None:
    assert {words: count_replaced(words) for words in PUBLISHED} == PUBLISHED


@given(words=st.integers(0, 80), spare=st.integers(0, 30), seed=st.integers(0, 2**32))
def test_a_span_within_the_reply_gives_way_to_consecutive_words_of_the_donor(words: int, spare: int, seed: int) -> None:
    reply = [f"r{number}" for number in range(words)]
    donor = [f"d{number}" for number in range(count_replaced(words) + spare)]
    found = distort(reply, donor, np.random.default_rng(seed))
    assert len(found) == words
    places = [place for place, word in enumerate(found) if word.startswith("d")]
    assert len(places) == count_replaced(words)
    assert all(found[place] == reply[place] for place in range(words) if place not in places)
    if places:
        assert places == list(range(places[0], places[0] + len(places)))
        taken = [int(found[place][1:]) for place in places]
        assert taken == list(range(taken[0], taken[0] + len(taken)))
    if words >= 3:
        assert (found[0], found[-1]) == (reply[0], reply[-1])
    assert found == distort(reply, donor, np.random.default_rng(seed))


def test_reply_and_donor_come_from_other_dialogues() -> None:
    corpus = ReplyCorpus(["a a a a a a", "b b b b b b", "c c c c c c", "d d d d d d"], [1, 2, 3, 4])
    generator = np.random.default_rng(0)
    for _ in range(200):
        words = corpus.draw(generator, other_than=2).split()
        assert len(set(words)) == 2
        assert "b" not in words
    with pytest.raises(ValueError, match="three dialogues"):
        ReplyCorpus(["a", "b"], [1, 2])


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_rows(count: int) -> list[Any]:
    return [{"turns": [f"hello {number}", f"i am number {number} of all bots here"]} for number in range(count)]


def test_the_command_degrades_every_reply_and_repeats_itself(tmp_path: Path) -> None:
    file = write(tmp_path / "dialogues.jsonl", [*make_rows(8), {"turns": []}])
    outputs = [tmp_path / f"{name}.jsonl.gz" for name in ("one", "two", "other")]
    for output, seed in zip(outputs, ("1", "1", "2"), strict=True):
        done = CliRunner().invoke(app, ["distort", str(file), "--output", str(output), "--seed", seed, "--count", "5"])
        assert done.exit_code == 0, done.output
    assert outputs[0].read_bytes() == outputs[1].read_bytes() != outputs[2].read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(outputs[0].read_bytes()).splitlines()]
    assert len(rows) == 5
    assert all(row["degraded"] and row["system"] == "degraded" for row in rows)
    assert [row["turns"][0]["text"] for row in rows] == [f"hello {number}" for number in range(5)]
    assert all(f"number {number} " not in row["turns"][1]["text"] for number, row in enumerate(rows))
    few = tmp_path / "few.jsonl"
    CliRunner().invoke(app, ["distort", str(file), "--output", str(few), "--seed", "1", "--count", "2"])
    assert [json.loads(line) for line in few.read_text().splitlines()] == rows[:2]


def test_a_wrong_dialogue_is_named(tmp_path: Path) -> None:
    wrong = {"turns": [{"speaker": "bot", "text": "a"}]}
    with pytest.raises(BadFileError, match=r"line 4: turns\.0\.speaker: must be user or system"):
        read_corpus(write(tmp_path / "dialogues.jsonl", [*make_rows(3), wrong]))


def test_a_corpus_without_answers_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    file = write(tmp_path / "dialogues.jsonl", make_rows(2))
    with pytest.raises(BadFileError, match="needs three dialogues"):
        read_corpus(file)
    assert CliRunner().invoke(app, ["distort", str(file), "--output", str(file)]).exit_code == 2
