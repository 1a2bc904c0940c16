"""Differences of two systems, and sequential comparison: honest p-values and intervals, whatever is drawn."""

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from scipy import stats
from support.files import invoke, write_lines
from turnscore_assessment.comparison import sequential
from turnscore_assessment.comparison.comparison import measure_length_effect
from turnscore_assessment.comparison.difference import (
    find_needed_dialogues,
    find_power,
    find_smallest_difference,
    measure_difference,
)
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_client._command.registry import app

GENERATOR = np.random.default_rng(11)
A = GENERATOR.gamma(2, 1, 60) + 0.8
B = GENERATOR.gamma(2, 1, 50)


def test_p_value_and_interval_are_near_welchs_where_that_holds():
    x, y = np.random.default_rng(1).normal(0.4, 1, (2, 300)) * [[1], [0.5]]
    found = measure_difference(x, y, paired=False, rounds=4000)
    welch = stats.ttest_ind(x, y, equal_var=False)
    interval = welch.confidence_interval()
    assert found.p_value == pytest.approx(welch.pvalue, abs=0.02)
    assert (found.difference.low, found.difference.high) == pytest.approx((interval.low, interval.high), abs=0.02)


DRAWS = {
    "normal": lambda generator, count: generator.normal(0, 1, count),
    "beta": lambda generator, count: generator.beta(0.6, 3, count),
    "ties": lambda generator, count: generator.integers(0, 3, count).astype(float),
    "unequal": lambda generator, count: generator.normal(0, generator.uniform(0.2, 4), count),
}


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_interval_excludes_0_exactly_where_p_is_below_the_level(draw, paired):
    generator = np.random.default_rng(3)
    decided = 0
    for seed in range(60):
        sizes = generator.integers(6, 25, 2)
        x, y = draw(generator, sizes[0]), draw(generator, sizes[int(not paired)])
        x = x + 0.7 * y.std()
        found = measure_difference(x, y, paired=paired, rounds=300, seed=seed)
        assert found.p_value is not None
        assert found.difference.low <= found.difference.value <= found.difference.high
        assert (found.difference.low > 0 or found.difference.high < 0) == (found.p_value < 0.05)
        decided += found.p_value < 0.05
    assert 0 < decided < 60


def test_few_dialogues_are_tested_by_all_their_arrangements():
    apart = measure_difference([1, 2, 3, 4], [6, 7, 8, 9.5], paired=False)
    paired = measure_difference([1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 7, 8], paired=True)
    assert (apart.p_value, paired.p_value) == (2 / 70, 2 / 64)


def test_effect_size_and_superiority_are_the_definitions():
    found = measure_difference(A, B, paired=False)
    pooled = np.sqrt((A.var(ddof=1) + B.var(ddof=1)) / 2)
    assert found.effect is not None
    assert found.effect == pytest.approx((A.mean() - B.mean()) / pooled * (1 - 3 / (4 * 108 - 1)))
    assert found.superiority == pytest.approx(stats.mannwhitneyu(A, B).statistic / (60 * 50))
    ties = measure_difference([1, 2, 3, 3, 5, 6], [1, 1, 3, 4, 4, 5], paired=True)
    assert ties.superiority == (3 + 2 * 0.5) / 6


@pytest.mark.parametrize("paired", [True, False])
def test_scores_that_differ_by_rounding_are_the_same(paired):
    found = measure_difference([0.1 + 0.2] * 8, [0.3] * 8, paired=paired)
    assert (found.p_value, found.effect, found.difference.low, found.difference.high) == (None, None, 0, 0)


def test_too_few_dialogues_are_refused():
    with pytest.raises(TooFewError, match="3 dialogues of a system; at least 4 are needed"):
        measure_difference([1, 2, 3], [1, 2, 3, 4], paired=False)
    with pytest.raises(TooFewError, match="5 pairs of dialogues; at least 6 are needed"):
        measure_difference(np.arange(5), np.arange(5) + 1, paired=True)


@pytest.mark.parametrize(("difference", "needed"), [(0.1, 365), (0.2, 92), (0.3, 42)])
def test_dialogues_needed_are_those_of_the_t_test(difference, needed):
    """With the published study's deviation of .481: one more than by the normal formula, 364, 91 and 41."""
    assert find_needed_dialogues(difference, 0.481, paired=False) == needed
    enough, fewer = (find_power(difference, 0.481, count, paired=False) for count in (needed, needed - 1))
    assert enough >= 0.8 > fewer
    assert find_smallest_difference(0.481, needed, paired=False) == pytest.approx(difference, rel=0.02)


