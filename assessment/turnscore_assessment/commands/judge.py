"""`turnscore judge`: what is asked, what a scorer answers, how judges agree, and what is said at the end."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from math import nan
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Argument, Option

from turnscore_assessment import command_line
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import (
    LEAST_OBSERVATIONS,
    ROUNDS,
    Floats,
    Integers,
    Interval,
    compute_spearman,
    draw_dialogues,
    find_interval,
    resample_spearman,
)
from turnscore_assessment.files import write_rows
from turnscore_assessment.judging.asking import Interview, JudgeError, Judges, Ledger, ledger_path, open_ledger
from turnscore_assessment.judging.importing import Import, Source
from turnscore_assessment.judging.rubric import Rubric, read_rubric, read_template
from turnscore_assessment.judging.stand_in import MOST_ASKED, StandIn
from turnscore_assessment.judging.turns import (
    PEOPLE,
    RESPONSE_CHARACTERS,
    Marks,
    Response,
    Row,
    describe_response,
    drop_marks,
    read_responses,
    stem_of,
)
from turnscore_assessment.ratings.reliability import bound_intraclass
from turnscore_assessment.rendering import Page, Section, Table, print_page

MOST_MEASURED = 10_000  # Responses that correlations are computed of, drawn at random. Chosen: some seconds.
WITH_PEOPLE, WITH_LENGTH, WITH_PLACE = "with people", "with length", "with place in the call"
# Least correlations, with an interval that excludes 0, that a sentence warns of.
WARNINGS = {
    WITH_LENGTH: (0.3, "the response's length, and a criterion learned from these marks would, too"),
    WITH_PLACE: (0.1, "the place in the call: ask fewer turns per call"),
}


@dataclass(frozen=True, slots=True)
class _Observation:
    dialogue: str
    characters: int
    marks: Mapping[str, Marks]  # By judge; those of people are `people`'s.
    places: Mapping[str, int]  # By judge, the place in its call.


class MarkStatistics:
    """Counts all marks, and keeps a random draw of responses to correlate."""

    def __init__(self, seed: int, rounds: int) -> None:
        self._seed, self._rounds = seed, rounds
        self._random = random.Random(seed)  # noqa: S311
        self._seen = 0
        self._drawn: list[_Observation] = []
        self._counts: Counter[tuple[str, str]] = Counter()  # By criterion and judge.
        self._sums: Counter[tuple[str, str]] = Counter()

    def add(self, dialogue: str, response: Mapping[str, Any], places: Mapping[str, int]) -> None:
        """Adds a response of an output's row."""
        marks = {**response["marks"], PEOPLE: response.get(PEOPLE, {})}
        for judge, found in marks.items():
            for criterion, mark in found.items():
                self._counts[criterion, judge] += 1
                self._sums[criterion, judge] += mark
        self._seen += 1
        place = len(self._drawn) if self._seen <= MOST_MEASURED else self._random.randrange(self._seen)
        if place < MOST_MEASURED:
            self._drawn[place : place + 1] = [_Observation(dialogue, len(response["text"]), marks, places)]

    def measure(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Each judge's figures and each pair's, for each criterion; correlations are Spearman's."""
        singles, pairs = [], []
        for criterion in dict.fromkeys(name for name, _ in self._counts):
            judges = [judge for name, judge in self._counts if name == criterion and judge != PEOPLE]
            marks = {judge: self._column(criterion, judge) for judge in [*judges, PEOPLE]}
            lengths = np.array([each.characters for each in self._drawn], dtype=np.float64)
            for judge in judges:
                count = self._counts[criterion, judge]
                own = {"criterion": criterion, "judge": judge, "marks": count}
                places = np.array([each.places.get(judge, nan) for each in self._drawn])
                others = {WITH_PEOPLE: marks[PEOPLE], WITH_LENGTH: lengths, WITH_PLACE: places}
                figures = {name: self._compare(marks[judge], other)[0] for name, other in others.items()}
                singles.append({**own, "mean": self._sums[criterion, judge] / count, **figures})
            for first, second in combinations(judges, 2):
                both = int((~np.isnan(marks[first] + marks[second])).sum())
                if not both:
                    continue
                rho, icc = self._compare(marks[first], marks[second], with_icc=True)
                own = {"criterion": criterion, "judges": f"{first}, {second}", "responses": both}
                pairs.append({**own, "Spearman": rho, "ICC(A,1)": icc})
        return singles, pairs

    def _column(self, criterion: str, judge: str) -> Floats:
        return np.array([each.marks.get(judge, {}).get(criterion, nan) for each in self._drawn])

    def _compare(self, left: Floats, right: Floats, with_icc: bool = False) -> tuple[Interval, Interval]:
        """Spearman's rho and ICC(A,1) where both are known, with intervals that resample dialogues."""
        known = ~np.isnan(left + right)
        if known.sum() < LEAST_OBSERVATIONS:
            return Interval(nan), Interval(nan)
        names = [each.dialogue for each, is_known in zip(self._drawn, known, strict=True) if is_known]
        dialogue_of: Integers = np.unique(names, return_inverse=True)[1]
        columns = np.stack([left[known], right[known]])
        draws = draw_dialogues(int(dialogue_of.max()) + 1, self._rounds, self._seed)
        rho = find_interval(compute_spearman(*columns), resample_spearman(columns, dialogue_of, draws)[:, 0, 1])
        if not with_icc:
            return rho, Interval(nan)
        return rho, bound_intraclass(columns.T, self._rounds, self._seed, dialogue_of)["agreement"]


def build_page(singles: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]], summary: Sequence[str]) -> Page:
    """A table of judges, one of pairs, and a warning for each criterion that follows length or place."""
    tables = [Table("", [*rows[0]], [[*row.values()] for row in rows]) for rows in (singles, pairs) if rows]
    warnings = [
        f"warning: {row['criterion']} by {row['judge']} follows {what} (Spearman {row[name]})"
        for row in singles
        for name, (least, what) in WARNINGS.items()
        if abs(row[name].value) >= least and (row[name].low > 0 or row[name].high < 0)
    ]
    return Page(title="Marks", summary=summary, sections=[Section("Marks", tables=tables, paragraphs=warnings)])


