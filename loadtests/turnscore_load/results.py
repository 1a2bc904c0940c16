"""What a scenario measured and claims, as data with machine, command and date, and the one page made of it."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

import psutil

from turnscore_load.machine import describe

_Way = TypeVar("_Way")


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about a run, what was found, and whether it holds; None where it was not measured, or is not judged."""

    claim: str
    found: str
    holds: bool | None


@dataclass(kw_only=True)
class ScenarioResult:
    """What one run of a scenario found. `parts` are its page: sentences and tables in Markdown, in order."""

    scenario: str
    parts: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    data: Any = None  # the figures behind the tables, as plain values or dataclasses
    machine: str = field(default_factory=describe)
    command: str = ""
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    # Of the 15 minutes before the run's end.
    load_average: float = field(default_factory=lambda: psutil.getloadavg()[2])

    @property
    def holds(self) -> bool:
        return all(each.holds is not False for each in self.checks)

    def markdown(self) -> str:
        """The page: where, how and when, the parts, and the claims."""
        where = f"`{self.command or self.scenario}`, {self.machine}, {self.date}, load average {self.load_average:.1f}."
        words = {True: "yes", False: "NO", None: "-"}
        claims = [[each.claim, each.found, words[each.holds]] for each in self.checks]
        checks = [table(["claim", "found", "holds"], claims)] if claims else []
        return "\n\n".join([where, *(part for part in self.parts if part), *checks]) + "\n"

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1, default=str) + "\n", encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int | None = None) -> str:
    """Columns after the first `texts` are numbers, aligned right; without it, all are words."""
    words = len(head) if texts is None else texts
    lines = [head, [*["---"] * words, *["---:"] * (len(head) - words)], *rows]
    return "\n".join(f"| {' | '.join(each.replace('|', chr(92) + '|') for each in line)} |" for line in lines)


def not_run(reasons: Mapping[str, str]) -> str:
    told = [f"- {what}: `{' '.join(why.split())[-300:].replace('`', chr(39))}`" for what, why in reasons.items()]
    return "\n".join(told) or "Everything was run."


def number(value: float | None, digits: int = 0) -> str:
    """`1,234.5`, or `-`."""
    return "-" if value is None else f"{value:,.{digits}f}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """`2.0 (1.5 to 3.1)`: the median, the least and the largest."""
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def percentile(values: Iterable[float], percent: int) -> float:
    """By linear interpolation; 0 of no values."""
    listed = list(values)
    if len(listed) < 2:
        return listed[0] if listed else 0.0
    return quantiles(listed, n=100, method="inclusive")[percent - 1]


def rotate(ways: Iterable[_Way], round_: int) -> list[_Way]:
    """The ways in a round's order: each is begun by another, so that what else the machine does meets all alike."""
    every = list(ways)
    start = round_ % max(1, len(every))
    return [*every[start:], *every[:start]]


def in_turn(ways: Mapping[str, Any], rounds: int) -> Iterator[tuple[int, str]]:
    """Each way once a round."""
    return ((number, name) for number in range(rounds) for name in rotate(ways, number))


def seconds_of(call: Callable[[], object]) -> float:
    """How long it takes."""
    started_at = time.perf_counter()
    call()
    return time.perf_counter() - started_at


# One way of asking in one round, whom or what it asked, and its figures by name.
Cost = tuple[str, Any, Mapping[str, float]]


def figures_of(found: Iterable[Cost], way: str, asked: object, figure: str) -> list[float]:
    return [figures[figure] for own, of, figures in found if (own, of) == (way, asked)]


def ratio(found: Sequence[Cost], figure: str, one: tuple[str, object], other: tuple[str, object]) -> float | None:
    """The median of the rounds' ratios: both sides of one were measured one soon after the other."""
    pairs = list(zip(*(figures_of(found, *each, figure) for each in (one, other)), strict=False))
    return median(left / right for left, right in pairs) if pairs else None
