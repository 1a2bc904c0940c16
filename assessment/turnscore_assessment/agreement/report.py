"""The report on agreement: one run, and its figures as a table to print, Markdown, JSON and a scatter plot."""

import hashlib
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from turnscore_assessment import figures
from turnscore_assessment.agreement import scoring
from turnscore_assessment.agreement.scoring import AgreementOptions, JudgedDialogue, ScoredFile
from turnscore_assessment.errors import AgreementError
from turnscore_assessment.figures import Correlations, Flags, Floats, Integers, Interval
from turnscore_assessment.rendering import Page, Section, Table, show, write_report

Level = Literal["turn", "dialogue"]

CHARACTERS, WORDS = "length in characters", "length in words"
POSITION: Mapping[Level, str] = {"turn": "position in the dialogue", "dialogue": "turns in the dialogue"}

AVERAGED_TURNS = "means of people's judgements of turns, as the file judges no dialogue"


@dataclass(frozen=True)
class ScoreColumn:
    """A scorer's part or a baseline: one number per observation, NaN where there is none."""

    name: str
    values: Floats
    is_baseline: bool


@dataclass(frozen=True)
class Observations:
    """The columns and judgements of one level."""

    level: Level
    against: str
    qualities: Floats
    dialogue_of: Integers
    systems: Sequence[str | None]
    columns: Sequence[ScoreColumn]


def find_levels(dialogues: Sequence[JudgedDialogue], asked: str) -> tuple[list[Level], list[str]]:
    """The levels to measure: `turn`, `dialogue`, or with `both` those that the file has judgements for.

    Also the sentences that say why a level is left out. Raises AgreementError with them where none can be measured.
    """
    levels: tuple[Level, ...] = ("turn", "dialogue")
    wanted = [level for level in levels if asked in (level, "both")]
    problems = {level: _find_problem(list(_judge(dialogues, level).values()), level) for level in wanted}
    possible = [level for level, problem in problems.items() if problem is None]
    reasons = [problem for problem in problems.values() if problem is not None]
    if not possible:
        raise AgreementError(f"cannot measure: {'; '.join(reasons)}")
    return possible, reasons


def choose_parts(scored: Sequence[ScoredFile], parts: Sequence[str]) -> list[tuple[ScoredFile, str]]:
    """Each scorer with each of its parts that was asked for; AgreementError for a part or scorer without a match."""
    for part in parts:
        if not any(part in file.parts for file in scored):
            known = "; ".join(f"{file.scorer} has {', '.join(file.parts)}" for file in scored)
            raise AgreementError(f"no scorer has a part {part!r}; {known}")
    for file in scored:
        if not set(parts) & set(file.parts):
            raise AgreementError(f"{file.scorer} has none of these parts: {', '.join(parts)}")
    return [(file, part) for file in scored for part in parts if part in file.parts]


def observe(dialogues: Sequence[JudgedDialogue], parts: Sequence[tuple[ScoredFile, str]], level: Level) -> Observations:
    """Scores, baselines and judgements of one level; `parts` holds scores of these dialogues in their order."""
    qualities = _judge(dialogues, level)
    columns = []
    for file, part in parts:
        known = [(file.dialogues[number], place) for number, place in qualities]
        scored = [scores.dialogue if place is None else scores.turns[place] for scores, place in known]
        columns.append(ScoreColumn(file.name_of(part), _floats(each.get(part, math.nan) for each in scored), False))
    measures = [_measure(dialogues[number], place) for number, place in qualities]
    columns += [
        ScoreColumn(name, _floats(column), True)
        for name, column in zip((CHARACTERS, WORDS, POSITION[level]), zip(*measures, strict=True), strict=True)
    ]
    judged = f"people's judgements of {level}s"
    is_averaged = level == "dialogue" and all(dialogue.quality is None for dialogue in dialogues)
    against = AVERAGED_TURNS if is_averaged else judged
    dialogue_of = np.array([number for number, _ in qualities], dtype=np.intp)
    systems = [dialogues[number].system for number in dialogue_of]
    return Observations(level, against, _floats(qualities.values()), dialogue_of, systems, columns)


def _find_problem(qualities: Sequence[float], level: Level) -> str | None:
    if len(qualities) < figures.LEAST_OBSERVATIONS:
        return (
            f"{level} level, as {len(qualities)} {level}s have a `quality` and {figures.LEAST_OBSERVATIONS} are needed"
        )
    if len(set(qualities)) == 1:
        return f"{level} level, as the `quality` of all {len(qualities)} {level}s is {qualities[0]:g}"
    return None


