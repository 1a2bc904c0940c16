"""Worker statistics, quality control, scores, tests, replications and reports, on studies made up here."""

import csv
import json
import math
import re

import numpy as np
import pytest
from scipy import stats
from simulate_reports import simulate_study as make_study
from support.files import invoke
from turnscore_assessment.analysis import study_report
from turnscore_assessment.analysis.replication import compare_studies
from turnscore_assessment.analysis.study_report import build_page, build_report, measure_pairs
from turnscore_assessment.commands.main import app
from turnscore_assessment.errors import TooFewError
from turnscore_assessment.figures import bound_by_fisher, find_interval, find_resampled_p, jsonable
from turnscore_assessment.ratings.rating_file import (
    RatedDialogue,
    RatingFile,
    StudyDescription,
    build_table,
    measure_workers,
    standardize,
    write_ratings,
)
from turnscore_assessment.ratings.scoring import (
    ControlVerdict,
    choose_rows,
    compare_ranks,
    control_quality,
    judge_study,
    resample_systems,
    sum_values,
)
from turnscore_assessment.rendering import write_report

TRUTH = {"A": 75.0, "B": 60.0, "C": 60.0, "D": 30.0}


def build(*rows):
    """Rows of (worker, system, fun, dull); the system `bad` is degraded."""
    criteria = [{"name": "fun"}, {"name": "dull", "direction": "negative"}]
    dialogues = [
        RatedDialogue(worker=worker, hit="h", system=name, degraded=name == "bad", ratings={"fun": fun, "dull": dull})
        for worker, name, fun, dull in rows
    ]
    return RatingFile(StudyDescription.model_validate({"study": "s", "criteria": criteria}), dialogues)


def test_a_workers_statistics_are_over_all_criteria_and_the_degraded_system():
    table = build_table(build(("w", "A", 80, 20), ("w", "bad", 10, 50), ("v", "A", 40, 40)))
    workers = dict(zip(table.workers, zip(*measure_workers(table), strict=True), strict=True))
    assert workers["w"] == pytest.approx((np.mean([80, 80, 10, 50]), np.std([80, 80, 10, 50], ddof=1)))
    assert standardize(table)[0] == pytest.approx((80 - workers["w"][0]) / (workers["w"][1] + 1e-6))


def test_workers_pass_who_rate_the_degraded_system_lower():
    rows = [(worker, f"S{number}", 60.0 + number, 10.0) for worker in ("earnest", "tired") for number in range(6)]
    rows += [("earnest", "bad", 5.0 + number, 90.0) for number in range(3)]
    rows += [("tired", "bad", 62.0 + number, 90.0) for number in range(3)]
    rows += [("constant", "S1", 50.0, 50.0), ("constant", "bad", 50.0, 50.0), ("new", "S1", 50.0, 40.0)]
    outcomes = {each.worker: each for each in control_quality(build_table(build(*rows)))}
    assert {name: each.verdict for name, each in outcomes.items()} == {
        "earnest": ControlVerdict.PASSED,
        "tired": ControlVerdict.NOT_LOWER,
        "constant": ControlVerdict.CONSTANT,
        "new": ControlVerdict.NOT_YET,
    }
    degraded, ordinary = [5.0, 6.0, 7.0], [60.0, 61, 62, 63, 64, 65]
    assert outcomes["earnest"].p == stats.mannwhitneyu(degraded, ordinary, alternative="less").pvalue
    assert math.isnan(outcomes["new"].p)
    assert (outcomes["earnest"].degraded_ratings, outcomes["earnest"].ordinary_ratings) == (3, 6)


def test_the_study_chooses_the_criteria_and_the_p_of_its_quality_control():
    rows = [("w", f"S{number}", 50.0, 60.0 + number) for number in range(6)]
    rows += [("w", "bad", 50.0, 90.0 + number) for number in range(3)]
    study = build(*rows)
    assert control_quality(build_table(study))[0].verdict is ControlVerdict.NOT_LOWER
    described = study.description.model_dump()
    described["criteria"][1]["in_quality_control"] = True
    described["criteria"][0]["in_quality_control"] = False
    chosen = RatingFile(StudyDescription.model_validate(described), study.dialogues)
    [outcome] = control_quality(build_table(chosen))
    assert outcome.passes
    described["quality_control_p"] = outcome.p
    strict = RatingFile(StudyDescription.model_validate(described), study.dialogues)
    assert not control_quality(build_table(strict))[0].passes


