"""Judged dialogues: what is read, what is refused and by which name, and the converter."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exporter_data import build_judged, write_judged
from support.studies import make_study
from turnscore_assessment.agreement.scoring import read_judged_dialogues
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.ratings.rating_file import RatingFile, build_table, standardize, write_ratings
from turnscore_assessment.ratings.scoring import choose_rows, control_quality, find_passing
from turnscore_client._command.registry import app
from typer.testing import CliRunner

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


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_converted_votes_become_qualities_and_read_back_the_same(tmp_path: Path, suffix: str) -> None:
    source, target = write_judged(tmp_path / "dbdc3.jsonl", [DBDC3_ROW]), tmp_path / "out" / f"judged{suffix}"
    result = CliRunner().invoke(app, ["data", "convert-judged", str(source), str(target)])
    assert result.exit_code == 0, result.output
    assert "1 dialogues, 3 judged turns" in result.output
    [dialogue] = read_judged_dialogues(target)
    assert dialogue.turn_qualities == {1: 22.5 / 30, 3: 0.5 / 4, 5: 0.0}
    assert (dialogue.id, dialogue.system, len(dialogue.turns)) == ("iris_1", "IRIS", 6)
    assert read_judged_dialogues(source, "dbdc3") == [dialogue]


@pytest.mark.parametrize("votes", WRONG_VOTES)
def test_wrong_votes_are_refused_by_field(tmp_path: Path, votes: Any) -> None:
    row = {"id": "a", "turns": [USER, {**SYSTEM, "breakdown_votes": votes}]}
    source = write_judged(tmp_path / "dbdc3.jsonl", [row])
    result = CliRunner().invoke(app, ["data", "convert-judged", str(source), str(tmp_path / "out.jsonl")])
    assert result.exit_code == 1
    assert f"{source}, line 1: turns.1.breakdown_votes: " in result.output
    assert not (tmp_path / "out.jsonl").exists()


def test_the_documented_example_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "agreement.md").read_text(encoding="utf-8")
    path = tmp_path / "example.jsonl"
    path.write_text(page.partition("```json\n")[2].partition("```")[0], encoding="utf-8")
    first, second, third = read_judged_dialogues(path)
    assert (first.turn_qualities, second.turn_qualities, third.quality) == ({1: 0.9}, {2: 0.2}, 3.0)


def test_a_study_is_judged_by_the_workers_who_pass(tmp_path: Path) -> None:
    study = make_study({"A": 80.0, "B": 40.0}, workers=8, guessers=3, dialogues_each=2)
    file = tmp_path / "ratings.jsonl"
    write_ratings(file, study)
    table = build_table(study)
    chosen = choose_rows(table, find_passing(control_quality(table)))
    read = read_judged_dialogues(file, "study")
    assert [dialogue.id for dialogue in read] == [f"line {row + 2}" for row in np.flatnonzero(chosen)]
    means = standardize(table).mean(axis=1)[chosen]
    assert [dialogue.quality for dialogue in read] == pytest.approx(list(means))
    assert {dialogue.system for dialogue in read} == {"A", "B"}


def test_a_dialogue_that_several_judged_comes_once(tmp_path: Path) -> None:
    study = make_study({"A": 80.0, "B": 40.0}, workers=4, with_degraded=False)
    rows = [row.model_copy(update={"dialogue": f"of {row.system}"}) for row in study.dialogues]
    file = tmp_path / "ratings.jsonl"
    write_ratings(file, RatingFile(study.description, rows))
    read = {dialogue.id: dialogue.quality for dialogue in read_judged_dialogues(file, "study")}
    means = standardize(build_table(study)).mean(axis=1)
    of_a = [mean for mean, row in zip(means, rows, strict=True) if row.system == "A"]
    assert read["of A"] == pytest.approx(np.mean(of_a))
    assert len(read) == 2
    write_ratings(file, RatingFile(study.description, [row.model_copy(update={"dialogue": "1"}) for row in rows]))
    assert {each.id: each.quality for each in read_judged_dialogues(file, "study")} == {
        f"{name[3:]}: 1": quality for name, quality in read.items()
    }
    silent = [row.model_copy(update={"turns": ()}) for row in rows]
    write_ratings(file, RatingFile(study.description, silent))
    with pytest.raises(BadFileError, match="turns: no dialogue of a passing worker has any"):
        read_judged_dialogues(file, "study")
