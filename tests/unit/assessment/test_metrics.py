"""Metrics against people: a metric that knows the truth, one that knows the opposite, and one that knows nothing."""

import csv
import json
import math

import numpy as np
import pytest
from simulate_reports import simulate_study as make_study
from support.exporter_data import OracleScorer
from support.fakes import engine_of, loaded_fake
from support.files import invoke
from turnscore_assessment.agreement import scoring
from turnscore_assessment.analysis.metrics import MetricColumn, compare_metrics, measure_metrics, read_columns
from turnscore_assessment.commands.main import app
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import compute_pearson, compute_spearman, williams_test
from turnscore_assessment.ratings.rating_file import RatedDialogueTurn, RatingFile, write_ratings
from turnscore_assessment.ratings.scoring import judge_study

TRUTH = {"A": 80.0, "B": 65.0, "C": 50.0, "D": 35.0, "E": 20.0}


@pytest.fixture(scope="module")
def ratings():
    """Each system's turn ends with its true quality, which the oracle reads."""
    study = make_study(TRUTH, workers=20)
    rows = []
    for row in study.dialogues:
        truth = TRUTH.get(row.system, 5.0)
        said = [("user", "how are you"), ("system", " "), ("system", f"well {int(truth)}")]
        turns = tuple(RatedDialogueTurn(speaker=who, text=text) for who, text in said)
        rows.append(row.model_copy(update={"turns": turns, "scores": {"recorded": truth / 10}}))
    return RatingFile(study.description, rows)


@pytest.fixture
def oracle(monkeypatch):
    monkeypatch.setattr(scoring, "open_engine", lambda _: engine_of({"oracle": loaded_fake(OracleScorer(), "oracle")}))


def column(name, values):
    return MetricColumn(name=name, source="here", values=np.asarray(values, dtype=np.float64))


def test_a_metric_that_knows_the_truth_is_told_from_its_opposite(ratings):
    study = judge_study(ratings)
    truth = np.array([TRUTH.get(row.system, 0.0) for row in ratings.dialogues])
    noise = np.random.default_rng(0).normal(size=len(truth))
    columns = [column("truth", truth), column("opposite", -truth), column("noise", noise)]
    measured = measure_metrics(study, columns, 100, 0)
    known, opposite, nothing = measured
    assert known.systems["overall"].pearson.value > 0.99
    assert opposite.systems["overall"].pearson.value == pytest.approx(-known.systems["overall"].pearson.value)
    assert known.systems["repetitive"].spearman.value == 1
    assert known.dialogues.pearson.value > 0.7
    assert math.isnan(known.dialogues.within_systems.value)
    assert nothing.dialogues.pearson.low < 0 < nothing.dialogues.pearson.high
    [pair] = [pair for pair in compare_metrics(study, measured) if (pair.first, pair.second) == ("truth", "noise")]
    assert pair.found.t > 3
    assert pair.found.p < 0.1  # of five systems


def test_only_ordinary_dialogues_of_workers_who_pass_count(ratings):
    study = judge_study(ratings)
    values = np.where(study.chosen, study.means, 1e9)
    [measured] = measure_metrics(study, [column("people", values)], 50, 0)
    assert measured.systems["overall"].pearson.value == pytest.approx(1)
    assert measured.systems["overall"].pearson.low == pytest.approx(1)  # both sides drawn alike
    assert measured.dialogues.dialogues == int(study.chosen.sum())
    assert measured.dialogues.pearson.value == pytest.approx(1)
    assert measured.dialogues.within_systems.value == pytest.approx(1)


def test_a_column_by_system_has_no_dialogues(ratings, tmp_path):
    file = tmp_path / "systems.csv"
    file.write_text("system,bleu\nA,1\nB,3\nC,2\nD,5\n")
    study = judge_study(ratings)
    [measured] = measure_metrics(study, read_columns(file, ratings), 50, 0)
    assert measured.dialogues is None
    assert list(measured.means) == ["A", "B", "C", "D"]
    people = study.sums.average(study.sums.everyone)[:4, -1]
    assert measured.systems["overall"].spearman.value == pytest.approx(compute_spearman([1, 3, 2, 5], people))


