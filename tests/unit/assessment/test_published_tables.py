"""The tables of Ji et al. (ACL 2022), from its ratings as released: docs/studies.md says what cannot come out."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.files import find_data
from turnscore_assessment.analysis.replication import compare_studies
from turnscore_assessment.analysis.study_report import build_report
from turnscore_assessment.files import read_rows
from turnscore_assessment.ratings.rating_file import build_table, read_published
from turnscore_assessment.ratings.scoring import control_quality

PUBLISHED = json.loads((Path(__file__).parent / "ji2022.json").read_text())
FREE_1, FREE_2, ICE_BREAKER = "free_run1", "free_run2", "icebreaker"


def find_run(run):
    passed, failed = find_data(f"human_assessment/{run}_pass.jsonl.gz", f"human_assessment/{run}_fail.jsonl.gz")
    return passed, failed


@cache
def read_run(run):
    return read_published(find_run(run), run)


@cache
def report_on(run):
    return build_report(read_run(run), 20, 0)


def compare(run, table, kind):
    """The largest difference of any cell, and of an overall score, from a published table."""
    systems = {system.system: getattr(system, kind) for system in report_on(run).systems}
    assert set(systems) == set(PUBLISHED[table])
    gaps = {
        (name, column): abs(systems[name][column].value - published)
        for name, row in PUBLISHED[table].items()
        for column, published in zip(PUBLISHED["columns"], row[1:], strict=True)
    }
    assert len(gaps) == 80
    return max(gaps.values()), max(gap for (_, column), gap in gaps.items() if column == "overall")


@pytest.mark.parametrize(
    ("run", "workers", "passing"), [(FREE_1, 248, 173), (FREE_2, 246, 138), (ICE_BREAKER, 246, 169)]
)
def test_the_quality_control_passes_exactly_the_published_workers(run, workers, passing):
    files = find_run(run)
    published = [{record["worker"] for _, record in read_rows(file)} for file in files]
    outcomes = {worker.worker: worker.passes for worker in control_quality(build_table(read_run(run)))}
    assert (len(outcomes), sum(outcomes.values())) == (workers, passing)
    assert {name for name, passes in outcomes.items() if passes} == published[0]
    assert {name for name, passes in outcomes.items() if not passes} == published[1]


def test_table_3_lists_the_systems_best_first_with_their_ratings():
    counts = {system.system: system.ratings for system in report_on(FREE_1).systems}
    assert list(counts.items()) == [(name, row[0]) for name, row in PUBLISHED["table3"].items()]


TABLES = [
    (FREE_1, "table3", "scores", 0.001, 0.001),
    (FREE_1, "table10_free1", "raw", 0.01, 0.01),
    # runs that lost HITs
    (FREE_2, "table9", "scores", 0.024, 0.0081),
    (ICE_BREAKER, "table4", "scores", 0.0215, 0.0065),
    (FREE_2, "table10_free2", "raw", 0.86, 0.58),
    (ICE_BREAKER, "table11", "raw", 0.65, 0.26),
]


@pytest.mark.parametrize(("run", "table", "kind", "any_cell", "overall"), TABLES)
def test_every_cell_of_a_table_comes_out(run, table, kind, any_cell, overall):
    found = compare(run, table, kind)
    assert found[0] < any_cell
    assert found[1] < overall


def test_table_8_comes_out_from_raw_scores():
    names = PUBLISHED["columns"]
    found = report_on(FREE_1).criteria
    assert len(found) == len(names) * (len(names) - 1) // 2
    for each in found:
        first, second = names.index(each.first), names.index(each.second)
        assert each.pearson == pytest.approx(PUBLISHED["table8"][first][second], abs=0.001)
        assert each.spearman == pytest.approx(PUBLISHED["table8"][second][first], abs=0.001)


def test_raters_who_pass_agree_and_those_who_fail_do_not():
    """Figure 2: the peak between .6 and .7; the medians are those of the released ratings."""
    found = report_on(FREE_1).agreement
    assert (found["passed"].pairs, found["failed"].pairs) == (680, 115)
    assert found["passed"].median == pytest.approx(0.44, abs=0.005)
    assert found["failed"].median == pytest.approx(0.04, abs=0.005)
    assert int(np.argmax(found["passed"].histogram)) == 16  # .6 to .7
    assert found["passed"].ordinary_median == pytest.approx(0.30, abs=0.005)
    assert max(found["failed"].histogram) <= 11


def test_differences_that_survive_correction():
    pairs = report_on(FREE_1).pairs
    names = ("p_two_sided", "p_holm", "p_benjamini_hochberg")
    assert [sum(getattr(pair, name) < 0.05 for pair in pairs) for name in names] == [34, 29, 33]
    assert sum((pair.p_better < 0.05) + (pair.p_worse < 0.05) for pair in pairs) == 36


def test_table_12_comes_out_in_words_per_chat():
    effort = report_on(FREE_1).effort
    assert (effort["passed"].words_per_dialogue, effort["failed"].words_per_dialogue) == (63, 48)
    assert (effort["passed"].ordinary_dialogues, effort["all"].ordinary_dialogues) == (1075, 1520)


@cache
def replicate(second):
    return compare_studies(read_run(FREE_1), read_run(second), 100, 0)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (FREE_2, [0.968, 0.952, 0.923, 0.897, 0.958, 0.950, 0.658, 0.937]),
        (ICE_BREAKER, [0.985, 0.968, 0.947, 0.956, 0.948, 0.981, 0.705, 0.947]),
    ],
)
def test_scores_of_two_runs_correlate_as_published(second, expected):
    """Published: .969 and .984 overall; no criterion is further off than .012."""
    found = replicate(second).columns["z"]
    assert [found[name].pearson.value for name in PUBLISHED["columns"]] == pytest.approx(expected, abs=0.0005)


def test_raw_scores_of_two_runs_correlate_as_published():
    overall = [replicate(second).columns["raw"]["overall"].pearson.value for second in (FREE_2, ICE_BREAKER)]
    assert overall == pytest.approx([0.958, 0.970], abs=0.0005)  # published: .959, .970


def test_pairs_of_systems_get_the_same_conclusions():
    """Published: 84 % at p < .1 and 82 % at p < .05 between the two free runs."""
    free = {each.threshold: (each.same, each.pairs, each.opposite) for each in replicate(FREE_2).conclusions}
    assert free == {0.1: (38, 45, 0), 0.05: (38, 45, 0)}
    ice = {each.threshold: (each.same, each.pairs, each.opposite) for each in replicate(ICE_BREAKER).conclusions}
    assert ice == {0.1: (40, 45, 0), 0.05: (40, 45, 0)}


def test_a_correlation_is_no_evidence_for_the_quality_control():
    assert replicate(FREE_2).filters == pytest.approx({"passed": 0.968, "failed": 0.908, "all": 0.968}, abs=0.001)
