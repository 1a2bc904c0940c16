"""Ratings files: what is read comes back, what is wrong is named; published ratings and degraded replies."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import invoke, write_lines
from support.studies import published_row
from turnscore_assessment.commands.main import app
from turnscore_assessment.distortion import ReplyCorpus, count_replaced, distort, read_corpus
from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.ratings import rating_file
from turnscore_assessment.ratings.rating_file import build_table, read_ratings, write_ratings
from typer.testing import CliRunner

STUDY = {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}
ROW = {"worker": "w", "hit": "h", "position": 0, "system": "A", "ratings": {"fun": 70, "dull": 10}}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "ratings.jsonl"


def test_what_is_written_is_read_again_and_packed_the_same_each_time(file, tmp_path):
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]
    timed = {**ROW, "position": 1, "submitted_at": "2026-11-22T08:00:00+01:00", "seconds": 12.5, "turns": turns}
    read = read_ratings(write_lines(file, STUDY, ROW, {**timed, "scores": {"quality": 0.5}}))
    packed = tmp_path / "again.jsonl.gz"
    write_ratings(packed, read)
    before = packed.read_bytes()
    write_ratings(packed, read_ratings(packed))
    assert read_ratings(packed) == read
    assert packed.read_bytes() == before


def test_negative_criteria_are_reversed_and_the_degraded_system_is_none_of_the_systems(file):
    broken = {**ROW, "position": 1, "system": "broken", "degraded": True}
    table = build_table(read_ratings(write_lines(file, STUDY, ROW, broken, {**ROW, "worker": "v"})))
    assert table.ratings.tolist() == [[70, 90]] * 3
    assert table.systems == ["A"]
    assert table.is_degraded.tolist() == [False, True, False]
    assert np.unique(table.assignment_of).size == 2
    assert table.controlling.tolist() == [0]


def test_a_study_larger_than_memory_is_refused(file, monkeypatch):
    read = read_ratings(write_lines(file, STUDY, ROW, {**ROW, "position": 1, "system": "B"}))
    monkeypatch.setattr(rating_file, "MOST_CELLS", 3)
    with pytest.raises(AssessmentError, match="1 workers, 2 systems and 2 criteria are too many"):
        build_table(read)
    monkeypatch.setattr(rating_file, "MOST_SYSTEMS", 1)
    with pytest.raises(AssessmentError, match="there are 2 systems; at most 1"):
        build_table(read)


AGAIN = {**ROW, "position": 1}
TWO_OF_A_NAME = {**STUDY, "criteria": [{"name": "fun"}, {"name": "fun"}]}
NO_RANGE = {**STUDY, "criteria": [{"name": "fun", "low": 5, "high": 5}]}


WRONG_FILES = [
    ([STUDY, ROW, {**AGAIN, "ratings": {"fun": 101, "dull": 0}}], "line 3: ratings.fun: 101 is not within 0 and"),
    ([STUDY, ROW, {**AGAIN, "ratings": {"fun": 1}}], "line 3: ratings.dull: is missing"),
    ([STUDY, ROW, {**AGAIN, "ratings": {"fun": 1, "dull": 1, "x": 1}}], "line 3: ratings.x: is not a criterion"),
    ([STUDY, ROW, ROW], "line 3: position: this worker's HIT has a dialogue at position 0 already, in line 2"),
    ([STUDY, ROW, {**AGAIN, "study": "t"}], "line 3: study: is 't', but the first line describes 's'"),
    ([ROW, ROW], "line 1: study: field required (the first line must describe the study)"),
    ([TWO_OF_A_NAME, ROW], "line 1: two criteria are called 'fun'"),
    ([{**STUDY, "criteria": [{"name": "overall"}]}, ROW], "line 1: criteria.0.name: 'overall' is the mean over"),
    ([NO_RANGE, ROW], "line 1: criteria.0: low (5) must be below high (5)"),
    ([], "is empty"),
    ([STUDY], "has no rated dialogue"),
    ([STUDY, {**ROW, "degraded": True}], "degraded: every system is"),
    ([STUDY, ROW, {**AGAIN, "degraded": True}], "degraded: system 'A' is degraded in some lines"),
]


@pytest.mark.parametrize(("lines", "reason"), WRONG_FILES)
def test_what_is_wrong_is_named_with_its_line_and_field(file, lines, reason):
    with pytest.raises(BadFileError) as raised:
        read_ratings(write_lines(file, *lines))
    assert reason in str(raised.value)


def test_convert_turns_back_what_was_reversed(tmp_path):
    files = [tmp_path / "run_pass.jsonl", tmp_path / "run_fail.jsonl"]
    files[0].write_text(json.dumps(published_row("A", worker="w1", robotic=30)))
    files[1].write_text(json.dumps(published_row("QualityControl", worker="w2")))
    output = tmp_path / "run.jsonl.gz"
    done = invoke(app, ["convert", *map(str, files), "--output", str(output)])
    assert "2 rated dialogues of 2 workers" in done.output
    read = read_ratings(output)
    assert read.description.study == "run"
    assert read.dialogues[0].ratings["robotic"] == 70
    assert [dialogue.degraded for dialogue in read.dialogues] == [False, True]
    assert read.dialogues[0].topic == "dogs"


UNCONVERTIBLE = [
    ({**published_row("A"), "ratings": {"fun": 1}}, "line 1: ratings: must have interesting, fun"),
    (published_row("A", fun=101), "line 1: ratings.fun: must be a number from 0 to 100"),
    ({**published_row("A"), "worker": 3}, "line 1: worker: input should be a valid string"),
]


@pytest.mark.parametrize(("row", "reason"), UNCONVERTIBLE)
def test_convert_names_the_line_and_the_field(tmp_path, row, reason):
    file = tmp_path / "run.jsonl"
    file.write_text(json.dumps(row))
    done = invoke(app, ["convert", str(file), "--output", str(tmp_path / "out.jsonl")], code=1)
    assert reason in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    invoke(app, ["convert", str(file), "--output", str(file)], code=2)


PUBLISHED = {0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 8: 3, 9: 4, 15: 4, 16: 5, 29: 5, 30: 6, 34: 6, 35: 7, 100: 20}


def test_spans_are_as_long_as_published():
    assert {words: count_replaced(words) for words in PUBLISHED} == PUBLISHED


@given(words=st.integers(0, 80), spare=st.integers(0, 30), seed=st.integers(0, 2**32))
def test_a_span_within_the_reply_gives_way_to_consecutive_words_of_the_donor(words, spare, seed):
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


def test_reply_and_donor_come_from_other_dialogues():
    corpus = ReplyCorpus(["a a a a a a", "b b b b b b", "c c c c c c", "d d d d d d"], [1, 2, 3, 4])
    generator = np.random.default_rng(0)
    for _ in range(200):
        words = corpus.draw(generator, other_than=2).split()
        assert len(set(words)) == 2
        assert "b" not in words


def make_rows(count):
    return [{"turns": [f"hello {number}", f"i am number {number} of all bots here"]} for number in range(count)]


def test_the_command_degrades_every_reply_and_repeats_itself(tmp_path):
    file = write_lines(tmp_path / "dialogues.jsonl", *make_rows(8), {"turns": []})
    outputs = [tmp_path / f"{name}.jsonl.gz" for name in ("one", "two", "other")]
    for output, seed in zip(outputs, ("1", "1", "2"), strict=True):
        invoke(app, ["distort", str(file), "--output", str(output), "--seed", seed, "--count", "5"])
    assert outputs[0].read_bytes() == outputs[1].read_bytes() != outputs[2].read_bytes()
    rows = [json.loads(line) for line in gzip.decompress(outputs[0].read_bytes()).splitlines()]
    assert len(rows) == 5
    assert all(row["degraded"] and row["system"] == "degraded" for row in rows)
    assert [row["turns"][0]["text"] for row in rows] == [f"hello {number}" for number in range(5)]
    assert all(f"number {number} " not in row["turns"][1]["text"] for number, row in enumerate(rows))
    few = tmp_path / "few.jsonl"
    CliRunner().invoke(app, ["distort", str(file), "--output", str(few), "--seed", "1", "--count", "2"])
    assert [json.loads(line) for line in few.read_text().splitlines()] == rows[:2]


def test_a_corpus_that_cannot_be_used_is_refused_and_nothing_is_overwritten(tmp_path):
    file = write_lines(tmp_path / "dialogues.jsonl", *make_rows(2))
    with pytest.raises(BadFileError, match="needs three dialogues"):
        read_corpus(file)
    wrong = {"turns": [{"speaker": "bot", "text": "a"}]}
    with pytest.raises(BadFileError, match=r"line 4: turns\.0\.speaker: must be user or system"):
        read_corpus(write_lines(tmp_path / "wrong.jsonl", *make_rows(3), wrong))
    invoke(app, ["distort", str(file), "--output", str(file)], code=2)