SCORED_AT_ONCE = 256  # Responses that a scorer gets together. Chosen: batches of like length, and answers are kept.


@dataclass
class JudgedFile:
    """The responses of a file that are judged, and what is known of them."""

    file: Path
    rubric: Rubric
    ledger: Ledger
    models: list[str]
    share: float = 1.0
    stand_in: StandIn | None = None
    too_long: list[int] = field(default_factory=list)  # Lines of responses that no judge reads.

    def responses(self) -> Iterator[Response]:
        """The responses that may be judged."""
        self.too_long = []
        for row in read_responses(self.file, self.share):
            self.too_long += [row.line for each in row.responses if len(each.turn.response) > RESPONSE_CHARACTERS]
            yield from (each for each in row.responses if len(each.turn.response) <= RESPONSE_CHARACTERS)

    def score(self, advance: Callable[[int], None]) -> None:
        """Gets the stand-in's marks of all responses into the ledger, those of every criterion at once."""
        waiting = self.responses()
        while self.stand_in and (block := list(islice(waiting, SCORED_AT_ONCE))):
            known = {name: self.ledger.marks.get(scorer, {}) for name, scorer in self.stand_in.keys.items()}
            lacking = {each.key: each for each in block if any(each.key not in marks for marks in known.values())}
            for name, marks in self.stand_in.score([*lacking.values()]).items() if lacking else ():
                new = {key: each for key, each in marks.items() if key not in known[name]}
                self.ledger.add(self.stand_in.keys[name], new)
            advance(len(block))

    def to_ask(self) -> Iterator[Response]:
        """The responses that judges are asked about: all, or those that the scorer is unsure of."""
        return (each for each in self.responses() if self._is_asked(each))

    def _is_asked(self, each: Response) -> bool:
        return self.stand_in is None or self.stand_in.is_unsure(self.ledger.marks, each.key)

    def write(self, output: Path, statistics: MarkStatistics) -> int:
        """Writes the rows that have a mark; returns how many marks of judges are lacking."""
        # By the name in the ledger, the name in the rows.
        scorers = (
            {self.stand_in.keys[name]: each for name, each in self.stand_in.names.items()} if self.stand_in else {}
        )
        models = {name: name for name in (*self.models, *self.ledger.tokens)}
        common = {"rubric": self.rubric.sha256, "scales": self.rubric.scales, "models": [*models, *scorers.values()]}
        lacking = 0

        def find_marks(names: dict[str, str], key: str) -> dict[str, Marks]:
            known = {shown: self.ledger.marks.get(name, {}).get(key) for name, shown in names.items()}
            return {name: marks for name, marks in known.items() if marks}

        def describe(row: Row, each: Response) -> dict[str, Any]:
            nonlocal lacking
            is_asked = self._is_asked(each)
            if is_asked and len(each.turn.response) <= RESPONSE_CHARACTERS:
                lacking += sum(self.ledger.lacks(judge, each.key) for judge in self.models)
            marks = find_marks(models, each.key)
            judges = len(marks)
            if not marks and not is_asked:
                marks = find_marks(scorers, each.key)
            response = describe_response(drop_marks(each.fields, self.rubric.criteria), marks, judges)
            statistics.add(row.dialogue, response, self.ledger.find_places(each.key))
            return response

        def rows() -> Iterator[dict[str, Any]]:
            for row in read_responses(self.file, self.share):
                responses = [describe(row, each) for each in row.responses]
                if any(each["marks"] for each in responses):
                    yield row.to_json(responses, **common)

        write_rows(output, rows())
        return lacking


