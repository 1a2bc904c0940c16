"""The costs as Markdown: milliseconds per turn, and how many times what the scorer beside it takes."""

from collections.abc import Sequence

from turnscore_bench.harness.page import table
from turnscore_bench.scorers.costs import Cost


def format_costs(costs: Sequence[Cost]) -> str:
    """A row for each set of scorers; in every cell the milliseconds and the ratio to the first set's in the same way.

    In brackets stand the least and the largest ratio of any round.
    """
    ways = list(dict.fromkeys(each.way for each in costs))
    by_key = {(each.way, each.scorers): each for each in costs}
    base = costs[0].scorers
    rows = []
    for names in dict.fromkeys(each.scorers for each in costs):
        cells = [_cell(by_key[way, names], by_key[way, base]) for way in ways]
        rows.append([" + ".join(names), *cells])
    return table(["CPU ms per turn", *ways], rows, texts=1 + len(ways))


def _cell(cost: Cost, base: Cost) -> str:
    if cost is base:
        return f"{cost.median:.2f}"
    ratios = [own / other for own, other in zip(cost.milliseconds, base.milliseconds, strict=True)]
    return f"{cost.median:.2f}; {cost.median / base.median:.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]"