_Places = dict[tuple[int, int | None], float]


def _judge(dialogues: Sequence[JudgedDialogue], level: Level) -> _Places:
    """People's judgements by dialogue's index and turn's place; None stands for the whole dialogue.

    Dialogues are never judged on two scales at once: the turns' judgements stand in only where no dialogue is judged.
    """
    numbered = list(enumerate(dialogues))
    if level == "turn":
        return {(number, place): found for number, each in numbered for place, found in each.turn_qualities.items()}
    judged: _Places = {(number, None): each.quality for number, each in numbered if each.quality is not None}
    return judged or {
        (number, None): math.fsum(each.turn_qualities.values()) / len(each.turn_qualities)
        for number, each in numbered
        if each.turn_qualities
    }


def _measure(dialogue: JudgedDialogue, place: int | None) -> tuple[float, float, float]:
    """A turn's characters, words and position; a dialogue's means over its system turns, and its number of turns."""
    places = dialogue.system_places if place is None else [place]
    texts = [dialogue.turns[each].text for each in places]
    characters = sum(len(text) for text in texts) / len(texts)
    words = sum(len(text.split()) for text in texts) / len(texts)
    return characters, words, float(len(dialogue.turns) if place is None else place + 1)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class MeasuredColumn(Correlations):
    """One column's correlations; baselines have nothing in `given`."""

    name: str
    is_baseline: bool
    observations: int  # The observations with both a judgement and a score.


@dataclass(frozen=True)
class Group:
    """One system's dialogues, or those of all."""

    system: str
    observations: int
    dialogues: int
    rows: Sequence[MeasuredColumn]


def measure(observed: Observations, rounds: int, seed: int) -> list[Group]:
    """All figures of one level: all systems together first, then each where the file names more than one."""
    systems = np.array([system or "" for system in observed.systems])
    groups = [_measure_group(observed, "all", np.full(len(systems), True), rounds, seed)]
    names = np.unique(systems)
    if len(names) > 1:
        groups += [_measure_group(observed, str(name) or "(unnamed)", systems == name, rounds, seed) for name in names]
    return groups


def _measure_group(observations: Observations, system: str, chosen: Flags, rounds: int, seed: int) -> Group:
    rows = []
    for column in observations.columns:
        kept = chosen & ~np.isnan(column.values)
        others = () if column.is_baseline else observations.columns
        found = figures.correlate_clustered(
            column.values[kept],
            observations.qualities[kept],
            {each.name: each.values[kept] for each in others if each.is_baseline},
            observations.dialogue_of[kept],
            rounds,
            seed,
        )
        count = int(kept.sum())
        rows.append(MeasuredColumn(name=column.name, is_baseline=column.is_baseline, observations=count, **vars(found)))
    return Group(system, int(chosen.sum()), len(np.unique(observations.dialogue_of[chosen])), rows)


HEADER = ("system", "score", "n", "Pearson", "Spearman", "Kendall", "Pearson given length", "Spearman given length")


@dataclass(frozen=True)
class MeasuredLevel:
    observations: Observations
    groups: Sequence[Group]


def _show_level(measured: MeasuredLevel) -> Section:
    everything, level = measured.groups[0], measured.observations.level
    count = f"{everything.observations} turns of " if level == "turn" else ""
    title = f"{level} level: {count}{everything.dialogues} dialogues, against {measured.observations.against}"
    rows = [_cells(group, row) for group in measured.groups for row in group.rows]
    return Section(f"{level.capitalize()} level", tables=[Table(title, HEADER, rows)])


def _cells(group: Group, row: MeasuredColumn) -> list[object]:
    given: Mapping[str, Interval] = row.given.get(CHARACTERS, {})
    partial = [given.get(name) for name in ("pearson", "spearman")]
    name = f"{row.name} (baseline)" if row.is_baseline else row.name
    return [group.system, name, row.observations, row.pearson, row.spearman, row.kendall, *partial]


PANEL_INCHES = 4.2
MOST_COLOURS = 10  # Systems with a colour of their own, as many as matplotlib's default cycle has.


