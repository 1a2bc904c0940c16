"""Balanced tuples: every unit equally often, pairs as evenly as can be, positions too; whatever the sizes."""

import numpy as np
import pytest
from turnscore_assessment.designs.making import deal_tuples, measure_balance

SHAPES = [(3, 2, 9), (5, 2, 25), (10, 4, 40), (7, 3, 14), (13, 4, 13)]


@pytest.mark.parametrize(("units", "size", "count"), SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_units_and_positions_differ_by_one_at_most(units: int, size: int, count: int, seed: int) -> None:
    dealt = deal_tuples(units, size, count, np.random.default_rng(seed))
    balance = measure_balance(dealt, units)
    assert len(dealt) == count
    assert all(len(set(each)) == size for each in dealt)
    assert balance["appearances"][1] - balance["appearances"][0] <= (0 if count * size % units == 0 else 1)
    assert balance["in_position"][1] - balance["in_position"][0] <= 1
    assert balance["meetings"][1] - balance["meetings"][0] <= (1 if units <= 13 else 3)


def test_very_many_tuples_are_balanced_in_bounded_time() -> None:
    dealt = deal_tuples(12, 5, 2400, np.random.default_rng(0))
    balance = measure_balance(dealt, 12)
    assert balance["appearances"] == (1000, 1000)
    assert balance["in_position"] == (200, 200)
    assert balance["meetings"][1] - balance["meetings"][0] <= 12  # of 364


PERFECT = [(10, 4, 15, 2), (7, 3, 14, 2), (13, 4, 13, 1), (10, 2, 45, 1)]


@pytest.mark.parametrize(("units", "size", "count", "meet"), PERFECT)
def test_where_a_perfect_design_exists_it_is_found(units: int, size: int, count: int, meet: int) -> None:
    """Balanced incomplete block designs; the one of 13 units is a projective plane."""
    assert measure_balance(deal_tuples(units, size, count, np.random.default_rng(0)), units)["meetings"] == (meet, meet)


@pytest.mark.parametrize("size", [1, 5])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"2 to 4 units, not {size}"):
        deal_tuples(4, size, 3, np.random.default_rng(0))
