"""How judges agree: with each other, with people, with a response's length, and with its place in a call."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from turnscore_assessment.figures import (
    LEAST_OBSERVATIONS,
    Interval,
    compute_spearman,
    draw_dialogues,
    find_interval,
    resample_spearman,
)
from turnscore_assessment.judging.turns import Marks
from turnscore_assessment.ratings.reliability import bound_intraclass
from turnscore_assessment.rendering import Page, Section, Table

MOST_MEASURED = 10_000  # Responses that correlations are computed of, drawn at random. Chosen: some seconds.
# Least correlations, with an interval that excludes 0, that a sentence warns of. Chosen.
LARGE_LENGTH, LARGE_PLACE = 0.3, 0.1
PEOPLE = "people"


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one response."""

    dialogue: str
    characters: int
    marks: Mapping[str, Marks]  # By judge; those of people are `people`'s.
    places: Mapping[str, int]  # By judge, the place in its call.


@dataclass(frozen=True, kw_only=True)
class JudgeFigures:
    """One judge's marks for one criterion; correlations are Spearman's."""

    criterion: str
    judge: str
    marks: int
    mean: float
    people: Interval
    length: Interval
    place: Interval


@dataclass(frozen=True, kw_only=True)
class PairFigures:
    """How far two judges agree on the responses that both marked."""

    criterion: str
    first: str
    second: str
    responses: int
    spearman: Interval
    icc: Interval  # ICC(A,1): whether one gives the same numbers as the other.


class MarkStatistics:
    """Counts all marks, and keeps a random draw of responses to correlate."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._seen = 0
        self._drawn: list[Observation] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sums: Counter[tuple[str, str]] = Counter()

    def add(self, dialogue: str, response: Mapping[str, Any], places: Mapping[str, int]) -> None:
        """Adds a response of an output's row."""
        marks = {**response["marks"], **({PEOPLE: response["people"]} if response.get("people") else {})}
        for judge, found in marks.items():
            for criterion, mark in found.items():
                self._counts[criterion, judge] += 1
                self._sums[criterion, judge] += mark
        self._seen += 1
        place = len(self._drawn) if self._seen <= MOST_MEASURED else self._random.randrange(self._seen)
        if place < MOST_MEASURED:
            self._drawn[place : place + 1] = [Observation(dialogue, len(response["text"]), marks, places)]

    def measure(self, criteria: Sequence[str], rounds: int, seed: int) -> tuple[list[JudgeFigures], list[PairFigures]]:
        """The figures, each judge's and each pair's, with intervals that resample dialogues."""
        singles, pairs = [], []
        for criterion in criteria:
            judges = [judge for name, judge in self._counts if name == criterion and judge != PEOPLE]
            for judge in judges:
                marked = [each for each in self._drawn if criterion in each.marks.get(judge, ())]
                by_people = [each for each in marked if criterion in each.marks.get(PEOPLE, ())]
                placed = [each for each in marked if judge in each.places]
                own = _Columns(criterion, judge, rounds, seed)
                singles.append(
                    JudgeFigures(
                        criterion=criterion,
                        judge=judge,
                        marks=self._counts[criterion, judge],
                        mean=self._sums[criterion, judge] / self._counts[criterion, judge],
                        people=own.correlate(by_people, [each.marks[PEOPLE][criterion] for each in by_people]),
                        length=own.correlate(marked, [each.characters for each in marked]),
                        place=own.correlate(placed, [each.places[judge] for each in placed]),
                    )
                )
            for first, second in combinations(judges, 2):
                both = [
                    each for each in self._drawn if all(criterion in each.marks.get(j, ()) for j in (first, second))
                ]
                own = _Columns(criterion, first, rounds, seed)
                marks = [each.marks[second][criterion] for each in both]
                pairs.append(
                    PairFigures(
                        criterion=criterion,
                        first=first,
                        second=second,
                        responses=len(both),
                        spearman=own.correlate(both, marks),
                        icc=own.compare(both, marks),
                    )
                )
        return singles, pairs


@dataclass(frozen=True)
class _Columns:
    criterion: str
    judge: str
    rounds: int
    seed: int

    def correlate(self, observed: Sequence[Observation], other: ArrayLike) -> Interval:
        """Spearman's rho of the judge's marks and another column."""
        if len(observed) < LEAST_OBSERVATIONS:
            return Interval(float("nan"))
        columns = np.array([[each.marks[self.judge][self.criterion] for each in observed], other], dtype=np.float64)
        dialogue_of = _number(observed)
        draws = draw_dialogues(int(dialogue_of.max()) + 1, self.rounds, self.seed)
        return find_interval(compute_spearman(*columns), resample_spearman(columns, dialogue_of, draws)[:, 0, 1])

    def compare(self, observed: Sequence[Observation], other: ArrayLike) -> Interval:
        """ICC(A,1) of the judge's marks and another judge's."""
        if len(observed) < LEAST_OBSERVATIONS:
            return Interval(float("nan"))
        columns = np.array([[each.marks[self.judge][self.criterion] for each in observed], other], dtype=np.float64)
        return bound_intraclass(columns.T, self.rounds, self.seed, _number(observed))["agreement"]


def _number(observed: Sequence[Observation]) -> Any:
    return np.unique([each.dialogue for each in observed], return_inverse=True)[1]


def build_page(singles: Sequence[JudgeFigures], pairs: Sequence[PairFigures], summary: Sequence[str]) -> Page:
    """A table of judges, one of pairs, and a warning for each criterion that follows length or place."""
    rows = [
        [each.criterion, each.judge, each.marks, each.mean, each.people, each.length, each.place] for each in singles
    ]
    header = ["criterion", "judge", "marks", "mean", "with people", "with length", "with place in the call"]
    tables = [Table("", header, rows)] if rows else []
    if pairs:
        compared = [
            [each.criterion, f"{each.first}, {each.second}", each.responses, each.spearman, each.icc] for each in pairs
        ]
        tables.append(Table("", ["criterion", "judges", "responses", "Spearman", "ICC(A,1)"], compared))
    warnings = [sentence for each in singles for sentence in _warn(each)]
    return Page(title="Marks", summary=summary, sections=[Section("Marks", tables=tables, paragraphs=warnings)])


def _warn(each: JudgeFigures) -> list[str]:
    found = []
    for figure, least, what in (
        (
            each.length,
            LARGE_LENGTH,
            "the response's length: a criterion learned from these marks would learn length too",
        ),
        (each.place, LARGE_PLACE, "the place in the call: ask fewer turns per call"),
    ):
        if abs(figure.value) >= least and not figure.low <= 0 <= figure.high:
            found.append(f"warning: {each.criterion} by {each.judge} follows {what} (Spearman {figure})")
    return found
