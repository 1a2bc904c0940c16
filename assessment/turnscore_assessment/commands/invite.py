"""`turnscore-assess invite`: makes links for workers of a study, which are shown once."""

import time
from typing import Annotated

import typer

from turnscore_assessment.commands.serve import HOST, PORT, HostOption, PlanFile, PortOption, PublicUrl
from turnscore_assessment.reported_errors import reported_errors


def run(
    plan: PlanFile,
    workers: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 1,
    host: HostOption = HOST,
    port: PortOption = PORT,
    public_url: PublicUrl = None,
) -> None:
    """Print a link for each new worker of a study. A link is a secret, and cannot be shown again."""
    from turnscore_assessment.study.database import open_database
    from turnscore_assessment.study.plan import read_plan
    from turnscore_assessment.study.serving import list_origins
    from turnscore_assessment.study.workers import invite_workers

    with reported_errors():
        study = read_plan(plan)
        origin = list_origins(host, port, public_url)[0]
        database = open_database(study)
        for link in database.run_here(invite_workers, database.study_id, workers, time.time()):
            typer.echo(f"{origin}/#{link}")
        database.close()
