"""`python experiments/simulate_designs.py`: does each design recover systems whose order is known?

Made-up raters differ in level, in how far they spread their answers, and in taste; dialogues differ in how hard they
are and in which system they suit. Sheets are made, filled and analysed as people's are. Prints the table of
docs/studies.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from scipy import stats
from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_assessment.designs.analysis import CriterionAnalysis, Scoring, analyse_criterion
from turnscore_assessment.designs.form import (
    BEST,
    MIDDLE,
    WORST,
    AskedCriterion,
    DesignItem,
    DesignKey,
    DesignKind,
    DesignQuestion,
    DesignSpec,
    build_option_table,
)
from turnscore_assessment.designs.making import make_design
from turnscore_assessment.figures import Floats, Interval, compute_spearman
from turnscore_assessment.ratings.rating_file import RatingUnit

# Systems' true qualities, in deviations of a single judgement; the first two systems are equal.
QUALITIES = (0.0, 0.0, 0.3, 0.6, 0.9)
# Deviations of a dialogue, a system in a dialogue, a rater's liking of a system, and the rest.
HARDNESS, FIT, TASTE, NOISE = 0.6, 0.5, 0.3, 1.0
LEVEL_SPREAD, STRETCH_SPREAD = 0.8, 0.3  # Deviations of raters' means, and of the logarithm of their spread.
REFERENCE = 1.2  # The quality of the reference.
CRITERION = AskedCriterion(name="quality")
# Raters of the study that gives the truth. Chosen: its error is a seventh of that of a study of 20 raters.
TRUTH_RATERS = 1000


Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class StudySize:
    """The number of raters, and how many of the dialogues each judges."""

    raters: int = 20
    per_rater: int = 20
    dialogues: int = 40


def make_key(kind: DesignKind, size: StudySize, seed: int, systems: int = len(QUALITIES)) -> DesignKey:
    """A design of made-up items; in biased magnitude estimation the standard differs by dialogue."""
    turn = LabelledTurn(context=(), response="text")
    items = [
        DesignItem(dialogue=f"d{dialogue}", system=f"s{system}", turn=turn)
        for dialogue in range(size.dialogues)
        for system in range(systems)
    ]
    if kind.is_magnitude:
        standards = np.random.default_rng(seed).integers(20, 120, size.dialogues)
        items += [
            DesignItem(dialogue=f"d{dialogue}", system="human", turn=turn, reference=True, standard=float(standard))
            for dialogue, standard in enumerate(standards)
        ]
    spec = DesignSpec(
        kind=kind, study="simulated", criteria=[CRITERION], raters=size.raters, per_rater=size.per_rater, seed=seed
    )
    return make_design(items, spec).key


class SimulatedRaters:
    """Fills a design's questions; the same seed gives the same raters, dialogues and answers."""

    def __init__(self, key: DesignKey, seed: int, qualities: Sequence[float] = QUALITIES) -> None:
        self._key = key
        self._generator = generator = np.random.default_rng(seed)
        self._raters = {name: place for place, name in enumerate(sorted({each.rater for each in key.questions}))}
        self._dialogues = {name: place for place, name in enumerate(sorted({each.dialogue for each in key.questions}))}
        self._systems = {option: int(item.system[1:]) for option, item in key.items.items()}
        self._qualities = np.array(qualities)
        self._hardness = generator.normal(0, HARDNESS, len(self._dialogues))
        self._fit = generator.normal(0, FIT, (len(self._dialogues), len(qualities)))
        self._taste = generator.normal(0, TASTE, (len(self._raters), len(qualities)))
        self._level = generator.normal(0, LEVEL_SPREAD, len(self._raters))
        self._stretch = np.exp(generator.normal(0, STRETCH_SPREAD, len(self._raters)))

    def answer(self) -> dict[tuple[str, int], dict[str, float]]:
        """Every question's answer, in the form that `read_answer` returns."""
        return {(question.rater, question.question): self._answer(question) for question in self._key.questions}

    def _answer(self, question: DesignQuestion) -> dict[str, float]:
        rater, dialogue = self._raters[question.rater], self._dialogues[question.dialogue]
        systems = [self._systems[option] for option in question.options]
        liked = self._qualities[systems] + self._fit[dialogue, systems] + self._taste[rater, systems]
        liked = liked + self._generator.normal(0, NOISE, len(systems))
        given = self._express(liked, rater, dialogue, question)
        return dict(zip(question.options, given.tolist(), strict=True))

    def _express(self, liked: Floats, rater: int, dialogue: int, question: DesignQuestion) -> Floats:
        kind = self._key.design
        if kind.is_choice:
            ranks = stats.rankdata(-liked)
            if kind is DesignKind.BEST_WORST:
                return np.asarray(np.where(ranks == 1, BEST, np.where(ranks == len(ranks), WORST, MIDDLE)))
            return np.asarray(ranks)
        if kind.is_magnitude:
            beyond = liked - REFERENCE - self._generator.normal(0, NOISE)
            standard = question.standard or 1.0
            return np.asarray(5 * np.round(standard * np.exp(0.4 * self._stretch[rater] * beyond) / 5)).clip(0, 999)
        felt = self._level[rater] + self._stretch[rater] * (liked + self._hardness[dialogue] - 0.5)
        if kind is DesignKind.LIKERT:
            return np.asarray(np.round(3.5 + felt)).clip(1, 6)
        return np.asarray(np.round(50 + 15 * felt)).clip(0, 100)


