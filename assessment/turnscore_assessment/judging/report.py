"""How judges agree: with each other, with people, with a response's length, and with its place in a call."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from typing import Any

import numpy as np

from turnscore_assessment.figures import (
    LEAST_OBSERVATIONS,
    Floats,
    Integers,
    Interval,
    compute_spearman,
    draw_dialogues,
    find_interval,
    resample_spearman,
)
from turnscore_assessment.judging.turns import PEOPLE, Marks
from turnscore_assessment.ratings.reliability import bound_intraclass
from turnscore_assessment.rendering import Page, Section, Table

MOST_MEASURED = 10_000  # Responses that correlations are computed of, drawn at random. Chosen: some seconds.
WITH_PEOPLE, WITH_LENGTH, WITH_PLACE = "with people", "with length", "with place in the call"
# Least correlations, with an interval that excludes 0, that a sentence warns of. Chosen.
WARNINGS = {
    WITH_LENGTH: (0.3, "the response's length, and a criterion learned from these marks would, too"),
    WITH_PLACE: (0.1, "the place in the call: ask fewer turns per call"),
}


@dataclass(frozen=True, slots=True)
class _Observation:
    dialogue: str
    characters: int
    marks: Mapping[str, Marks]  # By judge; those of people are `people`'s.
    places: Mapping[str, int]  # By judge, the place in its call.


class MarkStatistics:
    """Counts all marks, and keeps a random draw of responses to correlate."""

    def __init__(self, seed: int, rounds: int) -> None:
        self._seed, self._rounds = seed, rounds
        self._random = random.Random(seed)  # noqa: S311
        self._seen = 0
        self._drawn: list[_Observation] = []
        self._counts: Counter[tuple[str, str]] = Counter()  # By criterion and judge.
        self._sums: Counter[tuple[str, str]] = Counter()

    def add(self, dialogue: str, response: Mapping[str, Any], places: Mapping[str, int]) -> None:
        """Adds a response of an output's row."""
        marks = {**response["marks"], PEOPLE: response.get(PEOPLE, {})}
        for judge, found in marks.items():
            for criterion, mark in found.items():
                self._counts[criterion, judge] += 1
                self._sums[criterion, judge] += mark
        self._seen += 1
        place = len(self._drawn) if self._seen <= MOST_MEASURED else self._random.randrange(self._seen)
        if place < MOST_MEASURED:
            self._drawn[place : place + 1] = [_Observation(dialogue, len(response["text"]), marks, places)]

    def measure(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Each judge's figures and each pair's, for each criterion; correlations are Spearman's."""
        singles, pairs = [], []
        for criterion in dict.fromkeys(name for name, _ in self._counts):
            judges = [judge for name, judge in self._counts if name == criterion and judge != PEOPLE]
            marks = {judge: self._column(criterion, judge) for judge in [*judges, PEOPLE]}
            lengths = np.array([each.characters for each in self._drawn], dtype=np.float64)
            for judge in judges:
                count = self._counts[criterion, judge]
                own = {"criterion": criterion, "judge": judge, "marks": count}
                places = np.array([each.places.get(judge, nan) for each in self._drawn])
                others = {WITH_PEOPLE: marks[PEOPLE], WITH_LENGTH: lengths, WITH_PLACE: places}
                figures = {name: self._compare(marks[judge], other)[0] for name, other in others.items()}
                singles.append({**own, "mean": self._sums[criterion, judge] / count, **figures})
            for first, second in combinations(judges, 2):
                both = int((~np.isnan(marks[first] + marks[second])).sum())
                if not both:
                    continue
                rho, icc = self._compare(marks[first], marks[second], with_icc=True)
                own = {"criterion": criterion, "judges": f"{first}, {second}", "responses": both}
                pairs.append({**own, "Spearman": rho, "ICC(A,1)": icc})
        return singles, pairs

    def _column(self, criterion: str, judge: str) -> Floats:
        return np.array([each.marks.get(judge, {}).get(criterion, nan) for each in self._drawn])

    def _compare(self, left: Floats, right: Floats, with_icc: bool = False) -> tuple[Interval, Interval]:
        """Spearman's rho and ICC(A,1) where both are known, with intervals that resample dialogues."""
        known = ~np.isnan(left + right)
        if known.sum() < LEAST_OBSERVATIONS:
            return Interval(nan), Interval(nan)
        names = [each.dialogue for each, is_known in zip(self._drawn, known, strict=True) if is_known]
        dialogue_of: Integers = np.unique(names, return_inverse=True)[1]
        columns = np.stack([left[known], right[known]])
        draws = draw_dialogues(int(dialogue_of.max()) + 1, self._rounds, self._seed)
        rho = find_interval(compute_spearman(*columns), resample_spearman(columns, dialogue_of, draws)[:, 0, 1])
        if not with_icc:
            return rho, Interval(nan)
        return rho, bound_intraclass(columns.T, self._rounds, self._seed, dialogue_of)["agreement"]


def build_page(singles: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]], summary: Sequence[str]) -> Page:
    """A table of judges, one of pairs, and a warning for each criterion that follows length or place."""
    tables = [Table("", [*rows[0]], [[*row.values()] for row in rows]) for rows in (singles, pairs) if rows]
    warnings = [
        f"warning: {row['criterion']} by {row['judge']} follows {what} (Spearman {row[name]})"
        for row in singles
        for name, (least, what) in WARNINGS.items()
        if abs(row[name].value) >= least and (row[name].low > 0 or row[name].high < 0)
    ]
    return Page(title="Marks", summary=summary, sections=[Section("Marks", tables=tables, paragraphs=warnings)])
