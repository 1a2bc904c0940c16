"""`turnscore assess convert`: what it writes, and errors of one line."""

import json
from pathlib import Path

import pytest
from support.studies import published_row
from turnscore_assessment.commands.main import app
from turnscore_assessment.ratings.rating_file import read_ratings
from typer.testing import CliRunner

RUNNER = CliRunner()


def test_convert_turns_back_what_was_reversed(tmp_path: Path) -> None:
    files = [tmp_path / "run_pass.jsonl", tmp_path / "run_fail.jsonl"]
    files[0].write_text(json.dumps(published_row("A", worker="w1", robotic=30)))
    files[1].write_text(json.dumps(published_row("QualityControl", worker="w2")))
    output = tmp_path / "run.jsonl.gz"
    done = RUNNER.invoke(app, ["convert", *map(str, files), "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert "2 rated dialogues of 2 workers" in done.output
    read = read_ratings(output)
    assert read.description.study == "run"
    assert read.dialogues[0].ratings["robotic"] == 70
    assert [dialogue.degraded for dialogue in read.dialogues] == [False, True]
    assert read.dialogues[0].topic == "dogs"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**published_row("A"), "ratings": {"fun": 1}}, "line 1: ratings: must have interesting, fun"),
        (published_row("A", fun=101), "line 1: ratings.fun: must be a number from 0 to 100"),
        ({**published_row("A"), "worker": 3}, "line 1: worker: input should be a valid string"),
    ],
)
def test_convert_names_the_line_and_the_field(tmp_path: Path, row: object, reason: str) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(json.dumps(row))
    done = RUNNER.invoke(app, ["convert", str(file), "--output", str(tmp_path / "out.jsonl")])
    assert done.exit_code == 1
    assert reason in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_convert_overwrites_nothing_it_reads(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text(json.dumps(published_row("A")))
    assert RUNNER.invoke(app, ["convert", str(file), "--output", str(file)]).exit_code == 2