def test_a_simulated_study_gives_the_true_order_and_leaves_out_who_guesses():
    study = make_study(TRUTH, workers=30, guessers=10, dialogues_each=2)
    report = build_report(study, 300, 0)
    passing = {worker.worker for worker in control_quality(build_table(study)) if worker.passes}
    assert len(passing) == report.passing
    assert len([name for name in passing if int(name.split("-")[1]) >= 30]) <= 2
    assert len(passing) >= 28
    order = [system.system for system in report.systems]
    assert (order[0], order[3]) == ("A", "D")
    clear = {(pair.first, pair.second) for pair in report.pairs if pair.p_holm < 0.05}
    assert clear >= {("A", "B"), ("A", "C"), ("A", "D"), ("B", "D"), ("C", "D")}
    [even] = [pair for pair in report.pairs if {pair.first, pair.second} == {"B", "C"}]
    assert even.p_holm >= even.p_two_sided > 0.05
    assert even.difference.low < 0 < even.difference.high
    assert report.agreement["passed"].median > 0.5 > abs(report.agreement["failed"].median)


def test_an_interval_of_resamples_and_its_p_never_say_the_opposite():
    generator = np.random.default_rng(0)
    verdicts = []
    for place in np.linspace(-3, 3, 301):
        drawn = generator.normal(place, 1, 200)
        interval, p = find_interval(place, drawn, 9), find_resampled_p(drawn, 9)
        verdicts.append(p < 0.05)
        assert verdicts[-1] == (not interval.low <= 0 <= interval.high)
    assert 50 < sum(verdicts) < 250
    assert math.isnan(find_resampled_p([], 9))
    for pair in build_report(make_study(TRUTH, workers=12), 200, 0).pairs:
        assert (pair.p_workers < 0.05) == (not pair.difference.low <= 0 <= pair.difference.high)


def test_resampling_draws_whole_workers_and_repeats_itself():
    table = build_table(make_study({"A": 70, "B": 50}, workers=20, noise=4))
    chosen = choose_rows(table, np.ones(20, dtype=np.bool_))
    sums = sum_values(table, table.ratings, chosen)
    draws = resample_systems(sums, 120, seed=3)
    assert np.array_equal(draws, resample_systems(sums, 120, seed=3))
    of_first = chosen & (table.system_of == 0)
    workers = np.array([table.ratings[of_first & (table.worker_of == worker)].mean() for worker in range(20)])
    assert draws[:, 0, -1].std() == pytest.approx(workers.std() / np.sqrt(20), rel=0.25)
    assert len(resample_systems(sum_values(table, table.ratings, chosen & (table.worker_of < 2)), 50, seed=0)) == 0


def test_values_that_differ_by_rounding_are_ties():
    """The mean of the same ratings in another order: a tie, which a bare Mann-Whitney test does not see."""
    left = np.array([0.1 + 0.2, 0.7, 0.9, 1.4, 2.0, 2.2, 3.1, 3.3, 4.0])
    right = np.array([0.3, 0.7 + 1e-16, 0.8, 1.0, 1.4 - 2e-16, 1.6, 2.0, 2.2, 2.7])
    tied = [0.3, 0.7, 0.9, 1.4, 2.0, 2.2, 3.1, 3.3, 4.0], [0.3, 0.7, 0.8, 1.0, 1.4, 1.6, 2.0, 2.2, 2.7]
    for scale in (1.0, 1e-8, 1e8):
        found = compare_ranks(left * scale, right * scale, "two-sided")
        assert found == stats.mannwhitneyu(*tied, alternative="two-sided", method="auto").pvalue
    assert stats.mannwhitneyu(left, right).pvalue != found


APART = {"A": 80.0, "B": 65.0, "C": 50.0, "D": 35.0}


def test_two_studies_of_the_same_systems_say_the_same():
    found = compare_studies(make_study(APART, seed=1), make_study(APART, seed=2), 200, 0)
    assert found.columns["z"]["overall"].pearson.value > 0.97
    assert list(found.columns["z"]) == ["overall", "interesting", "fun", "fluent", "repetitive"]
    assert found.conclusions[0].share == 1
    assert found.curve[-1].workers == found.workers[0]
    assert [point.workers for point in found.curve[:-1]] == [5, 10, 20]
    assert found.curve[0].low <= found.curve[0].median <= 1
    assert found == compare_studies(make_study(APART, seed=1), make_study(APART, seed=2), 200, 0)


def test_only_what_both_have_is_compared():
    found = compare_studies(make_study({**APART, "E": 20.0}), make_study({**APART, "F": 20.0}), 20, 0)
    assert list(found.systems) == list(APART)
    assert found.left_out == ["system 'E', which only simulated has", "system 'F', which only simulated has"]
    with pytest.raises(TooFewError, match="3 systems that both studies have; there are 2"):
        compare_studies(make_study({"A": 70.0, "B": 60.0}), make_study({"A": 70.0, "B": 60.0}), 20, 0)


