"""Rank correlation over the latest pairs, compared with scipy's."""

import random

import numpy as np
import pytest
from scipy.stats import spearmanr
from turnscore_service.scheduling.shadow import LEAST_PAIRS, WINDOW_PAIRS, PairWindow, rank_correlation


@pytest.mark.parametrize("places", [0, 1, 6])
def test_it_is_spearmans_rho_with_ties(places: int):
    draw = random.Random(places)
    pairs = [
        (round(x, places), round(x + draw.gauss(0, 20), places)) for x in (draw.uniform(0, 100) for _ in range(300))
    ]
    found = rank_correlation(np.array(pairs))
    assert found == pytest.approx(float(spearmanr(*zip(*pairs, strict=True)).statistic), abs=1e-12)


def test_order_alone_counts():
    rising = [(float(n), float(n) ** 3) for n in range(5)]
    assert rank_correlation(np.array(rising)) == pytest.approx(1.0)
    assert rank_correlation(np.array([(x, -y) for x, y in rising])) == pytest.approx(-1.0)


def test_what_never_changes_has_no_correlation():
    assert rank_correlation(np.array([(1.0, 2.0), (1.0, 3.0)])) is None


def test_a_window_forgets_what_is_older_than_its_pairs():
    window = PairWindow()
    assert [window.add(n, -n) for n in range(LEAST_PAIRS - 1)] == [None] * (LEAST_PAIRS - 1)
    assert window.add(1000, -1000) == pytest.approx(-1.0)
    for n in range(WINDOW_PAIRS):
        latest = window.add(n, n)
    assert latest == pytest.approx(1.0)
