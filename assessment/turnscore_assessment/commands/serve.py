"""`turnscore-assess serve`: runs a study on a page of its own, and makes links for workers."""

import time
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.reported_errors import reported_errors

PlanFile = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="STUDY.toml (docs/studies.md).")]
PublicUrl = Annotated[str | None, typer.Option(help="The address that workers open, as in https://study.example.org.")]
HostOption = Annotated[str, typer.Option(help="Where to listen; default: this machine alone.")]
PortOption = Annotated[int, typer.Option(min=1, max=65535)]

PORT = 8200
HOST = "127.0.0.1"


def run(
    plan: PlanFile,
    host: HostOption = HOST,
    port: PortOption = PORT,
    public_url: PublicUrl = None,
    invite: Annotated[int, typer.Option(min=0, max=10_000, help="Print links for so many new workers first.")] = 0,
) -> None:
    """Run a study: workers open their links, talk with the systems or read dialogues, and rate."""
    from turnscore_assessment.study.database import open_database
    from turnscore_assessment.study.plan import read_plan
    from turnscore_assessment.study.serving import build_app, list_origins, run_server
    from turnscore_assessment.study.workers import invite_workers

    with reported_errors():
        study = read_plan(plan)
        origins = list_origins(host, port, public_url)
        database = open_database(study)
        app = build_app(study, database, origins)
        if invite:
            for link in database.run_here(invite_workers, database.study_id, invite, time.time()):
                typer.echo(f"{origins[0]}/#{link}")
    typer.echo(f"serving {study.name!r} at {origins[0]}; stop it with Ctrl-C", err=True)
    run_server(app, host, port)