INCOMPLETE, INTERRUPTED = 3, 130  # Exit statuses: marks are lacking; stopped by the user.


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Judges):
    """Collect marks of turns from large language models, or import marks that exist."""

    file: Annotated[
        Path | None, Argument(exists=True, dir_okay=False, help="Dialogues, turns or judged rows: JSON lines, or CSV.")
    ] = None
    rubric: Annotated[Path | None, command_line.file_option("The criteria; see --template.")] = None
    output: Annotated[Path | None, Option("--output", "-o", dir_okay=False, help="JSON lines; .gz packs them.")] = None
    template: Annotated[bool, Option("--template", help="Print a rubric to start from, and exit.")] = False
    share: Annotated[float, Option(min=0, max=1, help="Share of the dialogues that is judged.")] = 1.0
    yes: Annotated[bool, Option("--yes", "-y", help="Skip the confirmation prompt.")] = False
    source: Annotated[Source | None, Option("--import", help="Read marks that exist instead of asking.")] = None
    texts: Annotated[list[Path] | None, command_line.file_option("With --import: traces or spans with the texts.")] = (
        None
    )
    only_uncertain: Annotated[
        bool, Option("--only-uncertain", help="Ask only where scorers are unsure; needs --bundle and --held-out.")
    ] = False
    bundles: Annotated[
        list[str] | None, Option("--bundle", help="A criterion's bundle: a folder (with a /) or name; repeatable.")
    ] = None
    held_out: Annotated[Path | None, command_line.file_option("Rows with marks; those of split dev are used.")] = None
    most_asked: Annotated[float, Option(min=0, max=1, help="Share of turns that may be asked.")] = MOST_ASKED
    report: Annotated[Path | None, Option(dir_okay=False, help="File for the figures, as JSON.")] = None
    rounds: command_line.RoundsOption = ROUNDS


def run_judge(options: JudgeOptions) -> None:
    """Prints the template, imports, or asks."""
    if options.template:
        typer.echo(read_template(), nl=False)
        return
    if options.file is None or options.output is None:
        raise typer.BadParameter("give a FILE and an --output, or --template")
    inputs = [each for each in (options.file, options.rubric, options.held_out, *(options.texts or [])) if each]
    command_line.refuse_input(options.output, inputs, "--output")
    statistics = MarkStatistics(options.seed, options.rounds)
    status, said = (_import if options.source else _ask)(options, options.file, options.output, statistics)
    singles, pairs = statistics.measure()
    print_page(build_page(singles, pairs, said), {"judges": singles, "pairs": pairs}, options.report)
    raise typer.Exit(status)


judge = command_line.command_of(JudgeOptions, run_judge)