WRONG_SCORES = [
    ("score\n1\n", "line 1: has none of the columns line, dialogue, system"),
    ("line,x\n2,inf\n", "line 2: x: 'inf' is not a number"),
    ("line,x\n2,1\n2,1\n", "line 3: line: '2' was already used"),
    ("\ufeffsystem,x\nZ,1\n", "system: the ratings have no 'Z'"),
    ("syst\xe8me,x\nZ,1\n", "scores.csv, line 1: cannot be read"),
]


@pytest.mark.parametrize(("content", "reason"), WRONG_SCORES)
def test_a_wrong_file_of_scores_is_named(ratings, tmp_path, content, reason):
    file = tmp_path / "scores.csv"
    file.write_text(content, encoding="latin-1" if "\xe8" in content else "utf-8")
    with pytest.raises(BadFileError, match=reason):
        read_columns(file, ratings)


@pytest.mark.usefixtures("oracle")
def test_the_command_asks_scorers_and_keeps_what_they_say(ratings, tmp_path):
    file, kept, out = tmp_path / "ratings.jsonl.gz", tmp_path / "kept.csv", tmp_path / "out"
    write_ratings(file, ratings)
    words = ["metrics", str(file), "--rounds", "20"]
    asked = ["--scorer", "oracle", "--bundle", "oracle", "--part", "worse", "--keep", str(kept), "--output", str(out)]
    done = invoke(app, [*words, *asked])
    found = json.loads((out / "metrics.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    named = {metric["name"]: metric for metric in found["metrics"]}
    assert [name for name in named if not named[name]["is_baseline"]] == ["oracle", "oracle: worse", "recorded"]
    assert named["oracle"]["systems"]["overall"]["pearson"]["value"] > 0.99
    assert named["oracle: worse"]["systems"]["overall"]["pearson"]["value"] < -0.99
    assert named["oracle"]["means"]["A"] == pytest.approx(0.8)
    assert "words per user turn" in named
    assert "oracle: r = " in done.output
    measured = list(csv.DictReader((out / "metrics.csv").read_text().splitlines()))
    assert float(measured[0]["systems overall pearson"]) > 0.99
    rows = list(csv.DictReader(kept.read_text().splitlines()))
    assert {row["system"] for row in rows} == set(TRUTH)
    invoke(app, [*words, str(kept), "--output", str(tmp_path / "again")])
    second = json.loads((tmp_path / "again" / "metrics.json").read_text())
    assert second["metrics"][0]["systems"] == named["oracle"]["systems"]


@pytest.mark.usefixtures("oracle")
def test_the_command_says_what_it_cannot_do(ratings, tmp_path):
    file, bare = tmp_path / "ratings.jsonl", tmp_path / "bare.jsonl"
    write_ratings(file, ratings)
    rows = [row.model_copy(update={"turns": (), "scores": {}}) for row in ratings.dialogues]
    write_ratings(bare, RatingFile(ratings.description, rows))
    cases = [
        ([str(bare)], "there is no metric: give scorers or files of scores"),
        ([str(bare), "--scorer", "oracle", "--bundle", "oracle"], "no rated dialogue has `turns` to score"),
        ([str(file), "--scorer", "fed", "--bundle", "oracle"], "no scorer 'fed' is loaded"),
        ([str(file), "--scorer", "oracle", "--bundle", "oracle", "--part", "x"], "no scorer has a part 'x'"),
    ]
    for words, reason in cases:
        done = invoke(app, ["metrics", *words, "--output", str(tmp_path / "out")], code=1)
        assert reason in done.stderr
    invoke(app, ["metrics", str(file), "--url", "http://x", "--bundle", "b"], code=2)


def test_williams_is_steigers():
    """r12 = .4, r13 = .3, r23 = .5, n = 103 (Steiger 1980) on columns built to have these correlations."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(103, 3)))[0]
    basis -= basis.mean(axis=0)
    basis = np.linalg.qr(basis)[0]
    wanted = np.linalg.cholesky(np.array([[1, 0.4, 0.3], [0.4, 1, 0.5], [0.3, 0.5, 1]]))
    people, first, second = wanted @ basis.T
    assert compute_pearson(people, first) == pytest.approx(0.4)
    found = williams_test(first, second, people)
    k = 1 - 0.4**2 - 0.3**2 - 0.5**2 + 2 * 0.4 * 0.3 * 0.5
    expected = 0.1 * math.sqrt(102 * 1.5 / (2 * k * 102 / 100 + 0.35**2 * 0.5**3))
    assert found.t == pytest.approx(expected)
