"""Effort: how long dialogues took and how much people wrote, of workers who pass and who fail."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from turnscore_assessment.ratings.form import RatedDialogue


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The effort of a group of workers; None where the file does not have it."""

    workers: int
    dialogues: int
    """How many dialogues, those with a degraded system included."""
    ordinary_dialogues: int
    minutes_per_dialogue: float | None
    """The mean over all dialogues, as published."""
    words_per_dialogue: float | None
    """What people wrote: the median over dialogues with ordinary systems, as published."""
    words_per_input: float | None
    """The median over single inputs of the same dialogues."""


def measure_effort(dialogues: Iterable[RatedDialogue]) -> Effort:
    """The effort behind these dialogues."""
    rows = list(dialogues)
    inputs = [_count_words(row) for row in rows if row.turns and not row.degraded]
    return Effort(
        workers=len({row.worker for row in rows}),
        dialogues=len(rows),
        ordinary_dialogues=sum(not row.degraded for row in rows),
        minutes_per_dialogue=_apply(fmean, [row.seconds / 60 for row in rows if row.seconds is not None]),
        words_per_dialogue=_apply(median, [sum(counts) for counts in inputs]),
        words_per_input=_apply(median, [count for counts in inputs for count in counts]),
    )


def _count_words(dialogue: RatedDialogue) -> list[int]:
    return [len(turn.text.split()) for turn in dialogue.turns if turn.speaker == "user"]


def _apply(statistic: Callable[[Sequence[float]], float], values: Sequence[float]) -> float | None:
    return float(statistic(values)) if values else None
