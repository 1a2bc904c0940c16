"""Balanced tuples: which units are shown together, and in which position. Knows no systems and no raters.

Every unit is in equally many tuples (one more or less where that does not divide), pairs meet as evenly as swaps can
make it, and every unit is equally often in each position, by an edge colouring of tuples and units (König 1916).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnscore_assessment.figures import Integers

PROPOSED_SWAPS = 60_000
"""Rounds of swaps. Chosen: 10 units in 45 tuples of 4 meet evenly after some 500; half a second of work at most."""
MOST_AT_ONCE = 2000
"""Tuples that are evened together; more are even enough, and the work grows with the square. Chosen."""
FIRST = 1e9
"""Cost of an appearance beside a meeting: more than all meetings together."""


@dataclass(frozen=True, kw_only=True)
class Balance:
    """How evenly units were dealt: the fewest and the most of each."""

    appearances: tuple[int, int]
    meetings: tuple[int, int]
    in_position: tuple[int, int]
    """How often a unit stands in one position."""


def deal_tuples(units: int, size: int, count: int, generator: np.random.Generator) -> list[list[int]]:
    """`count` tuples of `size` different units, each in display order. ValueError for a bad size."""
    if not 2 <= size <= units:
        raise ValueError(f"a tuple must have 2 to {units} units, not {size}")
    meetings = np.zeros((units, units), dtype=np.intp)
    dealt = _deal_greedily(units, size, count, meetings, generator)
    if size < units and count <= MOST_AT_ONCE:
        _swap_evenly(dealt, meetings, generator)
    return balance_positions(dealt, generator)


def measure_balance(tuples: Sequence[Sequence[int]], units: int) -> Balance:
    """Counted over all tuples; for tuples of one unit there are no meetings."""
    meetings = np.zeros((units, units), dtype=np.intp)
    positions = np.zeros((units, max(map(len, tuples))), dtype=np.intp)
    for each in tuples:
        meetings[np.ix_(each, each)] += 1
        positions[each, range(len(each))] += 1
    appearances = positions.sum(axis=1)
    between = meetings[np.triu_indices(units, 1)] if units > 1 else np.zeros(1, dtype=np.intp)
    return Balance(appearances=_range(appearances), meetings=_range(between), in_position=_range(positions))


def balance_positions(tuples: Sequence[Sequence[int]], generator: np.random.Generator) -> list[list[int]]:
    """The same tuples, reordered so that each unit stands in each position equally often, or once more or less.

    A unit is cut into parts of at most as many appearances as there are positions; colouring the graph of tuples and
    parts with the positions then gives each part every position once. Of very many tuples, runs of a multiple of as
    many as there are units are balanced by themselves: there every unit is dealt equally often, so sums stay balanced.
    """
    if len(tuples) > MOST_AT_ONCE:
        units = max(map(max, tuples)) + 1
        step = units * max(1, MOST_AT_ONCE // (4 * units))
        parts = [tuples[start : start + step] for start in range(0, len(tuples), step)]
        return [ordered for part in parts for ordered in balance_positions(part, generator)]
    size = max(map(len, tuples))
    seen: dict[int, int] = defaultdict(int)
    at_tuple: list[dict[int, tuple[int, int]]] = [{} for _ in tuples]  # position -> part
    at_part: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # position -> tuple
    for place in generator.permutation(len(tuples)).tolist():
        positions = generator.permutation(size).tolist()
        for unit in generator.permutation(tuples[place]).tolist():
            part = (unit, seen[unit] // size)
            seen[unit] += 1
            _colour(place, part, at_tuple, at_part, positions)
    return [[part[0] for _, part in sorted(positions.items())] for positions in at_tuple]


def _colour(
    place: int,
    part: tuple[int, int],
    at_tuple: list[dict[int, tuple[int, int]]],
    at_part: dict[tuple[int, int], dict[int, int]],
    positions: Sequence[int],
) -> None:
    """Gives the appearance a position that is free at both ends, exchanging two positions along a path if needed."""
    free_here = next(p for p in positions if p not in at_tuple[place])
    free_there = next(p for p in positions if p not in at_part[part])
    path: list[tuple[int, tuple[int, int], int]] = []
    here, wanted, other = part, free_here, free_there
    while wanted in at_part[here]:
        through = at_part[here][wanted]
        path.append((through, here, wanted))
        if other not in at_tuple[through]:
            break
        here = at_tuple[through][other]
        path.append((through, here, other))
    for through, end, position in path:
        del at_tuple[through][position], at_part[end][position]
    for through, end, position in path:
        exchanged = free_there if position == free_here else free_here
        at_tuple[through][exchanged], at_part[end][exchanged] = end, through
    at_tuple[place][free_here], at_part[part][free_here] = part, place


def _deal_greedily(
    units: int, size: int, count: int, meetings: Integers, generator: np.random.Generator
) -> list[list[int]]:
    """Of the units dealt least often, those that met the tuple's others least, at random among equals."""
    appearances = np.zeros(units, dtype=np.intp)
    dealt = []
    for _ in range(count):
        chosen: list[int] = []
        for _ in range(size):
            costs = appearances * FIRST + meetings[chosen].sum(axis=0) + generator.random(units)
            costs[chosen] = np.inf
            chosen.append(int(np.argmin(costs)))
        _note(meetings, chosen)
        appearances[chosen] += 1
        dealt.append(chosen)
    return dealt


def _note(meetings: Integers, chosen: Sequence[int]) -> None:
    meetings[np.ix_(chosen, chosen)] += 1
    meetings[chosen, chosen] -= 1


def _swap_evenly(dealt: list[list[int]], meetings: Integers, generator: np.random.Generator) -> None:
    """Exchanges units of two tuples while that makes meetings more even; appearances stay as they are."""
    size = len(dealt[0])
    proposals = generator.integers(0, [len(dealt), len(dealt), size, size], (PROPOSED_SWAPS, 4)).tolist()
    for number, (left, right, i, j) in enumerate(proposals):
        if number % 500 == 0 and np.ptp(meetings[np.triu_indices(len(meetings), 1)]) <= 1:
            return
        x, y = dealt[left][i], dealt[right][j]
        if x == y or x in dealt[right] or y in dealt[left]:
            continue
        others = [unit for unit in dealt[left] if unit != x], [unit for unit in dealt[right] if unit != y]
        if _gain(meetings, x, y, *others) >= 0:
            _exchange(meetings, x, y, *others)
            dealt[left][i], dealt[right][j] = y, x


def _gain(meetings: Integers, x: int, y: int, with_x: Sequence[int], with_y: Sequence[int]) -> int:
    """Half of how much the sum of squared meetings falls if x and y exchange places."""
    removed = sum(int(meetings[x, z]) for z in with_x) + sum(int(meetings[y, z]) for z in with_y)
    added = sum(int(meetings[y, z]) for z in with_x) + sum(int(meetings[x, z]) for z in with_y)
    shared = len(set(with_x) & set(with_y))
    return removed - added - len(with_x) - len(with_y) + 2 * shared


def _exchange(meetings: Integers, x: int, y: int, with_x: Sequence[int], with_y: Sequence[int]) -> None:
    for z in with_x:
        for unit, step in ((x, -1), (y, 1)):
            meetings[unit, z] += step
            meetings[z, unit] += step
    for z in with_y:
        for unit, step in ((y, -1), (x, 1)):
            meetings[unit, z] += step
            meetings[z, unit] += step


def _range(counts: Integers) -> tuple[int, int]:
    return int(counts.min()), int(counts.max())
