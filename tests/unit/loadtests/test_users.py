"""Budgets of load tests."""

from turnscore_load.users import BUDGETS, SHAPES, read_budgets


def test_every_shape_has_a_budget_for_every_kind_of_user():
    budgets = read_budgets(BUDGETS)
    assert set(budgets) == set(SHAPES)
    assert all(set(kinds) == {"conversation", "flood", "batch", "grpc", "stream"} for kinds in budgets.values())
