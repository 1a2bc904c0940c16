"""The development sets as experiments measure them: judged items, columns of scores, and their agreement with people.

Correlations have intervals from resampled dialogues; they are taken by system, and given length.
"""

import dataclasses
import math
import platform
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from turnscore_assessment.agreement.scoring import VALUE, average_parts
from turnscore_assessment.data.dialogues import (
    SET_NAME,
    SYSTEM,
    LabelledTurn,
    RecordedDialogue,
    read_development_sets,
    read_dialogues,
    read_population,
    read_sets,
)
from turnscore_assessment.figures import (
    LEAST_OBSERVATIONS,
    Flags,
    Floats,
    Integers,
    Interval,
    compute_auc,
    compute_partial_correlation,
    compute_pearson,
    compute_spearman,
    draw_dialogues,
    find_interval,
    find_partial,
    resample_auc,
    resample_pearson,
    resample_spearman,
)
from turnscore_assessment.rendering import Page
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, TurnToScore
from turnscore_core.scoring import score_turns

DBDC3 = "dbdc3"
TURNS, DIALOGUES = "turns", "dialogues"
PASSED = "_pass"  # Ends the name of a file whose raters passed the published quality control.


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedItem:
    """A judged turn, or a judged dialogue with all its system turns."""

    dialogue: str
    system: str
    rating: float
    turns: Sequence[TurnToScore]
    references: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JudgedSet:
    """Items that people judged in one way."""

    name: str
    unit: str
    items: Sequence[JudgedItem]
    # What people said of each system on average; empty where the set does not compare systems.
    system_ratings: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def is_binary(self) -> bool:
        """Whether people answered good or bad, so that the AUC is measured."""
        return {each.rating for each in self.items} <= {0.0, 1.0}

    @property
    def turns(self) -> int:
        return sum(len(each.turns) for each in self.items)


def read_judged_sets(folder: Path, most_turns: int, seed: int) -> list[JudgedSet]:
    """Every development set in the folder; of a larger one, whole dialogues of about `most_turns` turns."""
    found = []
    for name, rated in read_development_sets(folder).items():
        found.append(JudgedSet(name=name, unit=TURNS, items=[_make_item([turn]) for turn in rated]))
        if name == DBDC3:
            found.append(_gather_dialogues(rated))
    if (folder / SET_NAME).exists():
        found.append(_read_assessed(folder))
    return [_sample(each, most_turns, seed) for each in found]


def _make_item(turns: Sequence[LabelledTurn]) -> JudgedItem:
    """The turns of one dialogue; its rating is their mean."""
    first = turns[0]
    return JudgedItem(
        dialogue=first.dialogue,
        system=first.system,
        rating=average([turn.rating for turn in turns]),
        turns=[turn.to_score() for turn in turns],
    )


def _gather_dialogues(rated: Sequence[LabelledTurn]) -> JudgedSet:
    dialogues = group_by((turn.dialogue, turn) for turn in rated)
    ratings = group_by((turn.system, turn.rating) for turn in rated)
    return JudgedSet(
        name=f"{DBDC3} dialogues",
        unit=DIALOGUES,
        items=[_make_item(turns) for turns in dialogues.values()],
        system_ratings={system: average(given) for system, given in ratings.items()},
        note="A dialogue's rating is the mean of its turns'.",
    )


def _read_assessed(folder: Path) -> JudgedSet:
    """The dialogues that no model was trained on; a system's rating is over all dialogues of its raters."""
    described = next(each for each in read_sets() if each.name == SET_NAME)
    unseen = read_population(folder).dialogues
    items: list[JudgedItem] = []
    ratings: list[tuple[str, float]] = []
    for file in described.files:
        if PASSED not in file or not (folder / file).exists():
            continue
        for dialogue in read_dialogues(folder / file):
            if dialogue.system in described.left_out_systems:
                continue
            rating = average([float(each) for each in dialogue.ratings.values()])
            ratings.append((dialogue.system, rating))
            name = f"{file} {dialogue.id} {dialogue.order}"
            if name in unseen:
                items.append(
                    JudgedItem(dialogue=name, system=dialogue.system, rating=rating, turns=_system_turns(dialogue))
                )
    return JudgedSet(
        name=f"{SET_NAME} dialogues",
        unit=DIALOGUES,
        items=items,
        system_ratings={system: average(given) for system, given in group_by(ratings).items()},
        note="Dialogues that no shipped model was trained on, of raters who passed the quality control; a dialogue's "
        "rating is the mean of its ratings, a system's that over all dialogues of these raters.",
    )


