"""`make replicas-throughput`: turns per second of one replica, two and three, each on a core of its own."""

import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from turnscore_load.programs import NoProgramError
from turnscore_load.replicas.throughput import FailedRequestsError, run_throughput, throughput_report


def replicas_throughput(
    serve: Annotated[Path, typer.Option(help="The turnscore command that starts each.")],
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    reports: Annotated[Path, typer.Option(help="Folder of the report and the logs.")] = Path("build/load"),
) -> None:
    """Measure, and print what each number of replicas carries beside the sum of what its cores carry alone."""
    try:
        text = throughput_report(uvloop.run(run_throughput(serve, reports / "throughput", rounds)))
    except (NoProgramError, FailedRequestsError) as error:
        sys.exit(str(error))
    (reports / "throughput.md").write_text(text)
    typer.echo(text)


if __name__ == "__main__":
    typer.run(replicas_throughput)
