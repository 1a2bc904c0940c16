"""Confidence sequences: the promise holds at every look at once, and looking with a t-test does not."""

import math

import numpy as np
import pytest
from turnscore_assessment.comparison.sequential import AsymptoticSequence, BettingSequence

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


def test_the_asymptotic_margin_is_that_of_the_formula() -> None:
    values = np.random.default_rng(7).normal(3, 2, 120)
    followed = ASYMPTOTIC.follow(values)
    double = -2 * math.log(0.05)
    mixture = (double + math.log(double) + 1) / 200
    grown = 120 * mixture + 1
    half = values.std() * math.sqrt(2 * grown / (120**2 * mixture) * math.log(math.sqrt(grown) / 0.05))
    assert followed.high[-1] <= values.mean() + half + 1e-9
    assert np.isinf(followed.low[:29]).all()
    assert values.mean() - half == pytest.approx(followed.low[-1], abs=0.05)


@pytest.mark.parametrize("value", [101, -100.5, math.nan])
def test_what_lies_outside_the_bounds_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="an observation lies outside -100 to 100"):
        BETTING.follow([1, value])


def test_a_null_outside_the_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="the null 100 lies outside"):
        BETTING.follow([1.0], null=100)
