"""A study's ratings as judged dialogues: each with the mean z-score of the workers who passed. Scores nothing."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from turnscore_assessment.errors import BadRatingsError
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_assessment.ratings.rating_table import build_table
from turnscore_assessment.scoring.quality_control import control_quality, find_passing
from turnscore_assessment.scoring.standardization import standardize
from turnscore_assessment.scoring.system_scores import choose_rows

FIRST_LINE = 2
"""Line of a ratings file's first dialogue."""


def read_study(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, row in docs/agreement.md's form) of the dialogues with ordinary systems by workers who pass.

    A dialogue that several judged comes once, with their mean; where dialogues of several systems have one name, the
    system's stands before it. Those without a system turn with text are left out. Raises BadRatingsError for the
    file, TooFewError where no worker passes.
    """
    ratings = read_ratings(path)
    table = build_table(ratings)
    chosen = choose_rows(table, find_passing(control_quality(table)))
    means = standardize(table).mean(axis=1)
    judged: dict[tuple[str, str], list[int]] = {}
    for row in np.flatnonzero(chosen).tolist():
        dialogue = ratings.dialogues[row]
        if any(turn.speaker == "system" and turn.text.strip() for turn in dialogue.turns):
            name = dialogue.dialogue or f"line {row + FIRST_LINE}"
            judged.setdefault((dialogue.system, name), []).append(row)
    if not judged:
        raise BadRatingsError(path, 0, "turns: no dialogue of a passing worker has any")
    systems = Counter(name for _, name in judged)
    for (system, name), rows in judged.items():
        first = ratings.dialogues[rows[0]]
        turns = [turn.model_dump() for turn in first.turns]
        quality = fmean(float(mean) for mean in means[rows])
        own = name if systems[name] == 1 else f"{system}: {name}"
        yield rows[0] + FIRST_LINE, {"id": own, "system": system, "turns": turns, "quality": quality}
