"""`turnscore judge`: its options, the question before the first call, and what is said at the end."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from turnscore_assessment.command_line import RoundsOption, SeedOption, command_of, refuse_input, reported_errors
from turnscore_assessment.commands.agreement import show_progress
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.files import write_rows
from turnscore_assessment.judging.asking import Interview, JudgeError, Judges
from turnscore_assessment.judging.collecting import Collection
from turnscore_assessment.judging.importing import Import, Source
from turnscore_assessment.judging.ledger import Ledger, ledger_path, open_ledger
from turnscore_assessment.judging.report import MarkStatistics, build_page
from turnscore_assessment.judging.rubric import Rubric, read_rubric, read_template
from turnscore_assessment.judging.stand_in import MOST_ASKED, StandIn
from turnscore_assessment.judging.turns import read_responses, stem_of
from turnscore_assessment.rendering import print_page

INCOMPLETE, INTERRUPTED = 3, 130  # Exit statuses: marks are lacking; stopped by the user.


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Collect marks of turns from large language models, or import marks that exist."""

    file: Annotated[
        Path | None,
        Argument(exists=True, dir_okay=False, help="JSON lines of dialogues, turns or judged rows; or CSV."),
    ] = None
    rubric: Annotated[Path | None, Option(exists=True, dir_okay=False, help="The criteria; see --template.")] = None
    models: Annotated[list[str] | None, Option("--model", help="A judge; repeatable.")] = None
    output: Annotated[Path | None, Option("--output", "-o", dir_okay=False, help="JSON lines; .gz packs them.")] = None
    template: Annotated[bool, Option("--template", help="Print a rubric to start from, and exit.")] = False
    base_url: Annotated[str | None, Option(help="An endpoint with OpenAI's API; OPENAI_API_KEY is its key.")] = None
    turns_per_call: Annotated[int, Option(min=1, max=100, help="Turns that a judge reads together.")] = 8
    concurrency: Annotated[int, Option(min=1, max=256, help="Calls in flight.")] = 4
    timeout: Annotated[float, Option(min=1, help="Seconds for one call.")] = 120
    temperature: Annotated[float | None, Option(min=0, help="Default: the model's own.")] = None
    has_schema: Annotated[
        bool, Option("--schema/--no-schema", help="Whether the endpoint knows JSON schemas; else words ask for JSON.")
    ] = True
    share: Annotated[float, Option(min=0, max=1, help="Share of the dialogues that is judged.")] = 1.0
    price_in: Annotated[
        list[float] | None, Option(min=0, help="Dollars of a million tokens sent; one for all models, or one for each.")
    ] = None
    price_out: Annotated[list[float] | None, Option(min=0, help="Dollars of a million tokens received.")] = None
    budget: Annotated[float | None, Option(min=0, help="Dollars that all runs with this output may cost.")] = None
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
        Path | None, Option(exists=True, dir_okay=False, help="Rows with marks, of which those of split dev are used.")
    ] = None
    most_asked: Annotated[float, Option(min=0, max=1, help="Share of turns that may be asked.")] = MOST_ASKED
    report: Annotated[Path | None, Option(dir_okay=False, help="File for the figures, as JSON.")] = None
    rounds: RoundsOption = ROUNDS
    seed: SeedOption = 0

    def read_judges(self) -> Judges:
        """The judges to ask. Raises BadParameter."""
        models = list(dict.fromkeys(self.models or []))
        if self.rubric is None or not models:
            raise typer.BadParameter("asking needs --rubric and a --model")
        prices = [
            given * len(models) if len(given) == 1 else given for given in (self.price_in or [], self.price_out or [])
        ]
        if any(len(given) not in (0, len(models)) for given in prices) or len({*map(len, prices)}) > 1:
            raise typer.BadParameter("give --price-in and --price-out, one of each for all models or for each")
        if self.budget is not None and not prices[0]:
            raise typer.BadParameter("needs --price-in and --price-out", param_hint="--budget")
        return Judges(
            models=models,
            prices=list(zip(*prices, strict=True)),
            base_url=self.base_url,
            turns_per_call=self.turns_per_call,
            concurrency=self.concurrency,
            timeout_seconds=self.timeout,
            temperature=self.temperature,
            has_schema=self.has_schema,
            budget=self.budget,
            seed=self.seed,
        )


def run_judge(options: JudgeOptions) -> None:
    """Prints the template, imports, or asks."""
    if options.template:
        typer.echo(read_template(), nl=False)
        return
    if options.file is None or options.output is None:
        raise typer.BadParameter("give a FILE and an --output, or --template")
    inputs = [each for each in (options.file, options.rubric, options.held_out, *(options.texts or [])) if each]
    refuse_input(options.output, inputs, "--output")
    run = _import if options.source else _ask
    with reported_errors():
        run(options, options.file, options.output)


