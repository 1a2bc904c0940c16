"""Ideal batches: what a server with all turns in hand and no deadline would run. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

Row = Sequence[int]
Rows = Sequence[Row]
"""A turn as the model sees it: the query's token ids and the reply's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How the bare runtime runs: padded tokens of a batch at most, batches at once, threads for each."""

    max_tokens: int
    runs: int
    threads: int
    width_step: int = 8

    def width(self, longest: int) -> int:
        """The padded width of rows of which the longest has that many tokens."""
        return -(-longest // self.width_step) * self.width_step


def candidate_plans(cpus: int) -> list[Plan]:
    """Among these the best is found by measuring: all CPUs on one batch, or a batch for each."""
    layouts = dict.fromkeys([(1, cpus), (cpus, 1)])
    budgets = (128, 256, 512, 1024, 2048, 4096)
    return [Plan(max_tokens=each, runs=runs, threads=threads) for runs, threads in layouts for each in budgets]


def ideal_batches(turns: Sequence[Rows], plan: Plan) -> list[list[int]]:
    """The places of the turns in each batch: sorted by their longest row, filled to the token budget, widest first.

    Every turn is in exactly one batch; one that is beyond the budget alone is a batch of its own.
    """
    batches: list[list[int]] = []
    for place in sorted(range(len(turns)), key=lambda place: _longest(turns[place])):
        padded = len(turns[place]) * plan.width(_longest(turns[place]))
        if batches and (len(batches[-1]) + 1) * padded <= plan.max_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches[::-1]


def _longest(turn: Rows) -> int:
    return max(map(len, turn))
