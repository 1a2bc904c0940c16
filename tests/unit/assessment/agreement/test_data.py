"""Judged dialogues: what is read, what is refused and by which name."""

from pathlib import Path
from typing import Any

import pytest
from support.exporter_data import build_judged, write_judged
from turnscore_assessment.agreement.scoring import read_judged_dialogues
from turnscore_assessment.errors import BadFileError

USER = {"speaker": "user", "text": "hi"}
SYSTEM = {"speaker": "system", "text": "hello"}
DBDC3_ROW = {
    "id": "iris_1",
    "system": "IRIS",
    "turns": [
        USER,
        {**SYSTEM, "breakdown_votes": {"O": 20, "T": 5, "X": 5}},
        USER,
        {**SYSTEM, "breakdown_votes": {"O": 0, "T": 1, "X": 3}},
        SYSTEM,
        {"speaker": "system", "text": "", "breakdown_votes": {"O": 0, "T": 0, "X": 2}},
    ],
}

WRONG_ROWS = [
    ({"id": "a"}, "turns: field required"),
    ({"id": "a", "turns": [{"speaker": "bot", "text": "hi"}]}, "turns.0.speaker: "),
    ({"id": "a", "turns": [USER, {"speaker": "system"}]}, "turns.1.text: field required"),
    ({"id": "a", "turns": [USER, {**SYSTEM, "text": " "}]}, "turns: there is no system turn to score"),
    ({"id": "a", "turns": [{**SYSTEM, "quality": float("nan")}]}, "turns.0.quality: "),
    ({"id": "a", "turns": [{**USER, "quality": 1}, SYSTEM]}, "turns.0.quality: only system turns are judged"),
]

WRONG_VOTES: list[Any] = [7, {"O": 1, "T": 1, "X": -1}, {"O": 0, "T": 0, "X": 0}]


@pytest.mark.parametrize(("row", "sentence"), WRONG_ROWS)
def test_a_wrong_row_is_refused_by_file_line_and_field(tmp_path: Path, row: Any, sentence: str) -> None:
    path = write_judged(tmp_path / "file.jsonl", [build_judged(1), row])
    with pytest.raises(BadFileError) as refused:
        read_judged_dialogues(path)
    assert str(refused.value).startswith(f"{path}, line 2: {sentence}")


def test_an_id_used_twice_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="line 2: id: 'd1' was already used"):
        read_judged_dialogues(write_judged(tmp_path / "twice.jsonl", [build_judged(1), build_judged(1)]))
    with pytest.raises(BadFileError, match="no dialogue"):
        read_judged_dialogues(write_judged(tmp_path / "empty.jsonl", []))


def test_votes_become_qualities(tmp_path: Path) -> None:
    [dialogue] = read_judged_dialogues(write_judged(tmp_path / "dbdc3.jsonl", [DBDC3_ROW]))
    assert dialogue.turn_qualities == {1: 22.5 / 30, 3: 0.5 / 4, 5: 0.0}
    assert (dialogue.id, dialogue.system, len(dialogue.turns)) == ("iris_1", "IRIS", 6)


@pytest.mark.parametrize("votes", WRONG_VOTES)
def test_wrong_votes_are_refused_by_field(tmp_path: Path, votes: Any) -> None:
    row = {"id": "a", "turns": [USER, {**SYSTEM, "breakdown_votes": votes}]}
    source = write_judged(tmp_path / "dbdc3.jsonl", [row])
    with pytest.raises(BadFileError, match=r"line 1: turns\.1\.breakdown_votes[.:]"):
        read_judged_dialogues(source)


def test_the_documented_example_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "agreement.md").read_text(encoding="utf-8")
    path = tmp_path / "example.jsonl"
    path.write_text(page.partition("```json\n")[2].partition("```")[0], encoding="utf-8")
    first, second, third = read_judged_dialogues(path)
    assert (first.turn_qualities, second.turn_qualities, third.quality) == ({1: 0.9}, {2: 0.2}, 3.0)