def test_fishers_interval_is_the_textbooks():
    found = bound_by_fisher(0.969, 10)
    assert (found.low, found.high) == pytest.approx((0.870, 0.993), abs=0.0005)
    x = np.random.default_rng(0).normal(size=(2, 12))
    expected = stats.pearsonr(*x).confidence_interval()
    assert (bound_by_fisher(stats.pearsonr(*x).statistic, 12).low) == pytest.approx(expected.low)
    assert math.isnan(bound_by_fisher(1.0, 10).low)
    assert math.isnan(bound_by_fisher(0.5, 3).low)


def test_the_command_writes_page_json_and_csv(tmp_path):
    files = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for seed, file in enumerate(files):
        write_ratings(file, make_study({**APART, "<b>": 10.0}, seed=seed))
    out = tmp_path / "out"
    done = invoke(app, ["replicate", *map(str, files), "--output", str(out), "--rounds", "20"])
    assert "pairs of systems" in done.output
    found = json.loads((out / "replication.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert found["systems"] == ["<b>", *APART]
    assert found["conclusions"][0]["share"] == 1
    rows = list(csv.DictReader((out / "replication.csv").read_text().splitlines()))
    assert len(rows) == 10
    assert float(rows[0]["pearson"]) == found["columns"]["z"]["overall"]["pearson"]["value"]
    assert "<script" not in (out / "replication.html").read_text()


HOSTILE = "=<script>alert(1)</script>"
NAMED = {HOSTILE: 75.0, "B": 60.0, "C": 55.0}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    report = build_report(make_study(NAMED, guessers=4), 50, 0)
    csv = {"systems": report.systems, "pairs": report.pairs}
    write_report(folder, "report", build_page(report, "the command"), report, csv)
    return folder


def test_the_page_holds_no_script_and_no_worker_and_asks_the_network_for_nothing(written):
    page = (written / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"""(?:src|href)\s*=(?!"#)|url\((?!#)|@import""", page)
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"<]+", page)) <= namespaces
    assert "default-src 'none'" in page
    assert page.count("<svg") == 3
    assert not any("person-" in file.read_text() for file in written.iterdir())


def test_tables_have_every_figure_without_nan_and_open_in_a_spreadsheet_as_text(written):
    report = json.loads((written / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert [system["system"] for system in report["systems"]] == list(NAMED)
    assert set(report["pairs"][0]) >= {"p_better", "p_two_sided", "p_holm", "p_benjamini_hochberg", "difference"}
    assert [worker["worker"] for worker in report["workers"]] == [str(number) for number in range(1, 29)]
    assert report["effort"]["passed"]["minutes_per_dialogue"] == pytest.approx(2.5)
    assert report["effort"]["passed"]["words_per_dialogue"] == 4
    systems = list(csv.DictReader((written / "systems.csv").read_text().splitlines()))
    pairs = list(csv.DictReader((written / "pairs.csv").read_text().splitlines()))
    assert systems[0]["system"] == f"'{HOSTILE}"
    low, value, high = (float(systems[0][f"scores overall{end}"]) for end in (" low", "", " high"))
    assert low < value < high
    assert (len(systems), len(pairs)) == (3, 3)
    assert pairs[0]["outcomes p<0.05"] == "better"


def test_the_smallest_study_is_reported_without_intervals(tmp_path):
    study = make_study({"A": 50.0}, workers=1, with_degraded=False)
    report = build_report(study, 50, 0)
    assert math.isnan(report.systems[0].scores["overall"].low)
    assert jsonable(report)["systems"][0]["scores"]["overall"]["low"] is None
    assert len(write_report(tmp_path, "report", build_page(report, "c"), report)) == 3


def test_where_no_worker_passes_each_is_listed_with_the_reason_and_raw_means_stay(tmp_path):
    ratings = tmp_path / "ratings.jsonl"
    study = make_study({"A": 50.0, "B": 50.0}, workers=0, guessers=2)
    write_ratings(ratings, study)
    done = invoke(app, ["report", str(ratings), "--output", str(tmp_path / "out"), "--rounds", "20"])
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


def test_of_many_pairs_of_assignments_a_bounded_number_is_correlated(monkeypatch):
    study = judge_study(make_study(NAMED, workers=60))
    assert measure_pairs(study)[True].pairs > 1500
    monkeypatch.setattr(study_report, "MOST_PAIRS", 400)
    assert 300 < measure_pairs(study)[True].pairs <= 400
