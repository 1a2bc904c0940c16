"""`turnscore score` and `turnscore info`: their options, and what is a usage error (exit code 2)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from turnscore_client import _defaults
from turnscore_client._async.client import AsyncTurnScoreClient
from turnscore_client._command.run import FileJob, fetch_models, run, score_file
from turnscore_client._files.lines import is_file
from turnscore_client._tls import Tls

if TYPE_CHECKING:
    from turnscore_client.writers._rows import RowWriter

OpenClient = Callable[[str | None, str | None, float, Tls | None], AsyncTurnScoreClient]

Url = Annotated[
    str | None, typer.Option(help=f"The service's address; default: {_defaults.URL_VARIABLE}, else {_defaults.URL}.")
]
ApiKey = Annotated[
    str | None,
    typer.Option(help=f"The API key; better set as {_defaults.API_KEY_VARIABLE}: others can read a command's options."),
]
Timeout = Annotated[float, typer.Option(help="Seconds for one call, retries included.")]
CaFile = Annotated[
    Path | None, typer.Option(help="PEM: the authority of the service's certificate; default: the public ones.")
]
CertFile = Annotated[Path | None, typer.Option(help="PEM: your certificate, for a service that asks for one.")]
KeyFile = Annotated[Path | None, typer.Option(help="PEM: the private key of your certificate.")]


def _check_input(file: Path) -> Path:
    if is_file(file) and not file.exists():
        raise typer.BadParameter(f"file '{file}' does not exist")
    if file.is_dir():
        raise typer.BadParameter(f"'{file}' is a folder")
    return file


InputFile = Annotated[
    Path, typer.Argument(callback=_check_input, help="Input, JSON lines; .gz is unpacked, - is the standard input.")
]
OutputFile = Annotated[
    Path, typer.Option(dir_okay=False, help="Output, JSON lines; .gz is packed, - is the standard output.")
]
ScorerNames = Annotated[str | None, typer.Option(help="Scorers, separated by commas; default: the service's.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Lines scored at once, at the most.")]
Wait = Annotated[
    float, typer.Option(min=0, help="Seconds to wait for a service that takes no line: full, restarting or gone.")
]
To = Annotated[
    str | None,
    typer.Option(
        help="Write the scores to this tool as well, by each line's trace_id, span_id and session_id: langfuse, "
        "langsmith, mlflow, opik or phoenix."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the whole reply as JSON.")]

_MODEL_FIGURES = ("tokens", "low below", "default")
_PLAIN_WIDTH = 200
"""Columns of text that no terminal shows, so that a pipe gets a model's row in one line. Chosen."""


def score(
    ctx: typer.Context,
    file: InputFile,
    url: Url = None,
    output: OutputFile = Path("-"),
    scorers: ScorerNames = None,
    api_key: ApiKey = None,
    concurrency: Concurrency = _defaults.CONCURRENCY,
    timeout: Timeout = _defaults.TIMEOUT_SECONDS,
    wait: Wait = _defaults.WAIT_SECONDS,
    to: To = None,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
) -> None:
    """Scores a file: each line is a turn {"context", "response"} or a dialogue {"turns"} or {"messages"}.

    Each gives one line of output, with everything that the line holds. Lines that the output holds already are not
    scored again. Exit code 0: all is scored; 1: some line or turn failed; 3: stopped; repeat the command to resume.
    """
    if is_file(file) and output.exists() and output.samefile(file):
        raise typer.BadParameter("is the file to be scored", param_hint="--output")
    names = None if scorers is None else [name.strip() for name in scorers.split(",")]
    if names is not None and not all(names):
        raise typer.BadParameter("has an empty name", param_hint="--scorers")
    tool = None if to is None else _open_tool(to)
    # Without retries of its own: the command asks again, at the pace of all lines together.
    client = _open_client(ctx, url, api_key, timeout, (ca_file, cert_file, key_file), max_retries=0)
    job = FileJob(
        file=file,
        output=output,
        scorers=names,
        concurrency=concurrency,
        timeout_seconds=timeout,
        wait_seconds=wait,
        clock=client._clock,
        deliver=None if tool is None else tool.deliver,
    )
    try:
        code = run(score_file(client, job))
    finally:
        if tool is not None:
            tool.close()
            typer.echo(f"turnscore: {tool.written} scores written to {to}", err=True)
    raise typer.Exit(code)


def info(
    ctx: typer.Context,
    url: Url = None,
    api_key: ApiKey = None,
    timeout: Timeout = _defaults.TIMEOUT_SECONDS,
    ca_file: CaFile = None,
    cert_file: CertFile = None,
    key_file: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Lists the loaded models."""
    reply = run(fetch_models(_open_client(ctx, url, api_key, timeout, (ca_file, cert_file, key_file))))
    if as_json:
        typer.echo(reply.model_dump_json())
        return
    console = Console() if Console().is_terminal else Console(width=_PLAIN_WIDTH)
    table = Table(*(Column(each, overflow="fold") for each in ("scorer", "model", "graph")), *_MODEL_FIGURES)
    for model in reply.models:
        below = "" if model.threshold is None else f"{model.threshold:g}"
        default = "yes" if model.is_default else "stand-in" if model.stand_in else "no"
        table.add_row(model.scorer, model.model, model.graph, str(model.token_limit), below, default)
    console.print(table)
    if reply.candidates:
        candidates = Table("scorer", "candidate version", "graph", "role", "share")
        for each in reply.candidates:
            candidates.add_row(each.scorer, each.model, each.graph, each.role, f"{each.share:g}")
        console.print(candidates)


def _open_tool(name: str) -> "RowWriter":
    from turnscore_client import writers
    from turnscore_client.writers._rows import RowWriter

    try:
        return RowWriter(name, writers.open_writer(name))
    except (ValueError, ImportError) as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None


def _open_client(
    ctx: typer.Context,
    url: str | None,
    api_key: str | None,
    timeout: float,
    files: tuple[Path | None, ...],
    max_retries: int = _defaults.MAX_RETRIES,
) -> AsyncTurnScoreClient:
    """The client; a test passes its own way of opening one as the context's object."""
    open_client: OpenClient = ctx.obj or partial(_open_real_client, max_retries)
    try:
        return open_client(url, api_key, timeout, Tls(*files) if any(files) else None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _open_real_client(
    max_retries: int, url: str | None, api_key: str | None, timeout: float, tls: Tls | None
) -> AsyncTurnScoreClient:
    return AsyncTurnScoreClient(url, api_key=api_key, timeout_seconds=timeout, max_retries=max_retries, tls=tls)