judge = command_of(JudgeOptions, run_judge)


def _import(options: JudgeOptions, file: Path, output: Path) -> None:
    rubric = read_rubric(options.rubric) if options.rubric else None
    found = Import(options.source or "csv", rubric, options.models[0] if options.models else None)
    for path in (file, *(options.texts or [])):
        found.read(path)
    rows = list(found.rows(stem_of(file)))
    if not rows:
        reasons = "".join(f"; {reason} ({count:,})" for reason, count in found.left_out.items())
        raise BadFileError(file, 0, f"has no marks of responses{reasons}")
    write_rows(output, rows)
    statistics = MarkStatistics(options.seed)
    for row in rows:
        statistics.add(row["dialogue"], row["responses"][0], {})
    scales = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in found.scales.items())
    said = [f"left out {count:,} marks: {reason}" for reason, count in found.left_out.items()]
    said.append(f"scales: {scales}{'' if rubric else ', as the marks suggest; a --rubric says it'}")
    _finish(options, statistics, [*found.scales], [*said, f"wrote {output}: {len(rows):,} responses"])


def _ask(options: JudgeOptions, file: Path, output: Path) -> None:
    judges = options.read_judges()
    if options.only_uncertain and not (options.scorers and options.held_out):
        raise typer.BadParameter("needs --scorer and --held-out", param_hint="--only-uncertain")
    rubric = read_rubric(options.rubric or file)
    stand_in = _choose_stand_in(options, rubric, judges.models)
    statistics = MarkStatistics(options.seed)
    with open_ledger(output, rubric) as ledger:
        collection = Collection(file, rubric, ledger, judges.models, options.share, stand_in)
        interview = Interview(judges, rubric, ledger)
        status = _collect(options, collection, interview, judges)
        lacking = collection.write(output, statistics)
        said = [
            *_describe_run(collection, interview, judges, ledger, lacking),
            f"wrote {output} and {ledger_path(output)}",
        ]
    _finish(options, statistics, [*rubric.criteria], said)
    raise typer.Exit(status or (INCOMPLETE if lacking or collection.too_long else 0))


def _choose_stand_in(options: JudgeOptions, rubric: Rubric, models: Sequence[str]) -> StandIn | None:
    if not options.only_uncertain or options.held_out is None:
        return None
    stand_in = StandIn(options.scorers or [], rubric)
    stand_in.choose(read_responses(options.held_out), models, options.most_asked)
    for band in stand_in.bands:
        typer.echo(str(band), err=True)
    return stand_in


def _collect(options: JudgeOptions, collection: Collection, interview: Interview, judges: Judges) -> int:
    """Scores, estimates and asks; the exit status, where that was cut short."""
    if collection.stand_in:
        with show_progress("scoring", None) as advance:
            collection.score(advance)
    estimate = interview.estimate(collection.to_ask())
    if not estimate.turns:
        return 0
    sent, received = (sum(each[place] for each in estimate.tokens.values()) for place in (0, 1))
    cost = (
        f", about ${judges.cost(estimate.tokens):.2f}"
        if judges.prices
        else "; --price-in and --price-out give the cost"
    )
    typer.echo(
        f"{estimate.turns:,} turns to ask in {estimate.calls:,} calls, about {sent:,} tokens to send and {received:,} "
        f"to receive{cost}",
        err=True,
    )
    if not options.yes and sys.stdin.isatty():
        typer.confirm("Ask?", default=True, abort=True, err=True)
    try:
        with show_progress("asking", estimate.turns) as advance:
            asyncio.run(interview.ask(collection.to_ask(), advance))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        return INTERRUPTED
    except JudgeError as error:
        typer.echo(f"error: {error}", err=True)
        return 1
    return 0


def _describe_run(
    collection: Collection, interview: Interview, judges: Judges, ledger: Ledger, lacking: int
) -> list[str]:
    said = [f"{count:,} calls gave no mark: {reason}" for reason, count in interview.problems.items()]
    if collection.too_long:
        lines = ", ".join(map(str, collection.too_long[:5]))
        said.append(f"{len(collection.too_long):,} responses are too long to be judged, in lines {lines}")
    if interview.is_over_budget:
        said.append(f"stopped before the budget of ${judges.budget:g} was passed")
    if lacking:
        said.append(f"{lacking:,} turns lack a judge's marks; the same command asks for them again")
    return [*said, f"cost so far: ${judges.cost(ledger.tokens):.4f}"] if judges.prices else said


def _finish(options: JudgeOptions, statistics: MarkStatistics, criteria: Sequence[str], said: Sequence[str]) -> None:
    singles, pairs = statistics.measure(criteria, options.rounds, options.seed)
    print_page(build_page(singles, pairs, said), {"judges": singles, "pairs": pairs}, options.report)
