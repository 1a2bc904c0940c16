"""The rated turns that may be fitted on, and their ratings on one scale."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from turnscore_assessment.data.development_sets import RATINGS_FILE, THUMBS_FILE
from turnscore_assessment.data.rated_turns import DAILYDIALOG, RatedTurn, read_rated_turns, read_thumbs


def read_fitted_turns(folder: Path, *, with_dailydialog: bool) -> list[RatedTurn]:
    """The rated turns that may be fitted on: by the committed split, without DailyDialog's texts unless asked for."""
    turns = read_rated_turns(folder / RATINGS_FILE) + read_thumbs(folder / THUMBS_FILE)
    return [turn for turn in turns if turn.is_fitted_on and (with_dailydialog or turn.set_name != DAILYDIALOG)]


def scale_ratings(turns: Sequence[RatedTurn]) -> list[float]:
    """Each rating as its place, 0 to 1, among those of its set: scales and raters of sets differ."""
    places = [0.0] * len(turns)
    for name in sorted({turn.set_name for turn in turns}):
        members = [index for index, turn in enumerate(turns) if turn.set_name == name]
        ratings = np.array([turns[index].rating for index in members])
        for index, rating in zip(members, ratings, strict=True):
            places[index] = float(((ratings < rating).mean() + (ratings <= rating).mean()) / 2)
    return places
