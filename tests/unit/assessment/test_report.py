"""The report's files: complete, without network, without names of workers, safe to open."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import simulate_reports as simulation
from support.studies import make_study
from turnscore_assessment.analysis import study_report
from turnscore_assessment.analysis.study_report import build_page, build_report, measure_pairs
from turnscore_assessment.commands.main import app
from turnscore_assessment.figures import jsonable
from turnscore_assessment.ratings.rating_file import write_ratings
from turnscore_assessment.ratings.scoring import judge_study
from turnscore_assessment.rendering import write_report
from typer.testing import CliRunner

HOSTILE = "=<script>alert(1)</script>"
TRUTH = {HOSTILE: 75.0, "B": 60.0, "C": 55.0}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    report = build_report(make_study(TRUTH, guessers=4), 50, 0)
    csv = {"systems": report.systems, "pairs": report.pairs}
    write_report(folder, "report", build_page(report, "the command"), report, csv)
    return folder


def test_the_page_holds_no_script_and_asks_the_network_for_nothing(written: Path) -> None:
    page = (written / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(?:src|href)\s*=(?!"#)|url\((?!#)|@import""", page)
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"<]+", page)) <= namespaces
    assert "default-src 'none'" in page
    assert page.count("<svg") == 3


def test_no_file_names_a_worker(written: Path) -> None:
    for file in written.iterdir():
        assert "person-" not in file.read_text()


def test_json_has_every_figure_and_no_nan(written: Path) -> None:
    report = json.loads((written / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert [system["system"] for system in report["systems"]] == list(TRUTH)
    assert set(report["systems"][0]["scores"]) == {"overall", "interesting", "fun", "fluent", "repetitive"}
    assert set(report["pairs"][0]) >= {"p_better", "p_two_sided", "p_holm", "p_benjamini_hochberg", "difference"}
    assert [worker["worker"] for worker in report["workers"]] == [str(number) for number in range(1, 29)]
    assert report["effort"]["passed"]["minutes_per_dialogue"] == pytest.approx(2.5)
    assert report["effort"]["passed"]["words_per_dialogue"] == 4


def test_tables_open_in_a_spreadsheet_as_text(written: Path) -> None:
    systems = list(csv.DictReader((written / "systems.csv").read_text().splitlines()))
    pairs = list(csv.DictReader((written / "pairs.csv").read_text().splitlines()))
    assert systems[0]["system"] == f"'{HOSTILE}"
    assert (
        float(systems[0]["scores overall low"])
        < float(systems[0]["scores overall"])
        < float(systems[0]["scores overall high"])
    )
    assert (len(systems), len(pairs)) == (3, 3)
    assert pairs[0]["outcomes p<0.05"] == "better"


def test_the_smallest_study_is_reported_without_intervals(tmp_path: Path) -> None:
    study = make_study({"A": 50.0}, workers=1, with_degraded=False)
    report = build_report(study, 50, 0)
    assert math.isnan(report.systems[0].scores["overall"].low)
    assert jsonable(report)["systems"][0]["scores"]["overall"]["low"] is None
    assert len(write_report(tmp_path, "report", build_page(report, "c"), report)) == 3


def test_where_no_worker_passes_each_is_listed_with_the_reason_and_raw_means_stay(tmp_path: Path) -> None:
    ratings = tmp_path / "ratings.jsonl"
    study = make_study({"A": 50.0, "B": 50.0}, workers=0, guessers=2)
    write_ratings(ratings, study)
    done = CliRunner().invoke(app, ["report", str(ratings), "--output", str(tmp_path / "out"), "--rounds", "20"])
    assert done.exit_code == 0, done.output
    assert "no system is scored" in done.output
    assert "0 of 2 workers pass the quality control" in done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert "--rounds 20" in report["command"]
    assert (report["systems"], report["pairs"]) == ([], [])
    assert {worker["verdict"] for worker in report["workers"]} == {"rates the degraded system no lower"}
    [one] = [each for each in report["raw"] if each["system"] == "A"]
    given = [each.ratings["fun"] for each in study.dialogues if each.system == "A"]
    assert (one["dialogues"], one["means"]["fun"]) == (len(given), pytest.approx(np.mean(given)))
    assert "Every worker" in (tmp_path / "out" / "report.html").read_text()


def test_intervals_hold_the_truth_about_as_often_as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/studies.md has the figures of many studies; of forty a share is known to some three points."""
    monkeypatch.setattr(simulation, "TRUTH_WORKERS", 300)
    scores, differences = simulation.measure_coverage(40, 20, 200)
    assert 0.87 < scores <= 1
    assert 0.87 < differences <= 1


def test_of_many_pairs_of_assignments_a_bounded_number_is_correlated(monkeypatch: pytest.MonkeyPatch) -> None:
    study = judge_study(make_study(TRUTH, workers=60))
    assert measure_pairs(study)[True].pairs > 1500
    monkeypatch.setattr(study_report, "MOST_PAIRS", 400)
    assert 300 < measure_pairs(study)[True].pairs <= 400