def _system_turns(dialogue: RecordedDialogue) -> list[TurnToScore]:
    said = [(turn.speaker, turn.text) for turn in dialogue.turns]
    return [
        LabelledTurn(context=tuple(said[:place]), response=text).to_score()
        for place, (speaker, text) in enumerate(said)
        if speaker == SYSTEM and text.strip()
    ]


def _sample(each: JudgedSet, most_turns: int, seed: int) -> JudgedSet:
    drawn = draw_places(each.items, most_turns, seed)
    if len(drawn) == len(each.items):
        return each
    note = f"A sample of {len(drawn)} of {len(each.items)}. {each.note}".strip()
    return dataclasses.replace(each, items=[each.items[place] for place in drawn], note=note)


def draw_places(items: Sequence[JudgedItem], most_turns: int, seed: int) -> list[int]:
    """The places of the items of dialogues drawn at random, until they hold `most_turns` turns or are all."""
    if sum(len(each.turns) for each in items) <= most_turns:
        return list(range(len(items)))
    of_dialogue = group_by((each.dialogue, place) for place, each in enumerate(items))
    names = sorted(of_dialogue)
    random.Random(seed).shuffle(names)
    drawn: list[int] = []
    turns = 0
    for name in names:
        if turns >= most_turns:
            break
        drawn += of_dialogue[name]
        turns += sum(len(items[place].turns) for place in of_dialogue[name])
    return sorted(drawn)


