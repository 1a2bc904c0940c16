"""`turnscore score` and `turnscore info`: options, a run that the same command resumes, and what is a usage error."""

import asyncio
import math
import sys
import zlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import turnscore_wire as wire
import typer
from rich import box
from rich.console import Console
from rich.table import Column, Table

from turnscore_client import _defaults, writers
from turnscore_client._async import AsyncCalls
from turnscore_client._files import rows, runs, scoring
from turnscore_client._settings import ClientSetup
from turnscore_client.writers._entries import RowWriter

T = TypeVar("T")

TOO_LOW = 4  # that of a run in which everything was scored, and what was demanded is not reached


@dataclass(frozen=True, kw_only=True)
class FileJob:
    file: Path
    output: Path
    scorers: list[str] | None
    concurrency: int
    times: tuple[float, float] = (_defaults.TIMEOUT_SECONDS, _defaults.WAIT_SECONDS)  # for a call, and for a service
    # Gets every row in order before it is written. What the output holds was delivered; after a crash the rows that
    # were in flight are delivered again, so let the receiver know a row by its `line`. UndeliveredError stops the run.
    deliver: Callable[[rows.Row], Awaitable[None]] | None = None
    demands: scoring.Demands = field(default_factory=scoring.Demands)
    junit: Path | None = None