def _import(options: JudgeOptions, file: Path, output: Path, statistics: MarkStatistics) -> tuple[int, list[str]]:
    rubric = read_rubric(options.rubric) if options.rubric else None
    found = Import(options.source or "csv", rubric, next(iter(options.names), None))
    for path in (file, *(options.texts or [])):
        found.read(path)
    rows = list(found.rows(stem_of(file)))
    left_out = [f"left out {count:,} marks: {reason}" for reason, count in found.left_out.items()]
    if not rows:
        raise BadFileError(file, 0, "; ".join(["has no marks of responses", *left_out]))
    write_rows(output, rows)
    for row in rows:
        statistics.add(row["dialogue"], row["responses"][0], {})
    if found.averaged:
        left_out.append(f"averaged {found.averaged:,} marks with another of the same response, judge and criterion")
    scales = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in found.scales.items())
    said = f"scales: {scales}{'' if rubric else ', as the marks suggest; a --rubric says it'}"
    return 0, [*left_out, said, f"wrote {output}: {len(rows):,} responses"]


def _ask(options: JudgeOptions, file: Path, output: Path, statistics: MarkStatistics) -> tuple[int, list[str]]:
    _check_options(options)
    rubric = read_rubric(options.rubric or file)
    stand_in = None
    if options.only_uncertain:
        stand_in = StandIn(options.bundles or [], rubric)
        stand_in.choose(read_responses(options.held_out or file), options.names, options.most_asked)
        for band in stand_in.bands:
            typer.echo(band.description, err=True)
    with open_ledger(output, rubric) as ledger:
        collection = JudgedFile(file, rubric, ledger, options.names, options.share, stand_in)
        interview = Interview(options, rubric, ledger)
        status = _collect(options, collection, interview)
        if status and not any(ledger.marks.values()):
            raise typer.Exit(status)
        lacking = collection.write(output, statistics)
        said = [f"{count:,} calls gave no mark: {reason}" for reason, count in interview.problems.items()]
        if collection.too_long:
            lines = ", ".join(map(str, collection.too_long[:5]))
            said.append(f"{len(collection.too_long):,} responses are too long to be judged, in lines {lines}")
        if interview.is_over_budget:
            said.append(f"stopped before the budget of ${options.budget:g} was passed")
        if lacking:
            said.append(f"{lacking:,} turns lack a judge's marks; the same command asks for them again")
        if options.price_in:
            said.append(f"cost so far: ${interview.spent:.4f}")
    incomplete = INCOMPLETE if lacking or collection.too_long else 0
    return status or incomplete, [*said, f"wrote {output} and {ledger_path(output)}"]


def _check_options(options: JudgeOptions) -> None:
    if options.rubric is None or not options.names:
        raise typer.BadParameter("asking needs --rubric and a --model")
    prices = [len(options.price_in or []), len(options.price_out or [])]
    if any(prices) and prices != [len(options.names)] * 2:
        raise typer.BadParameter("give --price-in and --price-out for each --model")
    if options.budget is not None and not any(prices):
        raise typer.BadParameter("needs --price-in and --price-out", param_hint="--budget")
    if options.only_uncertain and not (options.bundles and options.held_out):
        raise typer.BadParameter("needs --bundle and --held-out", param_hint="--only-uncertain")


def _collect(options: JudgeOptions, collection: JudgedFile, interview: Interview) -> int:
    """Scores, estimates and asks; the exit status, where that was cut short."""
    if collection.stand_in:
        with command_line.show_progress("scoring", None) as advance:
            collection.score(advance)
    turns, calls, tokens = interview.estimate(collection.to_ask())
    if not turns:
        return 0
    client = options.open_client()
    sent, received = (sum(each[place] for each in tokens.values()) for place in (0, 1))
    cost = f", about ${options.cost(tokens):.2f}" if options.price_in else "; --price-in and --price-out give the cost"
    said = f"{turns:,} turns to ask in {calls:,} calls, about {sent:,} tokens to send and {received:,} to receive"
    typer.echo(said + cost, err=True)
    if not options.yes and sys.stdin.isatty():
        typer.confirm("Ask?", default=True, abort=True, err=True)
    try:
        with command_line.show_progress("asking", turns) as advance:
            asyncio.run(interview.ask(client, collection.to_ask, advance))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        return INTERRUPTED
    except JudgeError as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    return 0