def group_by(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    """The second of each pair, grouped by the first, in order."""
    groups: dict[str, list[Any]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


def average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


SLOW = "fed"  # The scorer that takes ten times as long as the others, so it scores fewer turns.
SUMMED = ("engagement", "sentiment_stop")
MIXED = ("quality", *SUMMED)
LENGTH = "length in characters"
POSITION: Mapping[str, str] = {"turns": "position in the dialogue", DIALOGUES: "system turns in the dialogue"}
_PERCENTILE = "percentile"

Parts = Mapping[str, float]  # One scorer's numbers of one turn: `value`, `percentile` and its details.
TurnKey = tuple[tuple[str, ...], str]
Say = Callable[[str], None]


@dataclass(frozen=True)
class ScoredSet:
    """A set with a column of numbers for each score, then for each baseline.

    NaN where a scorer was not asked or does not count the turn.
    """

    judged: JudgedSet
    columns: Mapping[str, Floats]


def score_sets(
    sets: Sequence[JudgedSet], scorers: Mapping[str, LoadedScorer], slow_turns: int, seed: int, say: Say
) -> list[ScoredSet]:
    """The columns of every set. Equal turns of several sets are scored once."""
    parts: dict[str, list[list[Parts]]] = {}
    for name, loaded in scorers.items():
        known: dict[TurnKey, tuple[Parts, bool]] = {}
        parts[name] = []
        for judged in sets:
            places = draw_places(judged.items, slow_turns, seed) if name == SLOW else range(len(judged.items))
            asked = set(places)
            _score_into(known, loaded, [judged.items[place] for place in places])
            say(f"{name}: {judged.name}")
            parts[name].append(
                [_item_parts(each, known) if place in asked else {} for place, each in enumerate(judged.items)]
            )
    return [
        ScoredSet(
            judged,
            _score_columns({name: each[number] for name, each in parts.items()}) | length_and_position(judged),
        )
        for number, judged in enumerate(sets)
    ]


def _score_into(known: dict[TurnKey, tuple[Parts, bool]], loaded: LoadedScorer, items: Sequence[JudgedItem]) -> None:
    fresh = {key_of(turn): turn for item in items for turn in item.turns if key_of(turn) not in known}
    for (key, turn), raw in zip(fresh.items(), score_turns(loaded, list(fresh.values())), strict=True):
        details = {} if loaded.name == SLOW else raw.details
        percentile = loaded.percentile(raw)
        parts = {name: value for name, value in details.items() if not name.endswith(PERCENTILE_SUFFIX)}
        parts |= {VALUE: raw.value, _PERCENTILE: math.nan if percentile is None else percentile}
        known[key] = parts, loaded.scorer.counts_in_dialogue(turn)


def key_of(turn: TurnToScore) -> TurnKey:
    """A turn's identity for every scorer: all but who spoke."""
    return tuple(f"{each.speaker}:{each.text}" for each in turn.context), turn.response


def _item_parts(item: JudgedItem, known: Mapping[TurnKey, tuple[Parts, bool]]) -> Parts:
    """A turn's numbers; a dialogue's are the means over the turns that count."""
    found = [known[key_of(turn)] for turn in item.turns]
    if len(found) == 1:
        return found[0][0]
    return average_parts([parts for parts, counts in found if counts])


def _score_columns(of_scorer: Mapping[str, Sequence[Parts]]) -> dict[str, Floats]:
    columns: dict[str, Floats] = {}
    for name, items in of_scorer.items():
        columns[name] = _column(items, VALUE)
        details = sorted({part for parts in items for part in parts} - {VALUE, _PERCENTILE})
        columns |= {f"{name}: {part}": _column(items, part) for part in details}
    if set(SUMMED) <= of_scorer.keys():
        columns[" + ".join(SUMMED)] = np.sum([columns[name] for name in SUMMED], axis=0)
    for mixed in (SUMMED, MIXED):
        if set(mixed) <= of_scorer.keys():
            columns[f"mean of percentiles: {', '.join(mixed)}"] = np.mean(
                [_column(of_scorer[name], _PERCENTILE) for name in mixed], axis=0
            )
    return columns


def _column(items: Sequence[Parts], part: str) -> Floats:
    return np.array([parts.get(part, math.nan) for parts in items], dtype=np.float64)


def length_and_position(judged: JudgedSet) -> dict[str, Floats]:
    """The baselines: how long each item is and where it stands."""
    lengths = [np.mean([len(turn.response) for turn in item.turns]) for item in judged.items]
    positions = [
        len(item.turns) if judged.unit == DIALOGUES else len(item.turns[0].context) + 1 for item in judged.items
    ]
    return {LENGTH: np.array(lengths, dtype=np.float64), POSITION[judged.unit]: np.array(positions, dtype=np.float64)}


ALL = "all"
LEAST_SYSTEMS = 3  # With fewer systems, an order says nothing. Specified.


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One column's agreement with people's ratings; NaN where undefined."""

    items: int
    agreement: Interval  # Spearman's rho, or the AUC where people answered good or bad.
    pearson: Interval
    given_length: Interval  # The partial Spearman correlation.


@dataclass(frozen=True)
class SystemAgreement:
    """How a column's means over systems correlate with people's, and the systems in its order, best first."""

    pearson: Interval
    spearman: Interval
    order: Sequence[str]  # Empty where a system has no figure, or all have the same.


Draws = tuple[int, int]  # Rounds and seed.


def measure_set(scored: ScoredSet, draws: Draws) -> dict[str, dict[str, Figures]]:
    """Figures by system, all together first, and column; single systems only where there are several."""
    systems = np.array([item.system for item in scored.judged.items])
    groups = {ALL: np.full(len(systems), True)}
    if len(set(systems)) > 1:
        groups |= {str(name): systems == name for name in np.unique(systems)}
    return {name: dict(_measure_group(scored, chosen, draws)) for name, chosen in groups.items()}


def _measure_group(scored: ScoredSet, chosen: Flags, draws: Draws) -> Iterator[tuple[str, Figures]]:
    """The columns in order; those of the same items are resampled together."""
    ratings = np.array([item.rating for item in scored.judged.items])
    names = np.array([item.dialogue for item in scored.judged.items])
    columns = scored.columns
    masks = {name: (chosen & ~np.isnan(column)).tobytes() for name, column in columns.items()}
    found: dict[str, Figures] = {}
    for mask in dict.fromkeys(masks.values()):
        kept = np.frombuffer(mask, dtype=np.bool_)
        together = {name: column[kept] for name, column in columns.items() if masks[name] == mask}
        _, dialogue_of = np.unique(names[kept], return_inverse=True)
        length = columns[LENGTH][kept]
        found |= _measure_columns(together, ratings[kept], length, dialogue_of, scored.judged.is_binary, draws)
    yield from ((name, found[name]) for name in columns)


def _measure_columns(
    columns: Mapping[str, Floats],
    ratings: Floats,
    length: Floats,
    dialogue_of: Integers,
    is_binary: bool,
    draws: Draws,
) -> dict[str, Figures]:
    if len(ratings) < LEAST_OBSERVATIONS:
        nothing = find_interval(math.nan, [])
        empty = Figures(items=len(ratings), agreement=nothing, pearson=nothing, given_length=nothing)
        return dict.fromkeys(columns, empty)
    drawn = draw_dialogues(int(dialogue_of.max()) + 1, *draws)
    stacked = np.stack([ratings, length, *columns.values()])
    ranked, straight = (method(stacked, dialogue_of, drawn) for method in (resample_spearman, resample_pearson))
    found = {}
    for place, (name, column) in enumerate(columns.items(), start=2):
        agreement = find_interval(compute_spearman(column, ratings), ranked[:, 0, place])
        if is_binary:
            agreement = find_interval(compute_auc(column, ratings), resample_auc(column, ratings, dialogue_of, drawn))
        partial = compute_partial_correlation(column, ratings, length, ranks=True)
        found[name] = Figures(
            items=len(ratings),
            agreement=agreement,
            pearson=find_interval(compute_pearson(column, ratings), straight[:, 0, place]),
            given_length=find_interval(partial, find_partial(ranked[:, [0, place, 1]][:, :, [0, place, 1]], 2)),
        )
    return found


def order_systems(scored: ScoredSet, draws: Draws) -> tuple[list[str], dict[str, SystemAgreement]]:
    """The systems in people's order, and each column's order of them; nothing where there are too few."""
    rated = scored.judged.system_ratings
    names = sorted(rated, key=lambda name: -rated[name])
    if len(names) < LEAST_SYSTEMS:
        return [], {}
    wanted = np.array([rated[name] for name in names])
    of_system = np.array([names.index(item.system) for item in scored.judged.items])
    _, dialogue_of = np.unique([item.dialogue for item in scored.judged.items], return_inverse=True)
    drawn = draw_dialogues(int(dialogue_of.max()) + 1, *draws)
    found = {}
    for name, column in scored.columns.items():
        weights = np.vstack([np.ones(len(column)), drawn[:, dialogue_of]])
        means = _system_means(column, of_system, len(names), weights)
        pearson = [compute_pearson(each, wanted) for each in means]
        spearman = [compute_spearman(each, wanted) for each in means]
        order = sorted(range(len(names)), key=lambda place: -means[0, place])
        found[name] = SystemAgreement(
            pearson=find_interval(pearson[0], pearson[1:]),
            spearman=find_interval(spearman[0], spearman[1:]),
            order=[names[place] for place in order] if np.ptp(means[0]) > 0 else [],
        )
    return names, found


def _system_means(column: Floats, of_system: Integers, systems: int, weights: Floats) -> Floats:
    """The column's mean over each system [rounds, systems], each item as often as its weight [rounds, items]."""
    kept = ~np.isnan(column)
    members = np.eye(systems)[of_system[kept]]
    counts = weights[:, kept] @ members
    sums = weights[:, kept] @ (members * column[kept, None])
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def to_results(page: Page) -> dict[str, Any]:
    """A page as the files of results/ have it."""
    tables = [
        {"title": each.heading, "conditions": each.paragraphs, "columns": table.header, "rows": table.rows}
        for each in page.sections
        for table in each.tables
    ]
    machine = platform.processor() or platform.machine()
    document = {"command": page.command, "machine": machine, "date": page.date, "conditions": page.summary}
    return {**document, "tables": tables}
