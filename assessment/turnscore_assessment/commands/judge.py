"""`turnscore judge`: its options, the question before the first call, and what is said at the end."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from turnscore_assessment.command_line import RoundsOption, command_of, refuse_input, reported_errors
from turnscore_assessment.commands.agreement import show_progress
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.files import write_rows
from turnscore_assessment.judging.asking import Interview, JudgeError, Judges, ledger_path, open_ledger
from turnscore_assessment.judging.collecting import Collection
from turnscore_assessment.judging.importing import Import, Source
from turnscore_assessment.judging.report import MarkStatistics, build_page
from turnscore_assessment.judging.rubric import read_rubric, read_template
from turnscore_assessment.judging.stand_in import MOST_ASKED, StandIn
from turnscore_assessment.judging.turns import read_responses, stem_of
from turnscore_assessment.rendering import print_page

INCOMPLETE, INTERRUPTED = 3, 130  # Exit statuses: marks are lacking; stopped by the user.


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Judges):
    """Collect marks of turns from large language models, or import marks that exist."""

    file: Annotated[
        Path | None, Argument(exists=True, dir_okay=False, help="Dialogues, turns or judged rows: JSON lines, or CSV.")
    ] = None
    rubric: Annotated[Path | None, Option(exists=True, dir_okay=False, help="The criteria; see --template.")] = None
    output: Annotated[Path | None, Option("--output", "-o", dir_okay=False, help="JSON lines; .gz packs them.")] = None
    template: Annotated[bool, Option("--template", help="Print a rubric to start from, and exit.")] = False
    share: Annotated[float, Option(min=0, max=1, help="Share of the dialogues that is judged.")] = 1.0
    yes: Annotated[bool, Option("--yes", "-y", help="Ask nothing before the first call.")] = False
    source: Annotated[Source | None, Option("--import", help="Read marks that exist instead of asking.")] = None
    texts: Annotated[
        list[Path] | None, Option(exists=True, dir_okay=False, help="With --import: traces or spans with the texts.")
    ] = None
    only_uncertain: Annotated[
        bool, Option("--only-uncertain", help="Ask only where scorers are unsure; needs --scorer and --held-out.")
    ] = False
    scorers: Annotated[
        list[str] | None, Option("--scorer", help="A criterion's bundle: a folder (with a /) or name; repeatable.")
    ] = None
    held_out: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="Rows with marks; those of split dev are used.")
    ] = None
    most_asked: Annotated[float, Option(min=0, max=1, help="Share of turns that may be asked.")] = MOST_ASKED
    report: Annotated[Path | None, Option(dir_okay=False, help="File for the figures, as JSON.")] = None
    rounds: RoundsOption = ROUNDS


def run_judge(options: JudgeOptions) -> None:
    """Prints the template, imports, or asks."""
    if options.template:
        typer.echo(read_template(), nl=False)
        return
    if options.file is None or options.output is None:
        raise typer.BadParameter("give a FILE and an --output, or --template")
    inputs = [each for each in (options.file, options.rubric, options.held_out, *(options.texts or [])) if each]
    refuse_input(options.output, inputs, "--output")
    statistics = MarkStatistics(options.seed, options.rounds)
    with reported_errors():
        status, said = (_import if options.source else _ask)(options, options.file, options.output, statistics)
    singles, pairs = statistics.measure()
    print_page(build_page(singles, pairs, said), {"judges": singles, "pairs": pairs}, options.report)
    raise typer.Exit(status)


judge = command_of(JudgeOptions, run_judge)


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
        stand_in = StandIn(options.scorers or [], rubric)
        stand_in.choose(read_responses(options.held_out or file), options.names, options.most_asked)
        for band in stand_in.bands:
            typer.echo(band.description, err=True)
    with open_ledger(output, rubric) as ledger:
        collection = Collection(file, rubric, ledger, options.names, options.share, stand_in)
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
    if options.only_uncertain and not (options.scorers and options.held_out):
        raise typer.BadParameter("needs --scorer and --held-out", param_hint="--only-uncertain")


def _collect(options: JudgeOptions, collection: Collection, interview: Interview) -> int:
    """Scores, estimates and asks; the exit status, where that was cut short."""
    if collection.stand_in:
        with show_progress("scoring", None) as advance:
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
        with show_progress("asking", turns) as advance:
            asyncio.run(interview.ask(client, collection.to_ask, advance))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        return INTERRUPTED
    except JudgeError as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    return 0
