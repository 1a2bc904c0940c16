import pytest
from turnscore_core.errors import OverloadedError
from turnscore_service.auth.access import TurnBudget


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(budget: TurnBudget, turns: int) -> None:
    budget.require()
    budget.take(turns)


def refused_for_ms(budget: TurnBudget) -> int:
    with pytest.raises(OverloadedError) as refused:
        spend(budget, 1)
    assert refused.value.retry_after_ms is not None
    return refused.value.retry_after_ms


def test_a_burst_is_taken_at_once_and_the_next_waits_for_the_rate(clock: Clock):
    budget = TurnBudget(turns_per_second=10, burst=3, clock=clock)
    for _ in range(3):
        spend(budget, 1)
    assert 100 <= refused_for_ms(budget) <= 102
    clock.now += 0.099
    refused_for_ms(budget)
    clock.now += 0.002
    spend(budget, 1)


def test_the_bucket_holds_no_more_than_its_burst(clock: Clock):
    budget = TurnBudget(turns_per_second=10, burst=3, clock=clock)
    clock.now += 3600
    for _ in range(3):
        spend(budget, 1)
    refused_for_ms(budget)


def test_a_batch_larger_than_the_bucket_is_taken_and_paid_off_afterwards(clock: Clock):
    budget = TurnBudget(turns_per_second=10, burst=3, clock=clock)
    spend(budget, 23)
    advice = refused_for_ms(budget)
    assert 2100 <= advice <= 2102
    clock.now += 2.0
    refused_for_ms(budget)
    clock.now += 0.2
    spend(budget, 1)


def test_after_the_advised_time_there_is_something_to_take(clock: Clock):
    budget = TurnBudget(turns_per_second=0.3, burst=1, clock=clock)
    spend(budget, 1)
    clock.now += refused_for_ms(budget) / 1000
    spend(budget, 1)


def test_a_refused_turn_costs_nothing(clock: Clock):
    budget = TurnBudget(turns_per_second=1, burst=1, clock=clock)
    spend(budget, 2)
    assert refused_for_ms(budget) == refused_for_ms(budget)