def run(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns; what stops it is one line on stderr and an exit code."""
    with runs.reported_errors(rows.BadLayoutError, EOFError, zlib.error):
        return asyncio.run(work)


async def score_file(client: AsyncCalls, job: FileJob) -> int:
    """Scores what the output does not hold yet, and says on stderr how it went; the exit code.

    The output is locked before it is read, so that a second run cannot read what this one is about to add to. An
    unreachable service, and an output that is not this input's, are found before anything is written. Raises
    StoppedError where the same call resumes.
    """
    clock = client._clock
    began_at = clock.now()
    summary = scoring.Summary()
    stopped: runs.StoppedError | None = None
    async with client:
        with _open(job.output) as output:
            lines = _lines_left(job, output, summary)
            known: Iterator[rows.Row] = iter(())
            # What a pipe gave is read, and does not come again.
            is_again = summary.to_ask_again > 0 and rows.is_file(job.file) and job.file.is_file()
            if summary.to_ask_again:
                how = " and are asked again" if is_again else "; asking them again needs a file instead of a pipe"
                typer.echo(f"turnscore: {summary.to_ask_again} lines in {job.output} failed{how}", err=True)
            if is_again:
                lines, known, summary = rows.read_lines(job.file), output.rows(), scoring.Summary(asked=summary.asked)
            patient = scoring.patient_with(client, job.scorers, job.concurrency, job.times)
            try:
                with output.rewriting() if is_again else nullcontext(output) as written:
                    left = _score_left(client, job, lines, _finder_in(known), written, patient, summary)
                    await runs.until_stopped(left)
            except runs.StoppedError as error:
                stopped = error
    summary.show(clock.now() - began_at, Console(stderr=True))
    if stopped is not None:
        raise stopped
    shortfalls = summary.shortfalls(job.demands)
    if job.junit is not None:
        scoring.write_junit(job.junit, job.file.name, rows.rows_in(job.output), job.demands, shortfalls)
    for each in shortfalls:
        typer.echo(f"turnscore: {each}", err=True)
    return summary.exit_code() or (TOO_LOW if shortfalls else 0)


async def _score_left(
    client: AsyncCalls,
    job: FileJob,
    lines: Iterator[rows.Line],
    find: Callable[[rows.Line], rows.Row | None],
    output: rows.RowOutput,
    patient: scoring.Patient,
    summary: scoring.Summary,
) -> None:
    models, scored = await scoring.read_models(client, patient), 0
    _check_scorers(job, models, summary.asked)
    if summary.rows:
        typer.echo(f"turnscore: {summary.rows} lines are in {job.output}; going on behind them", err=True)
    output.begin()
    # Over the bytes read, as how many lines there are is not known before the end.
    is_hidden = not rows.is_file(job.output) and sys.stdout.isatty()
    with runs.show_progress("lines", rows.size_of(job.file), patient.clock, is_hidden=is_hidden) as note:
        outcomes = scoring.score_lines(client, lines, job.scorers, patient, models.limits, find)
        async with aclosing(outcomes):
            async for line, row, is_known in outcomes:
                if not is_known and job.deliver is not None:
                    await job.deliver(row)
                output.append(row)
                summary.add(row)
                scored += 1
                note(line.position_bytes, scored, f"{summary.failed} failed" if summary.failed else "")


def _finder_in(known: Iterator[rows.Row]) -> Callable[[rows.Line], rows.Row | None]:
    """Finds a line's row in an output that is written again, unless it failed; lines are asked for in order."""
    following = next(known, None)

    def find(line: rows.Line) -> rows.Row | None:
        nonlocal following
        if (row := following) is None or row["line"] != line.number:
            return None
        following = next(known, None)
        return row if rows.is_row_of(row, line.raw) and not rows.is_worth_asking_again(row) else None

    return find


def _check_scorers(job: FileJob, models: wire.ModelsReply, made: set[str]) -> None:
    """Refuses an output of other scorers than are asked now, and demands that these scorers cannot meet."""
    asked = set(job.scorers or (each.scorer for each in models.models if each.is_default))
    if made and asked and made != asked:
        told = f"'{job.output}' holds scores of {_join(made)}, and those of {_join(asked)} are asked"
        raise typer.BadParameter(f"{told}; name another output, or the same --scorers", param_hint="--output")
    known = {each.scorer for each in models.models}
    for names, option in ((job.scorers or (), "--scorers"), (job.demands.least, "--fail-under")):
        if known and (unknown := set(names) - known):
            raise typer.BadParameter(f"no such scorer: {_join(unknown)}; there are {_join(known)}", param_hint=option)
    labelled = {each.scorer for each in models.models if each.threshold is not None}
    if known and job.demands.no_low and not asked & labelled:
        message = f"{_join(asked)} gives no labels, as it has no threshold; with labels: {_join(labelled) or 'none'}"
        raise typer.BadParameter(message, param_hint="--fail-on")


def _join(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def _lines_left(job: FileJob, output: rows.RowOutput, summary: scoring.Summary) -> Iterator[rows.Line]:
    """The lines of the input behind those that the output holds, which are counted."""
    last: rows.Row | None = None
    try:
        for last in output.rows():
            summary.add(last)
    except (rows.NotOurOutputError, KeyError, TypeError, ValueError) as error:
        reason = "already exists and was not written by this command"
        if isinstance(error, rows.NotOurOutputError):
            reason = str(error)
        raise typer.BadParameter(f"'{job.output}' {reason}", param_hint="--output") from None
    lines = rows.read_lines(job.file)
    if last is None:
        return lines
    for done, line in enumerate(lines, start=1):
        if line.number == last["line"] and done == summary.rows and rows.is_row_of(last, line.raw):
            return lines
        if line.number >= last["line"]:
            break
    message = f"'{job.output}' exists, and holds the scores of another file than '{job.file}'; name another output"
    raise typer.BadParameter(message, param_hint="--output")


def _open(path: Path) -> rows.RowOutput:
    try:
        return rows.open_rows(path)
    except (OSError, rows.NotOurOutputError) as error:
        raise typer.BadParameter(f"'{path}': {error}", param_hint="--output") from None


def score(
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            dir_okay=False,
            help="Input: JSON lines, a table (.csv) or transcripts (.txt); .gz is unpacked, - is the standard input.",
        ),
    ] = None,
    url: runs.Url = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", dir_okay=False, help="Output, JSON lines; .gz is packed, - is the standard output."
        ),
    ] = Path("-"),
    turn: Annotated[str | None, typer.Option(help="Score this one response instead of a file.")] = None,
    context: Annotated[
        list[str] | None, typer.Option(help="With --turn: a turn before it, oldest first, the user's last; repeatable.")
    ] = None,
    scorers: Annotated[str | None, typer.Option(help="Scorers, separated by commas; default: the service's.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="What scores: local, ray (RAY_ADDRESS, else this machine), or a service's address."),
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Bundles of an engine, separated by commas; default: the starters.")
    ] = None,
    api_key: runs.ApiKey = None,
    concurrency: runs.Concurrency = None,
    timeout: runs.Timeout = _defaults.TIMEOUT_SECONDS,
    wait: runs.Wait = _defaults.WAIT_SECONDS,
    to: Annotated[
        str | None,
        typer.Option(
            help="Write the scores to this tool as well, by each line's trace_id, span_id and session_id: langfuse, "
            "langsmith, mlflow, opik or phoenix."
        ),
    ] = None,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(help="Exit with 4 where the mean value is lower, such as quality=0.4; repeatable."),
    ] = None,
    fail_on: Annotated[Literal["low"] | None, typer.Option(help="Exit with 4 where a turn has this label.")] = None,
    junit: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Also write the rows as JUnit's XML, for CI; needs --output.")
    ] = None,
    ca_file: runs.CaFile = None,
    cert_file: runs.CertFile = None,
    key_file: runs.KeyFile = None,
) -> None:
    """Score a file: each line is a turn {"context", "response"} or a dialogue {"turns"} or {"messages"}.

    Each gives one line of output, with everything that the line holds. Lines that the output holds already are not
    scored again, unless they failed. Exit code 0: all is scored; 1: some line or turn failed; 3: stopped; repeat the
    command to resume; 4: below what --fail-under or --fail-on demands.
    """
    if (file is None) == (turn is None):
        raise typer.BadParameter("give a FILE or a --turn", param_hint="FILE")
    if file is not None and rows.is_file(file) and not file.exists():  # typer's own check refuses `-`
        raise typer.BadParameter(f"'{file}' does not exist", param_hint="FILE")
    if turn is not None and (rows.is_file(output) or to is not None):
        raise typer.BadParameter("prints its scores; give a FILE", param_hint="--turn")
    if turn is None and context:
        raise typer.BadParameter("needs a --turn", param_hint="--context")
    if junit is not None and (turn is not None or not rows.is_file(output)):
        raise typer.BadParameter("needs a FILE and an --output", param_hint="--junit")
    demands = scoring.Demands(least=_read_least(fail_under or []), no_low=fail_on == "low")
    _check_apart(file, output, junit)
    names, bundles = runs.split_names(scorers, "--scorers"), runs.split_names(models, "--models")
    tool = None if to is None else _open_tool(to)
    if engine is not None and not runs.is_service(engine):
        most, client = _defaults.ENGINE_CONCURRENCY, _open_engine(engine, bundles, names)
    else:
        runs.refuse_options(ctx, ["models"], "requires --engine local or ray")
        # Without retries of its own: the command asks again, at the pace of all lines together.
        client = runs.open_client(engine or url, api_key, timeout, (ca_file, cert_file, key_file), max_retries=0)
        most = _defaults.CONCURRENCY
    if file is None:
        raise typer.Exit(run(_score_one(client, turn or "", context or [], names, demands)))
    job = FileJob(
        file=file,
        output=output,
        scorers=names,
        concurrency=concurrency or most,
        times=(timeout, wait),
        deliver=None if tool is None else tool.deliver,
        demands=demands,
        junit=junit,
    )
    try:
        code = run(score_file(client, job))
    finally:
        if tool is not None:
            tool.close()
            typer.echo(f"turnscore: {tool.written} scores written to {to}", err=True)
    raise typer.Exit(code)


