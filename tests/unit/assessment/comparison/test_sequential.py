"""Sequential comparison: its promise holds at every look at once, and an observation is one worker."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulate_comparisons as simulation
from scipy import stats
from simulate_comparisons import count_calls, count_false_verdicts, draw_ratings, draw_skewed
from support.files import invoke, write_lines
from turnscore_assessment.comparison.sequential import (
    AsymptoticSequence,
    BettingSequence,
    PairedDifferences,
    collect_observations,
    compare_sequentially,
)
from turnscore_assessment.errors import AssessmentError, TooFewError
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_client._command.registry import app

BETTING = BettingSequence(lowest=-100, highest=100)
ASYMPTOTIC = AsymptoticSequence()


@pytest.mark.parametrize("sequence", [BETTING, ASYMPTOTIC], ids=["betting", "asymptotic"])
def test_a_difference_is_seen_and_named_with_its_sign(sequence: BettingSequence | AsymptoticSequence) -> None:
    values = np.random.default_rng(5).normal(-12, 25, 400).clip(-100, 100)
    followed = sequence.follow(values)
    assert followed.decided_at is not None
    assert 20 < followed.decided_at < 250
    assert followed.high[-1] < 0
    assert followed.low[-1] < values.mean() < followed.high[-1]


@pytest.mark.parametrize("sequence", [BETTING, ASYMPTOTIC], ids=["betting", "asymptotic"])
def test_the_interval_leaves_out_the_null_when_the_p_value_says_so(
    sequence: BettingSequence | AsymptoticSequence,
) -> None:
    followed = sequence.follow(np.random.default_rng(6).normal(8, 25, 500).clip(-100, 100))
    below = int(np.argmax(followed.p_value < 0.05)) + 1
    assert followed.decided_at is not None
    # the betting interval is rounded outwards to its candidates: it may follow a few observations later
    assert 0 <= followed.decided_at - below <= 8
    assert (followed.low[1:] >= followed.low[:-1]).all()
    assert (followed.high[1:] <= followed.high[:-1]).all()
    assert (np.diff(followed.p_value) <= 0).all()


def test_the_betting_wealth_is_that_of_the_definition() -> None:
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
        found = BettingSequence(lowest=0, highest=1).follow_p(values[:place], null=0.3)
        assert found[-1] == pytest.approx(1 / largest)


@pytest.mark.parametrize("value", [101, -100.5, math.nan])
def test_what_lies_outside_the_bounds_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="an observation lies outside -100 to 100"):
        BETTING.follow([1, value])


def test_a_null_outside_the_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="the null 100 lies outside"):
        BETTING.follow([1.0], null=100)


STUDIES = 200
MOST_FALSE = stats.binom.ppf(0.99, STUDIES, 0.05) / STUDIES


@pytest.mark.parametrize("draw", simulation.DRAWS.values(), ids=simulation.DRAWS)
def test_betting_keeps_five_percent_whatever_is_drawn(draw: simulation.Draw) -> None:
    assert count_calls("betting", draw, STUDIES)[0] <= MOST_FALSE


def test_the_others_do_not() -> None:
    assert count_calls("asymptotic", draw_ratings, STUDIES)[0] <= MOST_FALSE
    assert count_calls("asymptotic", draw_skewed, STUDIES, seed=1)[0] > 0.05
    assert count_calls("t-test", draw_ratings, STUDIES)[0] > 0.3


def test_the_printed_verdict_calls_equal_systems_different_in_five_percent() -> None:
    """Of 200 studies, with the 1 % bounds of a binomial; docs/compare.md has larger simulations."""
    found = count_false_verdicts(*simulation.SCORES["gamma(2)"], (10, 40), STUDIES, paired=False, rounds=399)
    assert stats.binom.ppf(0.01, STUDIES, 0.04) <= round(found * STUDIES) <= stats.binom.ppf(0.99, STUDIES, 0.05)


STUDY = {"study": "s", "criteria": [{"name": "fun"}, {"name": "dull", "direction": "negative"}]}
START = datetime(2026, 11, 22, tzinfo=UTC)


def row(
    worker: str, system: str, fun: float, dull: float = 50, *, hit: str = "h", minute: int | None = None
) -> dict[str, Any]:
    made = {"worker": worker, "hit": hit, "system": system, "ratings": {"fun": fun, "dull": dull}}
    return made if minute is None else {**made, "submitted_at": (START + timedelta(minutes=minute)).isoformat()}


def collect(tmp_path: Path, *rows: dict[str, Any], criterion: str = "fun") -> PairedDifferences:
    return collect_observations(read_ratings(write_lines(tmp_path / "r.jsonl", STUDY, *rows)), "A", "B", criterion)


def test_an_observation_is_the_difference_within_a_workers_first_hit(tmp_path: Path) -> None:
    found = collect(
        tmp_path,
        row("v", "A", 80),
        row("w", "A", 50),
        row("w", "B", 40),
        row("v", "B", 20),
        row("w", "A", 100, hit="later"),
        row("w", "B", 0, hit="later"),
        row("v", "C", 1),
        row("x", "A", 3),
    )
    assert found.differences.tolist() == [10, 60]  # w's HIT was complete first
    assert found.reach == 100
    assert "2 HITs are no observation: of a worker seen before, or with one of the two systems only" in found.notes
    assert "not every dialogue has `submitted_at`: taken in the order of the file" in found.notes


def test_a_worker_who_fails_the_quality_control_in_that_hit_is_no_observation(tmp_path: Path) -> None:
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


def test_what_there_is_not_is_named(tmp_path: Path) -> None:
    rows = [row("v", "A", 1), row("w", "A", 1)]
    with pytest.raises(AssessmentError, match="systems: 'B' is no system; the study has A"):
        collect(tmp_path, *rows)
    with pytest.raises(AssessmentError, match="criterion: 'wit' is none of the study's: overall, fun, dull"):
        collect(tmp_path, *rows, row("w", "B", 1), criterion="wit")
    with pytest.raises(TooFewError, match="no worker has rated 'A' and 'B' yet"):
        compare_sequentially(PairedDifferences(differences=np.zeros(0), reach=100, unit="", notes=[]), a="A", b="B")


def test_the_command_shows_the_looks(tmp_path: Path) -> None:
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
