"""Runs of Locust's users: mix and shape, and budgets each of which can be broken, alone."""

from dataclasses import replace

import pytest
from turnscore_load.users.budgets import (
    BUDGETS,
    SHAPES,
    Budget,
    Measured,
    read_budgets,
)  # fmt: skip

BUDGET = Budget(
    p50_ms=10, p95_ms=20, p99_ms=30, max_failed_share=0.01, max_refused_share=0.02, max_expired_share=0.03,
    min_answered_per_second=9,
)  # fmt: skip
KEPT = Measured(kind="flood", seconds=10, answered=94, failed=1, refused=2, expired=3, p50_ms=10, p95_ms=20, p99_ms=30)


def test_a_run_exactly_within_its_budget_breaks_nothing():
    assert BUDGET.broken_by(KEPT) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"p50_ms": 11}, "p50"),
        ({"p95_ms": 21}, "p95"),
        ({"p99_ms": 31}, "p99"),
        ({"failed": 2, "refused": 1}, "failed"),
        ({"refused": 3, "expired": 2}, "refused"),
        ({"expired": 4, "refused": 1}, "expired"),
        ({"seconds": 11}, "per second"),
        ({"answered": 0}, "not one"),
    ],
)
def test_each_budget_is_broken_alone(change, word):
    [sentence] = BUDGET.broken_by(replace(KEPT, **change))
    assert word in sentence
    assert sentence.startswith("flood: ")


def test_every_shape_has_a_budget_for_every_kind_of_user():
    budgets = read_budgets(BUDGETS)
    assert set(budgets) == set(SHAPES)
    assert all(set(kinds) == {"conversation", "flood", "batch", "grpc", "stream"} for kinds in budgets.values())