def test_length_that_makes_a_difference_is_named():
    lengths = GENERATOR.normal(20, 4, (2, 80)) + np.array([[6], [0]])
    x, y = 0.1 * lengths + GENERATOR.normal(0, 0.3, (2, 80))
    found = measure_difference(x, y, paired=False)
    effect = measure_length_effect("words", found, (x, y), (lengths[0], lengths[1]), is_decided=True)
    assert found.difference.low > 0
    assert effect.warning == "words: at equal length there is no visible difference"
    assert effect.explained == pytest.approx(1, abs=0.3)


def test_a_difference_at_equal_length_only_must_hold_for_all_that_was_tested():
    generator = np.random.default_rng(6)
    lengths = generator.normal(20, 4, (2, 30)) - np.array([[3], [0]])
    x, y = 0.1 * lengths + generator.normal(0, 0.4, (2, 30)) + np.array([[0.3], [0]])
    found = measure_difference(x, y, paired=False)
    for tests, warning in ((1, "words: only at equal length is there a visible difference"), (1000, None)):
        effect = measure_length_effect("words", found, (x, y), (lengths[0], lengths[1]), is_decided=False, tests=tests)
        assert effect.warning == warning


def test_length_that_only_goes_with_the_system_cannot_be_told_apart_from_it():
    x, y = GENERATOR.normal(1, 0.2, 30), GENERATOR.normal(0, 0.2, 30)
    found = measure_difference(x, y, paired=False)
    effect = measure_length_effect("turns", found, (x, y), ([12] * 30, [8] * 30), is_decided=True)
    assert effect.warning == "turns: length and system cannot be separated"
    assert measure_length_effect("turns", found, (x, y), ([8] * 30, [8] * 30), is_decided=True) is None


def test_the_regression_has_hc3_errors():
    """HC3 as MacKinnon and White define it, with matrices in place of sums."""
    x, y = np.array([1.0, 2, 4, 3, 2, 5]), np.array([0.5, 1, 2, 2.5, 3, 1])
    m, n = np.array([1.0, 2, 3, 5, 4, 2]), np.array([2.0, 1, 2, 2, 3, 1])
    found = measure_difference(x, y, paired=True)
    effect = measure_length_effect("words", found, (x, y), (m, n), is_decided=False)
    design = np.column_stack([np.ones(6), m - n])
    hat = design @ np.linalg.inv(design.T @ design) @ design.T
    rests = ((np.eye(6) - hat) @ (x - y)) / (1 - np.diag(hat))
    inverse = np.linalg.inv(design.T @ design)
    error = np.sqrt((inverse @ design.T @ np.diag(rests**2) @ design @ inverse)[0, 0])
    value = (inverse @ design.T @ (x - y))[0]
    assert effect.at_equal_length.value == pytest.approx(value)
    assert effect.at_equal_length.high == pytest.approx(value + stats.t.ppf(0.975, 4) * error)


BETTING = sequential.BettingSequence(lowest=-100, highest=100)
ASYMPTOTIC = sequential.AsymptoticSequence()


@pytest.mark.parametrize("sequence", [BETTING, ASYMPTOTIC], ids=["betting", "asymptotic"])
def test_a_difference_is_seen_with_its_sign_where_the_interval_leaves_out_the_null(sequence):
    values = np.random.default_rng(5).normal(-12, 25, 400).clip(-100, 100)
    followed = sequence.follow(values)
    assert followed.decided_at is not None
    assert 20 < followed.decided_at < 250
    assert followed.low[-1] < values.mean() < followed.high[-1] < 0
    below = int(np.argmax(followed.p_value < 0.05)) + 1
    # the betting interval is rounded outwards to its candidates: it may follow a few observations later
    assert 0 <= followed.decided_at - below <= 8
    assert (followed.low[1:] >= followed.low[:-1]).all()
    assert (followed.high[1:] <= followed.high[:-1]).all()
    assert (np.diff(followed.p_value) <= 0).all()


def test_the_betting_wealth_is_that_of_the_definition():
    """Computed as a gambler would: one bet after another, each from what came before."""
    values = [0.7, 0.1, 0.9, 1.0, 0.4]
    rising = falling = 1.0
    mean_sum, square_sum = 0.5, 0.25
    variance, largest = 0.25, 1.0
    for place, value in enumerate(values, start=1):
        bet = math.sqrt(2 * math.log(2 / 0.05) / (variance * place * math.log(place + 1)))
        rising *= 1 + min(bet, 0.5 / 0.3) * (value - 0.3)
        falling *= 1 - min(bet, 0.5 / 0.7) * (value - 0.3)
        mean_sum += value
        square_sum += (value - mean_sum / (place + 1)) ** 2
        variance = square_sum / (place + 1)
        largest = max(largest, rising / 2, falling / 2)
        found = sequential.BettingSequence(lowest=0, highest=1).follow_p(values[:place], null=0.3)
        assert found[-1] == pytest.approx(1 / largest)


