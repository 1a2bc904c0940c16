"""Judged rows as turns with one criterion's mark, and their features, which are computed once and kept."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm
from turnscore_assessment.data.dialogues import FIT, LabelledTurn, choose_split
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import Flags, Floats, Integers
from turnscore_assessment.files import check_row, read_rows
from turnscore_core.inference.devices import usable_cpus
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.quality import QualityScorer
from turnscore_models.bundle import Bundle
from turnscore_wire import Turn

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.bundle import serve_features

TRAIN, HELD_OUT = "train", "dev"
MARK, PEOPLE = "mark", "people."
ROWS_OF_FILE = 256  # Of features: 4 MB, and what an interrupted run computes again at most.

Features = NDArray[np.float32]


class JudgedResponse(BaseModel):
    """A response; its further fields are the marks, by criterion."""

    model_config = ConfigDict(extra="allow")

    text: str
    judges: int = 1  # 0 where a scorer stood in for the judge.
    people: dict[str, float] = {}

    @property
    def marks(self) -> dict[str, float]:
        """The judges' marks, and people's as `people.NAME`; of a stand-in's answer none."""
        given = (self.model_extra or {}).items() if self.judges else ()
        marks = {name: float(mark) for name, mark in given if isinstance(mark, int | float)}
        return marks | {PEOPLE + name: mark for name, mark in self.people.items()}

    def judges_of(self, mark: str, models: Sequence[str]) -> set[str]:
        """Who gave the mark; where the response does not say it, the row's `models`."""
        if mark.startswith(PEOPLE):
            return {PEOPLE.removesuffix(".")}
        given = (self.model_extra or {}).get("marks")
        if not isinstance(given, Mapping):
            return set(models)
        return {judge for judge, found in given.items() if isinstance(found, Mapping) and mark in found}


class JudgedRow(BaseModel):
    """One context and its judged responses, as `turnscore judge` writes them."""

    set: str = ""
    dialogue: Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]
    split: str | None = None
    context: list[Turn]
    responses: list[JudgedResponse]
    rubric: str = ""
    models: list[str] = []
    scales: dict[str, tuple[float, float]] = {}


@dataclass
class Judgements:
    """The marked turns of some files, `labels` holding the mark as 0 to 1, and who gave the marks on which scale."""

    turns: list[LabelledTurn] = field(default_factory=list)
    scale: tuple[float, float] = (0.0, 1.0)
    is_scale_guessed: bool = False
    judges: set[str] = field(default_factory=set)
    rubrics: set[str] = field(default_factory=set)

    @cached_property
    def wanted(self) -> Floats:
        """The marks as 0 to 1."""
        return np.array([turn.labels[MARK] for turn in self.turns])

    @cached_property
    def dialogue_of(self) -> Integers:
        """Each turn's dialogue as a number."""
        return np.unique([turn.dialogue for turn in self.turns], return_inverse=True)[1]

    @property
    def dialogues(self) -> int:
        """How many dialogues the turns are of."""
        return len({turn.dialogue for turn in self.turns})

    def part(self, split: str) -> Flags:
        """Which turns are of that split."""
        return np.array([turn.split == split for turn in self.turns])


def read_judgements(files: Sequence[Path], mark: str, scale: tuple[float, float] | None = None) -> Judgements:
    """The turns that have this mark. The scale is the given one, else the rows', else what the marks look like.

    A row without a split has the one that its dialogue's name decides. BadFileError names the row that is wrong;
    ExporterError where no response has the mark.
    """
    found = Judgements()
    marked: list[tuple[Path, int, JudgedRow, JudgedResponse, float]] = []
    others: set[str] = set()
    scales: set[tuple[float, float]] = set()
    for path in files:
        for line, record in read_rows(path):
            row = check_row(JudgedRow.model_validate, path, line, record)
            for each in row.responses:
                if mark in each.marks and each.text.strip():
                    marked.append((path, line, row, each, each.marks[mark]))
                    found.judges |= each.judges_of(mark, row.models)
                    found.rubrics |= {row.rubric} - {""}
                others |= each.marks.keys()
            scales |= {scale for name, scale in row.scales.items() if name == mark.removeprefix(PEOPLE)}
    if not marked:
        known = ", ".join(sorted(others)) or "none"
        raise ExporterError(f"no response has the mark {mark!r}; there are {known}; --mark names the one to learn")
    if len(scales) > 1 and scale is None:
        raise ExporterError(f"{mark} has marks on {len(scales)} scales: give --scale, and rows of that scale only")
    found.is_scale_guessed = scale is None and not scales
    guessed = (1.0, 5.0) if any(mark > 1 for *_, mark in marked) else (0.0, 1.0)
    low, high = found.scale = scale or next(iter(scales), guessed)
    if not low < high:
        raise ExporterError(f"the scale of {mark} is {low:g} to {high:g} in the rows; give the right one by --scale")
    for path, line, row, each, given in marked:
        if not low <= given <= high:
            raise BadFileError(path, line, f"the {mark} of a response is {given:g}, and the scale {low:g} to {high:g}")
        split = row.split or (TRAIN if choose_split(row.dialogue) == FIT else HELD_OUT)
        found.turns.append(
            LabelledTurn(
                set_name=row.set,
                dialogue=f"{row.set} {row.dialogue}",
                split=TRAIN if split == TRAIN else HELD_OUT,
                context=tuple((turn.speaker, turn.text) for turn in row.context),
                response=each.text,
                labels={MARK: (given - low) / (high - low)},
            )
        )
    return found


class FeatureReader:
    """The encoder of a bundle of quality: features of turns, and what its heads say of them."""

    def __init__(self, bundle: Bundle, kept_in: Path) -> None:
        """Raises ExporterError where the bundle is another scorer's."""
        self.loaded: LoadedScorer = load_scorer(bundle, choose_variant(bundle), threads=usable_cpus())
        if not isinstance(self.loaded.scorer, QualityScorer):
            raise ExporterError(f"{bundle.manifest.reference} is not a bundle of quality")
        self._scorer = self.loaded.scorer
        self._kept_in = kept_in

    def read(self, turns: Sequence[LabelledTurn]) -> Features:
        """Features [turns, columns]; those in the folder are not computed again, new ones are kept there."""
        self._kept_in.mkdir(parents=True, exist_ok=True)
        batches = [turns[start : start + ROWS_OF_FILE] for start in range(0, len(turns), ROWS_OF_FILE)]
        return np.concatenate([self._read(each) for each in tqdm(batches, "features", unit="batch", disable=None)])

    def _read(self, turns: Sequence[LabelledTurn]) -> Features:
        texts = repr((self.loaded.pass_key, [(turn.context, turn.response) for turn in turns]))
        place = self._kept_in / f"{hashlib.sha256(texts.encode()).hexdigest()[:32]}.npy"
        if place.exists():
            return cast("Features", np.load(place))
        found, _ = serve_features(self._scorer, [self._scorer.trim(turn.to_score()) for turn in turns])
        partial = place.with_suffix(".partial")
        with partial.open("wb") as file:
            np.save(file, found)
        partial.replace(place)
        return found

    def answer(self, features: Features) -> Floats:
        """Quality's heads [turns, heads]."""
        return self._scorer.answer(features)
