"""How far raters agree beyond chance: every coefficient of a table of items by raters, with its interval."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.figures import Floats, Interval
from turnscore_assessment.files import read_csv
from turnscore_assessment.ratings.rating_file import RatedDialogue, build_table, read_ratings, standardize
from turnscore_assessment.ratings.reliability_coefficients import SCALES, bound_alpha, bound_intraclass

COLUMNS = ("item", "rater", "value")
MOST_CELLS = 20_000_000
"""Most items times raters, which are in memory at once. Chosen: 160 MB."""


@dataclass(frozen=True)
class RatedItems:
    """The ratings of several people; `table` has a row per item and a column per rater, NaN for no rating."""

    name: str
    table: Floats


def read_items(path: Path) -> list[RatedItems]:
    """The tables of a file: one per criterion, raw and z-scored by worker, or the only one of a CSV.

    Raises BadFileError naming the line and the field.
    """
    return [_read_csv(path)] if path.suffix == ".csv" else _read_study(path)


def arrange(path: Path, name: str, rows: Iterable[tuple[str, str, float]]) -> RatedItems:
    """The table of (item, rater, value); a rater's several values for one item are averaged."""
    listed = list(rows)
    items = {item: number for number, item in enumerate(dict.fromkeys(item for item, _, _ in listed))}
    raters = {rater: number for number, rater in enumerate(dict.fromkeys(rater for _, rater, _ in listed))}
    if len(items) * len(raters) > MOST_CELLS:
        raise BadFileError(path, 0, f"{len(items)} items of {len(raters)} raters are too many for one table")
    places = np.array([items[item] * len(raters) + raters[rater] for item, rater, _ in listed], dtype=np.intp)
    size = len(items) * len(raters)
    sums = np.bincount(places, [value for _, _, value in listed], minlength=size)
    counts = np.bincount(places, minlength=size)
    table = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    return RatedItems(name, table.reshape(len(items), len(raters)))


def _read_study(path: Path) -> list[RatedItems]:
    ratings = read_ratings(path)
    kept = [number for number, row in enumerate(ratings.dialogues) if row.dialogue is not None and not row.degraded]
    if not kept:
        raise BadFileError(path, 0, "dialogue: no line names one, so nothing was rated by several people")
    table = build_table(ratings)
    found = []
    for kind, values in (("raw", table.ratings), ("z", standardize(table))):
        columns = np.column_stack([values, values.mean(axis=1)])
        for column, name in enumerate([*ratings.description.names, "overall"]):
            rated = ((ratings.dialogues[number], float(columns[number, column])) for number in kept)
            found.append(arrange(path, f"{name}, {kind}", ((_name(row), row.worker, at) for row, at in rated)))
    return found


def _name(row: RatedDialogue) -> str:
    """Of a dialogue among those of all systems, each of which may have a dialogue 1."""
    return repr((row.system, row.dialogue))


def _read_csv(path: Path) -> RatedItems:
    rows = [_read_row(path, *row) for row in read_csv(path, COLUMNS).rows]
    if not rows:
        raise BadFileError(path, 0, "has no rating")
    return arrange(path, path.stem, rows)


def _read_row(path: Path, number: int, row: dict[str, str | None]) -> tuple[str, str, float]:
    item, rater, value = (row[name] for name in COLUMNS)
    if not item or not rater:
        raise BadFileError(path, number, "item and rater must not be empty")
    try:
        found = float(value or "")
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise BadFileError(path, number, f"value: {value!r} is not a number")
    return item, rater, found


INTRACLASS = {
    "ICC(C,1)": "consistency",
    "ICC(C,k)": "consistency_of_mean",
    "ICC(A,1)": "agreement",
    "ICC(A,k)": "agreement_of_mean",
}
ALPHAS = {f"alpha {scale}": scale for scale in SCALES}
FIGURES = [*INTRACLASS, *ALPHAS]
NOTHING = Interval(float("nan"))


@dataclass(frozen=True, kw_only=True)
class Reliability:
    name: str
    items: int
    raters: float
    """k: how many rated an item, the harmonic mean where that differs."""
    figures: Mapping[str, Interval]
    undefined: Sequence[str]
    """Why a figure is missing."""


def measure_reliability(rated: RatedItems, rounds: int, seed: int) -> Reliability:
    table = rated.table
    figures = dict.fromkeys(FIGURES, NOTHING)
    undefined: list[str] = []
    try:
        found = bound_intraclass(table, rounds, seed)
        figures |= {name: found[field] for name, field in INTRACLASS.items()}
    except AssessmentError as error:
        undefined.append(str(error))
    for name, scale in ALPHAS.items():
        try:
            figures[name] = bound_alpha(table, scale, rounds, seed)
        except AssessmentError as error:
            undefined.append(str(error))
    return Reliability(
        name=rated.name,
        items=len(table),
        raters=_average_raters(table),
        figures=figures,
        undefined=list(dict.fromkeys(undefined)),
    )


def _average_raters(table: Floats) -> float:
    counts = (~np.isnan(table)).sum(axis=1)
    return float(len(counts) / (1 / counts).sum())
