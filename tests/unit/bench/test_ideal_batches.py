import itertools
import random

import pytest
from turnscore_bench.servers.ideal_batches import Plan, ideal_batches


def draw_turns(count: int) -> list[tuple[list[int], list[int]]]:
    chance = random.Random(0)
    return [([1] * chance.randint(4, 128), [1] * chance.randint(4, 128)) for _ in range(count)]


@pytest.mark.parametrize("step", [1, 8])
def test_every_turn_is_in_exactly_one_batch_and_no_batch_is_beyond_the_budget(step: int) -> None:
    turns = draw_turns(300)
    plan = Plan(max_tokens=1024, runs=1, threads=1, width_step=step)
    batches = ideal_batches(turns, plan)
    assert sorted(place for batch in batches for place in batch) == list(range(300))
    for batch in batches:
        widest = max(len(row) for place in batch for row in turns[place])
        assert 2 * len(batch) * plan.width(widest) <= 1024


def test_batches_hold_neighbours_in_length_and_come_widest_first() -> None:
    turns = draw_turns(300)
    batches = ideal_batches(turns, Plan(max_tokens=1024, runs=1, threads=1))
    widths = [[max(map(len, turns[place])) for place in batch] for batch in batches]
    for wider, narrower in itertools.pairwise(widths):
        assert min(wider) >= max(narrower)


def test_a_turn_beyond_the_budget_is_a_batch_of_its_own() -> None:
    turns = [([1] * 4, [1] * 4), ([1] * 100, [1] * 100), ([1] * 101, [1] * 101)]
    assert ideal_batches(turns, Plan(max_tokens=64, runs=1, threads=1)) == [[2], [1], [0]]
