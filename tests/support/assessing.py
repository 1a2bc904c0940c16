"""Ratings made up here."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from turnscore_assessment.ratings.form import Criterion, RatedDialogue, SpokenTurn, StudyDescription
from turnscore_assessment.ratings.rating_file import RatingFile


def published_row(system: str, worker: str = "w", **ratings: float) -> dict[str, Any]:
    """A conversation in the form in which the published ratings lie."""
    names = ("interesting", "fun", "consistent", "fluent", "topic", "robotic", "repetitive")
    return {
        "worker": worker,
        "hit": "h",
        "position": 0,
        "model": system,
        "topic": [{"round": 0, "topic": "dogs", "attitude": "like"}],
        "ratings": {name: ratings.get(name, 50) for name in names},
        "turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}],
    }


def make_study(
    truth: Mapping[str, float],
    *,
    workers: int = 24,
    guessers: int = 0,
    seed: int = 0,
    dialogues_each: int = 1,
    noise: float = 12.0,
    with_degraded: bool = True,
) -> RatingFile:
    """A simulated study: every worker has a scale of their own and rates every system; guessers rate at random.

    `truth` is each system's mean on the 0 to 100 scale; three positive criteria and a negative one.
    """
    generator = np.random.default_rng(seed)
    criteria = (
        Criterion(name="interesting"),
        Criterion(name="fun"),
        Criterion(name="fluent"),
        Criterion(name="repetitive", direction="negative"),
    )
    rows = []
    for number in range(workers + guessers):
        scale, shift = generator.uniform(0.5, 1), generator.normal(0, 8)
        names = [*truth, *(["broken"] if with_degraded else [])] * dialogues_each
        for position, place in enumerate(generator.permutation(len(names))):
            system = names[place]
            quality = truth.get(system, 8.0)
            taste = generator.normal(0, noise)
            given = {}
            for criterion in criteria:
                wanted = quality if criterion.direction == "positive" else 100 - quality
                if system == "broken" and criterion.direction == "negative":
                    wanted = 10.0  # what is random does not repeat itself
                value = shift + 50 + scale * (wanted + taste - 50) + generator.normal(0, noise)
                given[criterion.name] = float(
                    np.round(np.clip(value if number < workers else generator.uniform(0, 100), 0, 100))
                )
            rows.append(
                RatedDialogue(
                    worker=f"person-{number}",
                    hit="h",
                    position=position,
                    system=system,
                    degraded=system == "broken",
                    ratings=given,
                    seconds=60.0 * (1 + place),
                    turns=(
                        SpokenTurn(speaker="user", text="what a day"),
                        SpokenTurn(speaker="system", text="indeed"),
                        SpokenTurn(speaker="user", text="bye"),
                    ),
                )
            )
    return RatingFile(StudyDescription(study="simulated", criteria=criteria), rows)
