"""Ratings files: what is read comes back, and what is wrong is named by line and field."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.ratings import rating_file
from turnscore_assessment.ratings.rating_file import build_table, read_ratings, write_ratings

STUDY: dict[str, Any] = {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}
ROW: dict[str, Any] = {"worker": "w", "hit": "h", "position": 0, "system": "A", "ratings": {"fun": 70, "dull": 10}}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ratings.jsonl"


def test_what_is_written_is_read_again_and_packed_the_same_each_time(file: Path, tmp_path: Path) -> None:
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]
    timed = {**ROW, "position": 1, "submitted_at": "2026-11-22T08:00:00+01:00", "seconds": 12.5, "turns": turns}
    read = read_ratings(write(file, STUDY, ROW, {**timed, "scores": {"quality": 0.5}}))
    packed = tmp_path / "again.jsonl.gz"
    write_ratings(packed, read)
    before = packed.read_bytes()
    write_ratings(packed, read_ratings(packed))
    assert read_ratings(packed) == read
    assert packed.read_bytes() == before


def test_negative_criteria_are_reversed_within_their_range(file: Path) -> None:
    table = build_table(read_ratings(write(file, STUDY, ROW)))
    assert table.ratings.tolist() == [[70, 90]]


def test_the_degraded_system_is_none_of_the_systems(file: Path) -> None:
    broken = {**ROW, "position": 1, "system": "broken", "degraded": True}
    table = build_table(read_ratings(write(file, STUDY, ROW, broken, {**ROW, "worker": "v"})))
    assert table.systems == ["A"]
    assert table.is_degraded.tolist() == [False, True, False]
    assert np.unique(table.assignment_of).size == 2
    assert table.controlling.tolist() == [0]


def test_a_study_larger_than_memory_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_ratings(write(file, STUDY, ROW, {**ROW, "position": 1, "system": "B"}))
    monkeypatch.setattr(rating_file, "MOST_CELLS", 3)
    with pytest.raises(AssessmentError, match="1 workers, 2 systems and 2 criteria are too many"):
        build_table(read)
    monkeypatch.setattr(rating_file, "MOST_SYSTEMS", 1)
    with pytest.raises(AssessmentError, match="there are 2 systems; at most 1"):
        build_table(read)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({**ROW, "position": 1, "ratings": {"fun": 101, "dull": 0}}, "ratings.fun: 101 is not within 0 and 100"),
        ({**ROW, "position": 1, "ratings": {"fun": 1}}, "ratings.dull: is missing"),
        ({**ROW, "position": 1, "ratings": {"fun": 1, "dull": 1, "x": 1}}, "ratings.x: is not a criterion"),
        (ROW, "position: this worker's HIT has a dialogue at position 0 already, in line 2"),
        ({**ROW, "position": 1, "study": "t"}, "study: is 't', but the first line describes 's'"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(file: Path, line: Any, reason: str) -> None:
    with pytest.raises(BadFileError) as raised:
        read_ratings(write(file, STUDY, ROW, line))
    assert raised.value.line == 3
    assert str(raised.value).startswith(f"{file}, line 3: {reason}")


@pytest.mark.parametrize(
    ("study", "reason"),
    [
        (ROW, "study: field required (the first line must describe the study)"),
        ({**STUDY, "criteria": [{"name": "fun"}, {"name": "fun"}]}, "two criteria are called 'fun'"),
        ({**STUDY, "criteria": [{"name": "fun", "low": 5, "high": 5}]}, "criteria.0: low (5) must be below high (5)"),
    ],
)
def test_a_wrong_first_line_is_named_with_its_field(file: Path, study: Any, reason: str) -> None:
    with pytest.raises(BadFileError) as raised:
        read_ratings(write(file, study, ROW))
    assert str(raised.value).startswith(f"{file}, line 1: {reason}")


def test_a_file_without_ratings_of_a_system_is_refused(file: Path) -> None:
    for lines, reason in [
        ([], "is empty"),
        ([STUDY], "has no rated dialogue"),
        ([STUDY, {**ROW, "degraded": True}], "degraded: every system is"),
        ([STUDY, ROW, {**ROW, "position": 1, "degraded": True}], "degraded: system 'A' is degraded in some lines"),
    ]:
        with pytest.raises(BadFileError, match=reason):
            read_ratings(write(file, *lines))