def draw_scatter(levels: Sequence[MeasuredLevel], path: Path) -> None:
    """Writes a PNG: a row of panels per score, a panel per level, systems in colours."""
    from matplotlib.figure import Figure

    names = [column.name for column in levels[0].observations.columns if not column.is_baseline]
    figure = Figure(figsize=(PANEL_INCHES * len(levels), PANEL_INCHES * len(names)), layout="constrained")
    panels = figure.subplots(len(names), len(levels), squeeze=False)
    for across, level in enumerate(levels):
        for down, name in enumerate(names):
            _draw_panel(panels[down][across], level, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _draw_panel(panel: Any, level: MeasuredLevel, name: str) -> None:
    observations = level.observations
    column: ScoreColumn = next(each for each in observations.columns if each.name == name)
    row: MeasuredColumn = next(each for each in level.groups[0].rows if each.name == name)
    systems = np.array([system or "(unnamed)" for system in observations.systems])
    shown = np.unique(systems)
    has_colours = 1 < len(shown) <= MOST_COLOURS
    for system in shown if has_colours else [None]:
        chosen = np.full(len(systems), True) if system is None else systems == system
        # Fainter points where there are many, so that dense places do not fill up.
        faintness = float(np.clip(100 / len(systems), 0.15, 0.8))
        panel.scatter(
            column.values[chosen], observations.qualities[chosen], s=10, alpha=faintness, linewidths=0, label=system
        )
    if has_colours:
        for handle in panel.legend(fontsize="x-small").legend_handles:
            handle.set_alpha(1)
    panel.set_title(f"{name}, {observations.level}s: Spearman {show(row.spearman)}", fontsize="small")
    panel.set_xlabel(name)
    panel.set_ylabel("quality")


def report_agreement(options: AgreementOptions) -> Page:
    """Writes `agreement.html`, `.md`, `.json` and `.png`, replacing old ones; the page, which says so at its end.

    Raises BadFileError for the file, AgreementError for what cannot be scored or measured.
    """
    file, rounds, seed = options.file, options.rounds, options.seed
    read = scoring.read_judged_dialogues(file)
    dialogues = [dialogue for dialogue in map(scoring.drop_empty_turns, read) if dialogue.is_judged]
    try:
        asked, problems = find_levels(dialogues, options.level)
    except AgreementError as error:
        raise AgreementError(f"{file}: {error}") from None
    chosen = choose_parts(scored := scoring.score_dialogues(options, dialogues), options.parts or [scoring.VALUE])
    observed = [observe(dialogues, chosen, level) for level in asked]
    levels = [MeasuredLevel(each, measure(each, rounds, seed)) for each in observed]
    sha256, left_out = hashlib.sha256(file.read_bytes()).hexdigest(), [*_count_empty(read), *problems]
    explanation = (
        f"Each figure with its {figures.CONFIDENCE:.0%} interval from {rounds} resamples of whole dialogues (seed "
        f"{seed}); Kendall is tau-b; given length: partial correlation given the response's characters. A dialogue's "
        "score is the mean over the turns that count for the scorer, its length the mean over its system turns."
    )
    explanation = " ".join([explanation, *(f"Left out: {reason}." for reason in left_out)])
    models = ", ".join(f"{each.model} (graph {each.graph}, digest {each.digest[:12]})" for each in scored)
    words = ["turnscore", "agreement", file.name, *options.words, "--level", options.level]
    page = Page(
        title=f"Agreement with {file.name}",
        summary=[f"{models}; {file.name} has SHA-256 {sha256[:12]}.", explanation],
        sections=list(map(_show_level, levels)),
        command=shlex.join([*words, "--rounds", str(rounds), "--seed", str(seed)]),
    )
    result = {
        "file": file.name,
        "sha256": sha256,
        "bootstrap": {"rounds": rounds, "seed": seed, "confidence": figures.CONFIDENCE, "unit": "dialogue"},
        "models": {each.scorer: {"model": each.model, "digest": each.digest, "graph": each.graph} for each in scored},
        "levels": {
            each.observations.level: {"against": each.observations.against, "groups": each.groups} for each in levels
        },
        "left_out": left_out,
    }
    written = [*write_report(options.output, "agreement", page, result), options.output / "agreement.png"]
    draw_scatter(levels, written[-1])
    return replace(page, summary=[explanation, f"wrote {', '.join(map(str, written))}"])


def _count_empty(dialogues: Sequence[JudgedDialogue]) -> list[str]:
    empty = sum(len(each.turn_qualities) - len(scoring.drop_empty_turns(each).turn_qualities) for each in dialogues)
    return [f"{empty} judged turns without text: the service refuses to score them"] if empty else []
