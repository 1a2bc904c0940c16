"""Replication on studies made up here; the published runs are in test_published_tables.py."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.studies import make_study
from turnscore_assessment.analysis.replication import compare_studies
from turnscore_assessment.commands.main import app
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import bound_by_fisher
from turnscore_assessment.ratings.rating_file import write_ratings
from typer.testing import CliRunner

TRUTH = {"A": 80.0, "B": 65.0, "C": 50.0, "D": 35.0}


def test_two_studies_of_the_same_systems_say_the_same() -> None:
    found = compare_studies(make_study(TRUTH, seed=1), make_study(TRUTH, seed=2), 200, 0)
    assert found.columns["z"]["overall"].pearson.value > 0.97
    assert list(found.columns["z"]) == ["overall", "interesting", "fun", "fluent", "repetitive"]
    assert found.conclusions[0].share == 1
    assert found.curve[-1].workers == found.workers[0]
    assert [point.workers for point in found.curve[:-1]] == [5, 10, 20]
    assert found.curve[0].low <= found.curve[0].median <= 1
    assert found == compare_studies(make_study(TRUTH, seed=1), make_study(TRUTH, seed=2), 200, 0)


def test_only_what_both_have_is_compared() -> None:
    found = compare_studies(make_study({**TRUTH, "E": 20.0}), make_study({**TRUTH, "F": 20.0}), 20, 0)
    assert list(found.systems) == list(TRUTH)
    assert found.left_out == ["system 'E', which only simulated has", "system 'F', which only simulated has"]
    with pytest.raises(TooFewError, match="3 systems that both studies have; there are 2"):
        compare_studies(make_study({"A": 70.0, "B": 60.0}), make_study({"A": 70.0, "B": 60.0}), 20, 0)


def test_fishers_interval_is_the_textbooks() -> None:
    found = bound_by_fisher(0.969, 10)
    assert (found.low, found.high) == pytest.approx((0.870, 0.993), abs=0.0005)
    x = np.random.default_rng(0).normal(size=(2, 12))
    expected = stats.pearsonr(*x).confidence_interval()
    assert (bound_by_fisher(stats.pearsonr(*x).statistic, 12).low) == pytest.approx(expected.low)
    assert math.isnan(bound_by_fisher(1.0, 10).low)
    assert math.isnan(bound_by_fisher(0.5, 3).low)


def test_the_command_writes_page_json_and_csv(tmp_path: Path) -> None:
    files = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for seed, file in enumerate(files):
        write_ratings(file, make_study({**TRUTH, "<b>": 10.0}, seed=seed))
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["replicate", *map(str, files), "--output", str(out), "--rounds", "20"])
    assert done.exit_code == 0, done.output
    assert "pairs of systems" in done.output
    found = json.loads((out / "replication.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert found["systems"] == ["<b>", *TRUTH]
    assert found["conclusions"][0]["share"] == 1
    rows = list(csv.DictReader((out / "replication.csv").read_text().splitlines()))
    assert len(rows) == 10
    assert float(rows[0]["pearson"]) == found["columns"]["z"]["overall"]["pearson"]["value"]
    assert "<script" not in (out / "replication.html").read_text()