def test_what_lies_outside_the_bounds_is_refused():
    for value in (101, -100.5, math.nan):
        with pytest.raises(ValueError, match="an observation lies outside -100 to 100"):
            BETTING.follow([1, value])
    with pytest.raises(ValueError, match="the null 100 lies outside"):
        BETTING.follow([1.0], null=100)


STUDY = {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}
START = datetime(2026, 11, 22, tzinfo=UTC)


def row(worker, system, fun, dull=50, *, hit="h", minute=None):
    made = {"worker": worker, "hit": hit, "system": system, "ratings": {"fun": fun, "dull": dull}}
    return made if minute is None else {**made, "submitted_at": (START + timedelta(minutes=minute)).isoformat()}


def collect(tmp_path, *rows, criterion="fun"):
    return sequential.collect_observations(
        read_ratings(write_lines(tmp_path / "r.jsonl", STUDY, *rows)), "A", "B", criterion
    )


def test_an_observation_is_the_difference_within_a_workers_first_hit(tmp_path):
    rows = [row("v", "A", 80), row("w", "A", 50), row("w", "B", 40), row("v", "B", 20), row("v", "C", 1)]
    rows += [row("w", "A", 100, hit="later"), row("w", "B", 0, hit="later"), row("x", "A", 3)]
    found = collect(tmp_path, *rows)
    assert found.differences.tolist() == [10, 60]  # w's HIT was complete first
    assert found.reach == 100
    assert "2 HITs are no observation: of a worker seen before, or with one of the two systems only" in found.notes
    assert "not every dialogue has `submitted_at`: taken in the order of the file" in found.notes


def test_a_worker_who_fails_the_quality_control_in_that_hit_is_no_observation(tmp_path):
    """The careless one passes later, with other HITs: that changes no look that was had."""
    rows = []
    for worker, broken in (("good", 9.0), ("careless", 99.0)):
        rated = [("A", 80), ("B", 60), ("C", 70), ("D", 65), ("E", 75)]
        rows += [row(worker, system, fun, 100 - fun) for system, fun in rated]
        rows += [{**row(worker, f"broken{n}", broken - n, 50), "degraded": True} for n in range(4)]
        rows[-9:] = [{**each, "position": place} for place, each in enumerate(rows[-9:])]
    later = [{**row("careless", f"broken{n}", n, hit="later"), "degraded": True} for n in range(9)]
    found = collect(tmp_path, *rows, *later)
    assert found.differences.tolist() == [20]
    assert "1 of 2 workers do not pass the quality control in that HIT" in found.notes


def test_what_there_is_not_is_named(tmp_path):
    rows = [row("v", "A", 1), row("w", "A", 1)]
    with pytest.raises(AssessmentError, match="systems: 'B' is no system; the study has A"):
        collect(tmp_path, *rows)
    with pytest.raises(AssessmentError, match="criterion: 'wit' is none of the study's: overall, fun, dull"):
        collect(tmp_path, *rows, row("w", "B", 1), criterion="wit")
    nothing = sequential.PairedDifferences(differences=np.zeros(0), reach=100, unit="a HIT", notes=[])
    with pytest.raises(TooFewError, match=r"no observation of 'A' and 'B' yet \(a HIT\): no worker has rated both"):
        sequential.compare_sequentially(nothing, a="A", b="B")


def test_where_no_worker_passes_the_quality_control_that_is_the_reason(tmp_path):
    rows = [row(worker, system, 50) for worker in "vw" for system in "AB"]
    broken = [{**row(worker, "broken", 50), "degraded": True} for worker in "vw"]
    with pytest.raises(TooFewError, match="2 of 2 workers do not pass the quality control"):
        sequential.compare_sequentially(collect(tmp_path, *rows, *broken), a="A", b="B")


def test_the_command_shows_the_looks(tmp_path):
    generator = np.random.default_rng(2)
    rows = [
        row(f"w{n}", system, float(generator.integers(low, low + 40)), minute=2 * n)
        for n in range(80)
        for system, low in (("A", 50), ("B", 20))
    ]
    file = write_lines(tmp_path / "r.jsonl", STUDY, *rows)
    done = invoke(app, ["compare", str(file), "--sequential", "--systems", "A,B", "--criterion", "fun"])
    assert "fun: a is better (a: A, b: B), decided after " in done.output
    assert "hedged-capital betting confidence sequence" in done.output