def _check_apart(file: Path | None, output: Path, junit: Path | None) -> None:
    """Refuses to write over the input, or the report over the output."""
    for path, option in ((output, "--output"), (junit, "--junit")):
        if file is not None and path is not None and _are_same(path, file):
            raise typer.BadParameter("is the file to be scored", param_hint=option)
    if junit is not None and _are_same(junit, output):
        raise typer.BadParameter("is the --output", param_hint="--junit")


def _are_same(one: Path, other: Path) -> bool:
    """Whether both are one file, which need not be there yet."""
    if not one.exists() or not other.exists():
        return rows.is_file(one) and one.resolve() == other.resolve()
    return rows.is_file(one) and rows.is_file(other) and one.samefile(other)


async def _score_one(
    client: AsyncCalls, response: str, context: Sequence[str], scorers: list[str] | None, demands: scoring.Demands
) -> int:
    """Prints the scores of one turn, as a table for a person and as JSON for a program; the exit code."""
    spoken = [("system" if (len(context) - place) % 2 == 0 else "user", text) for place, text in enumerate(context)]
    async with client:
        reply = await client.score(context=spoken, response=response, scorers=scorers)
    summary = scoring.Summary()
    summary.add({"line": 1, **reply.model_dump(mode="json")})
    if Console().is_terminal:
        table = Table("scorer", "value", "percentile", "label", "why", "model")
        for name, each in reply.scores.items():
            percentile = "" if each.percentile is None else f"{each.percentile:.0f}"
            why = ", ".join((*each.reasons, *each.signals, *each.warnings))
            table.add_row(name, f"{each.value:.3f}", percentile, each.label or "", why, each.model)
        Console().print(table)
    else:
        typer.echo(reply.model_dump_json())
    failures, shortfalls = rows.failures_in(reply.model_dump(mode="json")), summary.shortfalls(demands)
    for told in (*failures, *shortfalls):
        typer.echo(f"turnscore: {told}", err=True)
    return 1 if failures else TOO_LOW if shortfalls else 0


