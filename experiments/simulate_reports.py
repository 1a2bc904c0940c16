"""`python experiments/simulate_reports.py`: how often the report's intervals hold the truth.

Made-up workers differ in level and spread and have their own taste of every dialogue; guessers rate at random. Prints
the table of docs/studies.md.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import typer
from turnscore_assessment.analysis.study_report import build_report
from turnscore_assessment.figures import Floats
from turnscore_assessment.ratings.rating_file import (
    OVERALL,
    Criterion,
    RatedDialogue,
    RatedDialogueTurn,
    RatingFile,
    StudyDescription,
)
from turnscore_assessment.ratings.scoring import judge_study

TRUTH = {"A": 75.0, "B": 60.0, "C": 60.0, "D": 40.0}  # Systems' true means; two are equally good.
# Workers of the study that gives the truth. Chosen: its error is a tenth of that of a study of 20 workers.
TRUTH_WORKERS = 2000
DEGRADED = "broken"
# Means of the degraded system: random replies are bad, and do not repeat themselves.
DEGRADED_QUALITY, DEGRADED_REPETITION = 8.0, 10.0
CRITERIA = (
    Criterion(name="interesting"),
    Criterion(name="fun"),
    Criterion(name="fluent"),
    Criterion(name="repetitive", direction="negative"),
)


def simulate_study(
    truth: Mapping[str, float],
    *,
    workers: int = 24,
    guessers: int = 0,
    seed: int = 0,
    dialogues_each: int = 1,
    noise: float = 12.0,
    with_degraded: bool = True,
) -> RatingFile:
    """A study in which every worker rates every system, the degraded one among them, `dialogues_each` times.

    `truth` is each system's mean on the 0 to 100 scale, `noise` the deviation of a worker's taste of a dialogue and of
    a single rating.
    """
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(workers + guessers):
        scale, shift = generator.uniform(0.5, 1), generator.normal(0, 8)
        names = [*truth, *([DEGRADED] if with_degraded else [])] * dialogues_each
        for position, place in enumerate(generator.permutation(len(names))):
            wanted = _wish(truth, names[place]) + generator.normal(0, noise)
            given = shift + 50 + scale * (wanted - 50) + generator.normal(0, noise, len(CRITERIA))
            if number >= workers:
                given = generator.uniform(0, 100, len(CRITERIA))
            rounded: Floats = np.round(np.clip(given, 0, 100)).astype(np.float64)
            rows.append(_make_row(number, position, names[place], rounded))
    return RatingFile(StudyDescription(study="simulated", criteria=CRITERIA), rows)


def measure_coverage(studies: int, workers: int, rounds: int) -> tuple[float, float]:
    """How many of the intervals of systems' overall scores, and of the differences of two, hold the truth."""
    truth = _find_truth()
    scores, differences = [], []
    for seed in range(studies):
        report = build_report(simulate_study(TRUTH, workers=workers, seed=seed), rounds, seed)
        found = {system.system: system.scores[OVERALL] for system in report.systems}
        scores += [found[name].low <= true <= found[name].high for name, true in truth.items()]
        for pair in report.pairs:
            gap = truth[pair.first] - truth[pair.second]
            differences.append(pair.difference.low <= gap <= pair.difference.high)
    return float(np.mean(scores)), float(np.mean(differences))


def main(studies: Annotated[int, typer.Option(min=1)] = 400, rounds: Annotated[int, typer.Option(min=1)] = 500) -> None:
    """Print the shares of intervals that hold the truth."""
    typer.echo("| workers | system scores | differences of two |\n|---|---|---|")
    for workers in (12, 25, 50):
        shares = measure_coverage(studies, workers, rounds)
        typer.echo(f"| {workers} | {shares[0]:.1%} | {shares[1]:.1%} |")


def _wish(truth: Mapping[str, float], system: str) -> Floats:
    """An average worker's ratings, by criterion."""
    quality = truth.get(system, DEGRADED_QUALITY)
    repetition = DEGRADED_REPETITION if system == DEGRADED else 100 - quality
    return np.array([quality if criterion.direction == "positive" else repetition for criterion in CRITERIA])


def _make_row(number: int, position: int, system: str, given: Floats) -> RatedDialogue:
    said = (("user", "what a day"), ("system", "indeed"), ("user", "bye"))
    return RatedDialogue(
        worker=f"person-{number}",
        hit="h",
        position=position,
        system=system,
        degraded=system == DEGRADED,
        ratings={criterion.name: float(value) for criterion, value in zip(CRITERIA, given, strict=True)},
        seconds=60.0 * (1 + position),
        turns=tuple(RatedDialogueTurn.model_validate({"speaker": speaker, "text": text}) for speaker, text in said),
    )


def _find_truth() -> dict[str, float]:
    """The overall score of each system in a study of very many workers, of those who pass."""
    study = judge_study(simulate_study(TRUTH, workers=TRUTH_WORKERS, seed=10**6))
    means = study.sums.average(study.sums.everyone)[:, -1]
    return {name: float(mean) for name, mean in zip(study.table.systems, means, strict=True)}


if __name__ == "__main__":
    typer.run(main)
