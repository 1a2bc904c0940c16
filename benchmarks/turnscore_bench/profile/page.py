"""The page: the profiles as tables of microseconds per turn. Measures nothing."""

import linecache
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from turnscore_bench.harness.page import number, table
from turnscore_bench.profile.measuring import Profile
from turnscore_bench.profile.stages import STAGES

_Place = tuple[str, str, int]
"""Stage, file and line."""
_K = TypeVar("_K")

LINES = 5
_WIDEST = 90
"""Characters of a line of code that are shown."""


def stage_table(profiles: Sequence[Profile]) -> str:
    """Microseconds of CPU per turn by stage, and the process's other threads."""
    head = ["CPU, us per turn", *(each.way.label for each in profiles)]
    by_stage = [_by(profile, lambda place: place[0]) for profile in profiles]
    rows = [
        [stage, *(number(each.get(stage), 0) for each in by_stage)]
        for stage in STAGES
        if any(stage in each for each in by_stage)
    ]
    rows.append(
        ["**the event loop's thread**", *(number(_us(each, each.sampled.loop_seconds), 0) for each in profiles)]
    )
    others = [each.sampled.cpu_seconds - each.sampled.loop_seconds for each in profiles]
    rows.append(
        ["**other threads**", *(number(_us(each, took), 0) for each, took in zip(profiles, others, strict=True))]
    )
    return table(head, rows, texts=1)


def line_table(profile: Profile, root: Path) -> str:
    """The lines of ours, or of a library where none of ours called it, that took most."""
    by_line = _by(profile, lambda place: place)
    longest = sorted(by_line.items(), key=lambda item: -item[1])[:LINES]
    rows = [
        [f"`{_where(file, line, root)}`", stage, f"`{_code(file, line)}`", number(us, 1)]
        for (stage, file, line), us in longest
    ]
    return table(["line", "stage", "code", "us per turn"], rows, texts=3)


def _by(profile: Profile, key: Callable[[_Place], _K]) -> Mapping[_K, float]:
    counts: Counter[_K] = Counter()
    for stage, file, line, count in profile.sampled.samples:
        counts[key((stage, file, line))] += count
    per_sample = _us(profile, profile.sampled.loop_seconds) / max(1, sum(counts.values()))
    return {what: count * per_sample for what, count in counts.items()}


def _us(profile: Profile, seconds: float) -> float:
    return 1e6 * seconds / profile.turns


def _where(file: str, line: int, root: Path) -> str:
    path = Path(file)
    if path.is_relative_to(root):
        shown = path.relative_to(root)
        return f"{Path(*shown.parts[-2:])}:{line}"
    return f"{Path(*path.parts[-2:])}:{line}"


def _code(file: str, line: int) -> str:
    return linecache.getline(file, line).strip().replace("|", "\\|")[:_WIDEST]