def _read_least(given: Sequence[str]) -> dict[str, float]:
    """`quality=0.4` as scorer and least mean value."""
    least = {}
    for each in given:
        name, _, number = each.partition("=")
        try:
            least[name] = float(number)
        except ValueError:
            least[name] = math.nan
        if not name or not math.isfinite(least[name]):
            raise typer.BadParameter(
                f"is {each!r}; give a scorer and a number, such as quality=0.4", param_hint="--fail-under"
            )
    return least


def info(
    url: runs.Url = None,
    api_key: runs.ApiKey = None,
    timeout: runs.Timeout = _defaults.TIMEOUT_SECONDS,
    ca_file: runs.CaFile = None,
    cert_file: runs.CertFile = None,
    key_file: runs.KeyFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole reply as JSON.")] = False,
) -> None:
    """List the models that a running service has loaded."""

    async def fetch() -> wire.ModelsReply:
        async with runs.open_client(url, api_key, timeout, (ca_file, cert_file, key_file)) as client:
            return await client.models()

    reply = run(fetch())
    if as_json:
        typer.echo(reply.model_dump_json())
        return
    # columns of text that no terminal shows, so that a pipe gets a model's row in one line
    console = Console() if Console().is_terminal else Console(width=200)
    # Fits 80 columns.
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD if console.is_terminal else None, "padding": (0, 1, 0, 0)}
    names = (Column(each, overflow="fold") for each in ("scorer", "model", "graph"))
    table = Table(*names, "tokens of\ntext / turn", "low\nbelow", "default", **look)
    for model in reply.models:
        below = "" if model.threshold is None else f"{model.threshold:.3g}"
        default = "yes" if model.is_default else "stand-in" if model.stand_in else "no"
        limits = f"{model.max_text_tokens} / {model.max_turn_tokens}"
        table.add_row(model.scorer, model.model, model.graph, limits, below, default)
    console.print(table)
    if reply.candidates:
        candidates = Table("scorer", "candidate version", "graph", "role", "share", **look)
        for each in reply.candidates:
            candidates.add_row(each.scorer, each.model, each.graph, each.role, f"{each.share:g}")
        console.print(candidates)


def _open_engine(name: str, bundles: list[str] | None, scorers: list[str] | None) -> AsyncCalls:
    """Calls that this machine, or a cluster, answers."""
    from turnscore_client._command.registry import find_engine

    open_engine = find_engine(name)
    with runs.reported_errors(Exception):  # of another distribution, whose errors say what to do
        engine = open_engine(bundles, scorers)
    settings = ClientSetup(address=name, api_key=None, timeout_seconds=_defaults.WAIT_SECONDS, max_retries=0)
    return AsyncCalls(runs.EngineTransport(engine), settings, None)


def _open_tool(name: str) -> RowWriter:
    try:
        return RowWriter(name, writers.open_writer(name))
    except (ValueError, ImportError) as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None
