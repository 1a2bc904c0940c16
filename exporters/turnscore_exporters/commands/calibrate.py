"""`turnscore calibrate`: parses options and prints the findings. Calibrates nothing itself."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.errors import ExporterError


def calibrate(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Rated turns, JSON lines; .gz is unpacked.")
    ],
    scorer: Annotated[str, typer.Option(help="The scorer to calibrate.")] = "quality",
    bundle: Annotated[
        str | None, typer.Option(help="The scorer's bundle: a folder (with a /) or a name; default: the scorer's name.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="A running service that scores the turns with this bundle.")] = None,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the new version; empty or missing.")] = Path(
        "build/calibrated"
    ),
    new_version: Annotated[str | None, typer.Option(help="Version of the new bundle; default: the next one.")] = None,
    good_from: Annotated[float | None, typer.Option(help="The rating from which a turn is good.")] = None,
    false_alarms: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="The largest share of good turns that may be called low.")
    ] = 0.05,
) -> None:
    """Fit a scorer's bundle to turns that your own people rated, and give it a threshold for bad turns."""
    from turnscore_assessment.command_line import client_of

    from turnscore_exporters.calibration.job import CalibrationJob, describe, run_calibration_job

    job = CalibrationJob(
        file=file,
        scorer=scorer,
        bundle=bundle or scorer,
        output=output,
        version=new_version,
        good_from=good_from,
        rate=false_alarms,
        open_client=None if url is None else client_of(url),
    )
    with reported_errors(ExporterError):
        made = run_calibration_job(job)
    for line in describe(made):
        typer.echo(line)
    typer.echo(f"{made.bundle.manifest.reference} written to {output}")