def run_study(key: DesignKey, seed: int, transform: RatingUnit = "z", *, splits: int = 0) -> CriterionAnalysis:
    table = build_option_table(key, SimulatedRaters(key, seed).answer())
    return analyse_criterion(key, CRITERION, table, transform, splits=splits)


def measure_recovery(
    kind: DesignKind, studies: int, size: StudySize, seed: int = 0
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each method of a design, and how well it recovers the truth.

    The truth of a difference comes from one study of very many raters and dialogues.
    """
    large = StudySize(raters=TRUTH_RATERS, per_rater=size.per_rater, dialogues=TRUTH_RATERS)
    truths = [_find_differences(scoring) for scoring in run_study(make_key(kind, large, seed), seed).scorings]
    key = make_key(kind, size, seed)
    found = [run_study(key, seed + 1 + study) for study in range(studies)]
    # Krippendorff's, of items, of the values that the mean is made of.
    alpha = float(np.mean([study.agreement.alpha_interval or 0.0 for study in found]))
    for place, truth in enumerate(truths):
        scorings = [study.scorings[place] for study in found]
        yield scorings[0].method, {**_compare(scorings, truth), "alpha": alpha}


def _find_differences(scoring: Scoring) -> dict[tuple[str, str], Interval]:
    """Of every pair of systems, the one with the higher number less the other, whichever scored higher."""
    found = {}
    for pair in scoring.pairs:
        if pair.first > pair.second:
            found[pair.second, pair.first] = pair.difference
        else:
            each = pair.difference
            found[pair.first, pair.second] = Interval(-each.value, -each.high, -each.low)
    return found


def _compare(scorings: Sequence[Scoring], truths: Mapping[Pair, Interval]) -> dict[str, float]:
    """Mean Spearman correlation of scores with qualities; shares of pairs of systems, over the studies."""
    differences = [_find_differences(scoring) for scoring in scorings]
    equal = [pair for pair in truths if _step(pair) == 0]
    unequal = [pair for pair in truths if _step(pair) > 0]
    neighbours = [pair for pair in unequal if _step(pair) == min(map(_step, unequal))]
    ranked = [sorted(scoring.systems, key=lambda each: each.system) for scoring in scorings]
    shares = {
        "Spearman to the truth": [compute_spearman([e.score.value for e in each], QUALITIES) for each in ranked],
        "pairs in order": [each[pair].value > 0 for each in differences for pair in unequal],
        "intervals hold": [_holds(each[pair], truths[pair].value) for each in differences for pair in truths],
        "false alarms": [not _holds(each[pair], 0.0) for each in differences for pair in equal],
        "neighbours told apart": [each[pair].low > 0 for each in differences for pair in neighbours],
    }
    return {name: float(np.mean(each)) for name, each in shares.items()}


def _step(pair: Pair) -> float:
    lower, higher = (QUALITIES[int(name[1:])] for name in pair)
    return higher - lower


def _holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def main(
    studies: Annotated[int, typer.Option(min=2)] = 1000,
    raters: Annotated[int, typer.Option(min=2)] = 20,
    per_rater: Annotated[int, typer.Option(min=2)] = 20,
    dialogues: Annotated[int, typer.Option(min=2)] = 40,
    seed: int = 0,
) -> None:
    """Prints a line per design and method."""
    size = StudySize(raters=raters, per_rater=per_rater, dialogues=dialogues)
    for kind in DesignKind:
        for method, figures in measure_recovery(kind, studies, size, seed):
            typer.echo(f"{kind} {method}: {', '.join(f'{name} {each:.3f}' for name, each in figures.items())}")


if __name__ == "__main__":
    typer.run(main)
