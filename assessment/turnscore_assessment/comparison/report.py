"""A comparison as a table for a terminal and as JSON. Computes nothing."""

from collections.abc import Iterator

import numpy as np
from rich.table import Table

from turnscore_assessment.comparison.comparison import Comparison, Outlook, ScorerComparison
from turnscore_assessment.comparison.sequential import SequentialComparison
from turnscore_assessment.figures import Interval

LOOKS_SHOWN = 20
"""Rows of a table of looks. Chosen: a screen."""


def make_comparison_table(found: Comparison) -> Table:
    """A row per score."""
    table = Table("score", "A", "B", "A - B [95 %]", "g", "A higher", "p", "Holm", "BH", "more dialogues")
    for row in found.scorers:
        measured = row.found
        table.add_row(
            row.scorer,
            f"{measured.mean_a:.3f}",
            f"{measured.mean_b:.3f}",
            _say_difference(measured.difference),
            "-" if measured.effect is None else f"{measured.effect:.2f}",
            f"{measured.superiority:.0%}",
            *(_say_p(p) for p in (measured.p_value, row.p_holm, row.p_benjamini_hochberg)),
            "decided" if row.is_decided else _say_outlook(row.outlook),
        )
    return table


def list_remarks(found: Comparison) -> Iterator[str]:
    """Remarks on the method, on what was left out, and on differences that length explains."""
    first = found.scorers[0].found
    yield f"A: {found.a}, {first.dialogues_a} dialogues; B: {found.b}, {first.dialogues_b} dialogues"
    yield found.method
    yield from found.notes
    for row in found.scorers:
        yield from (f"warning: {row.scorer}: {warning}" for warning in _list_warnings(row))


def make_look_table(found: SequentialComparison) -> Table:
    """The looks, thinned evenly to a screen; the deciding one and the last stay."""
    table = Table("observations", "A - B", "low", "high", "p, any time")
    count = len(found.looks)
    places = {round(place) for place in np.linspace(0, count - 1, min(count, LOOKS_SHOWN))}
    places |= {found.decided_at - 1} if found.decided_at else set()
    for place in sorted(places):
        look = found.looks[place]
        is_deciding = place + 1 == found.decided_at
        table.add_row(
            f"{look.observations}{' *' if is_deciding else ''}",
            *(f"{value:.3f}" for value in (look.mean, look.low, look.high)),
            _say_p(look.p_value),
        )
    return table


def describe_verdict(found: SequentialComparison) -> str:
    """The verdict in one sentence."""
    looks = len(found.looks)
    if found.decided_at is None:
        return f"{found.what}: undecided after {looks} observations; more may be added and looked at"
    names = f"(a: {found.a}, b: {found.b})"
    return f"{found.what}: {found.verdict} {names}, decided after {found.decided_at} of {looks} observations"


def _list_warnings(row: ScorerComparison) -> list[str]:
    return [effect.warning for effect in row.lengths if effect.warning]


def _say_difference(found: Interval) -> str:
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _say_p(p_value: float | None) -> str:
    if p_value is None:
        return "-"
    return "<.001" if p_value < 0.001 else f"{p_value:.3f}"


def _say_outlook(outlook: Outlook) -> str:
    return "over 1,000,000" if outlook.more is None else f"{outlook.more:,}"
