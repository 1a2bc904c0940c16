"""Prepares the quality model's training data: groups of labelled examples in a file. Trains nothing."""

import gzip
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

from turnscore_assessment.agreement.bundles import load_bundles, score_turns
from turnscore_assessment.data.population import read_population
from turnscore_service.scorers.loaded_scorer import LoadedScorer
from turnscore_service.scorers.scorer import TurnToScore
from turnscore_wire import Turn

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.quality.dailydialog import read_dailydialog
from turnscore_exporters.quality.examples import (
    Example,
    ExampleMaker,
    ExampleRecipe,
    Group,
    make_bot_examples,
)
from turnscore_exporters.quality.near_misses import NearMisses
from turnscore_exporters.quality.negatives import Negatives
from turnscore_exporters.quality.spoken_turns import SOURCES, SpokenTurn, TurnSource, read_source
from turnscore_exporters.training.encoders import load_encoder

TEACHER = "engagement"
TAUGHT_CHARACTERS = 4000
"""Of a text the teacher sees so many characters; it reads no more tokens than that anyway."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What is made: the groups of people's turns and the systems' turns of each part of the training, in order."""

    sources: Sequence[TurnSource] = SOURCES
    recipe: ExampleRecipe = field(default_factory=ExampleRecipe)
    group_counts: tuple[int, ...] = (9_000, 18_000)
    bot_counts: tuple[int, ...] = (6_000, 12_000)
    encoder: str = "minilm-l6"
    teacher: str = "engagement"
    """The bundle whose values the head `engaging` learns."""
    seed: int = 0

    def scaled(self, factor: float) -> "Preparation":
        """The same with so many times the turns drawn and the groups made."""
        sources = [
            replace(each, person_turns=int(each.person_turns * factor), bot_turns=int(each.bot_turns * factor))
            for each in self.sources
        ]
        groups = tuple(int(count * factor) for count in self.group_counts)
        bots = tuple(int(count * factor) for count in self.bot_counts)
        return replace(self, sources=sources, group_counts=groups, bot_counts=bots)


def prepare_groups(folder: Path, output: Path, wanted: Preparation) -> list[Path]:
    """Writes one file of groups for each part into the folder `output`, unless it is there; returns the files."""
    files = [output / f"groups{part}.jsonl.gz" for part in range(len(wanted.group_counts))]
    if all(file.exists() for file in files):
        return files
    people, bots = read_spoken_turns(folder, wanted)
    write_parts(gather_material(people, bots, wanted), files, wanted)
    return files


@dataclass(frozen=True)
class Material:
    """What groups are made of: people's turns with their near misses, and systems' turns."""

    people: Sequence[SpokenTurn]
    bots: Sequence[SpokenTurn]
    negatives: Negatives


def read_spoken_turns(folder: Path, wanted: Preparation) -> tuple[list[SpokenTurn], list[SpokenTurn]]:
    """People's and systems' turns of all sources, without the dialogues that percentiles refer to."""
    left_out = read_population(folder).dialogues
    turns = [
        turn
        for source in wanted.sources
        for turn in read_source(folder, source, wanted.seed)
        if turn.dialogue not in left_out
    ]
    return [turn for turn in turns if turn.said_by_person], [turn for turn in turns if not turn.said_by_person]


def gather_material(people: Sequence[SpokenTurn], bots: Sequence[SpokenTurn], wanted: Preparation) -> Material:
    """The turns with the near misses among people's."""
    near_misses = NearMisses(people, load_encoder(wanted.encoder), wanted.seed)
    return Material(people, bots, Negatives(people, near_misses))


def write_parts(material: Material, files: Sequence[Path], wanted: Preparation) -> None:
    """Writes a file of groups for each part."""
    groups = iter(ExampleMaker(material.people, material.negatives, wanted.recipe, wanted.seed).epoch(0))
    bots = list(material.bots)
    random.Random(wanted.seed).shuffle(bots)  # noqa: S311
    remaining = iter(bots)
    teacher = load_teacher(wanted.teacher)
    for part, file in enumerate(files):
        drawn = list(islice(groups, wanted.group_counts[part]))
        drawn += ask_systems(list(islice(remaining, wanted.bot_counts[part])), wanted.recipe)
        random.Random(wanted.seed + part).shuffle(drawn)  # noqa: S311
        write_groups(file, teach_engagement(drawn, teacher))


def prepare_dailydialog(folder: Path, output: Path, wanted: Preparation) -> Path:
    """Writes the groups of what descends from DailyDialog, unless they are there; returns the file."""
    file = output / "dailydialog.jsonl.gz"
    if not file.exists():
        turns, groups = read_dailydialog(folder, wanted.seed)
        near_misses = NearMisses(turns, load_encoder(wanted.encoder), wanted.seed)
        groups += ExampleMaker(turns, Negatives(turns, near_misses), wanted.recipe, wanted.seed).epoch(0)
        random.Random(wanted.seed).shuffle(groups)  # noqa: S311
        write_groups(file, teach_engagement(groups, load_teacher(wanted.teacher)))
    return file


def ask_systems(turns: Sequence[SpokenTurn], recipe: ExampleRecipe) -> list[Group]:
    """A group of its own for each turn of a system."""
    return [[example] for example in make_bot_examples(turns, recipe.labels)]


def load_teacher(reference: str) -> LoadedScorer:
    """The engagement bundle of that name or folder; ExporterError where it is another scorer's."""
    loaded = load_bundles([reference]).get(TEACHER)
    if loaded is None:
        raise ExporterError(f"--teacher {reference} is no bundle of the scorer {TEACHER}")
    return loaded


def teach_engagement(groups: Sequence[Group], teacher: LoadedScorer) -> list[Group]:
    """The groups with the teacher's value wherever nothing is known of the head `engaging`."""
    unknown = [each for group in groups for each in group if math.isnan(each.engaging)]
    scores = score_turns(teacher, [_turn(each) for each in unknown])
    taught = iter(replace(each, engaging=score.value) for each, score in zip(unknown, scores, strict=True))
    return [[next(taught) if math.isnan(each.engaging) else each for each in group] for group in groups]


def _turn(example: Example) -> TurnToScore:
    context = [
        Turn.model_validate({"speaker": speaker, "text": text[-TAUGHT_CHARACTERS:]})
        for speaker, text in example.context
    ]
    return TurnToScore(context, example.response[:TAUGHT_CHARACTERS])


def write_groups(path: Path, groups: Iterable[Group]) -> None:
    """One JSON line a group; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with gzip.open(partial, "wt", encoding="utf-8") as lines:
        for group in groups:
            lines.write(json.dumps([asdict(each) for each in group]) + "\n")
    partial.replace(path)


def read_groups(path: Path) -> list[Group]:
    """What write_groups wrote."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [[_read_example(record) for record in json.loads(line)] for line in lines]


def _read_example(record: dict[str, object]) -> Example:
    context = record.pop("context")
    assert isinstance(context, list)
    return Example(context=tuple((speaker, text) for speaker, text in context), **record)  # type: ignore[arg-type]
