"""The `turnscore` command: its subcommands, their options, and what is a usage error (exit code 2)."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from turnscore_client import _defaults
from turnscore_client._async_client import AsyncTurnScoreClient
from turnscore_client._command_run import FileJob, fetch_models, run, score_file

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Scores dialogue turns through a running turnscore service.",
)

OpenClient = Callable[[str | None, str | None, float], AsyncTurnScoreClient]

Url = Annotated[str | None, typer.Option(help=f"The service; else {_defaults.URL_VARIABLE}, else {_defaults.URL}.")]
ApiKey = Annotated[
    str | None,
    typer.Option(help=f"Better given as {_defaults.API_KEY_VARIABLE}: others can read a command's options."),
]
Timeout = Annotated[float, typer.Option(help="Seconds for one call, retries included.")]
InputFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON lines; .gz is unpacked.")]
OutputFile = Annotated[Path, typer.Option(dir_okay=False, help="Where JSON lines go; - is the standard output.")]
ScorerNames = Annotated[str | None, typer.Option(help="Names, separated by commas; else all that are loaded.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Lines in flight.")]
AsJson = Annotated[bool, typer.Option("--json", help="The whole reply, as JSON.")]


@app.command()
def score(
    ctx: typer.Context,
    file: InputFile,
    url: Url = None,
    output: OutputFile = Path("-"),
    scorers: ScorerNames = None,
    api_key: ApiKey = None,
    concurrency: Concurrency = _defaults.CONCURRENCY,
    timeout: Timeout = _defaults.TIMEOUT_SECONDS,
) -> None:
    """Scores a file: a line is a turn {"context", "response"} or a dialogue {"turns"}; a line out for each line in.

    Blank lines are skipped. Other keys of a line, such as "id", are carried over. Exit code 1 if any line failed.
    """
    if output.exists() and output.samefile(file):
        raise typer.BadParameter("is the file to be scored", param_hint="--output")
    names = None if scorers is None else [name.strip() for name in scorers.split(",")]
    if names is not None and not all(names):
        raise typer.BadParameter("has an empty name", param_hint="--scorers")
    client = _open_client(ctx, url, api_key, timeout)
    tally = run(score_file(client, FileJob(file, output, names, concurrency)))
    raise typer.Exit(1 if tally.failed else 0)


@app.command()
def models(
    ctx: typer.Context,
    url: Url = None,
    api_key: ApiKey = None,
    timeout: Timeout = _defaults.TIMEOUT_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Lists what the service has loaded."""
    reply = run(fetch_models(_open_client(ctx, url, api_key, timeout)))
    if as_json:
        typer.echo(reply.model_dump_json())
        return
    table = Table("scorer", "model", "graph", "token limit")
    for model in reply.models:
        table.add_row(model.scorer, model.model, model.graph, str(model.token_limit))
    Console().print(table)


def _open_client(ctx: typer.Context, url: str | None, api_key: str | None, timeout: float) -> AsyncTurnScoreClient:
    """The client; a test passes its own way of opening one as the context's object."""
    open_client: OpenClient = ctx.obj or _open_real_client
    try:
        return open_client(url, api_key, timeout)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _open_real_client(url: str | None, api_key: str | None, timeout: float) -> AsyncTurnScoreClient:
    return AsyncTurnScoreClient(url, api_key=api_key, timeout_seconds=timeout)
