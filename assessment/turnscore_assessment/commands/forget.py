"""`turnscore-assess forget`: deletes what a worker said and rated, or what was said in a whole study."""

import time
from typing import Annotated

import typer

from turnscore_assessment.commands.serve import PlanFile
from turnscore_assessment.reported_errors import reported_errors


def run(
    plan: PlanFile,
    worker: Annotated[str | None, typer.Option(help="The worker's code: dialogues and ratings are deleted.")] = None,
    texts: Annotated[bool, typer.Option("--texts", help="What was said in rated dialogues; ratings stay.")] = False,
) -> None:
    """Delete a worker's part of a study, or the texts of all workers."""
    from turnscore_assessment.study.database import open_database
    from turnscore_assessment.study.plan import read_plan
    from turnscore_assessment.study.workers import forget_texts, forget_worker

    if (worker is None) == (not texts):
        raise typer.BadParameter("give either --worker CODE or --texts")
    with reported_errors():
        database = open_database(read_plan(plan))
        if worker is not None:
            database.run_here(forget_worker, database.study_id, worker, time.time())
            typer.echo(f"deleted what {worker} said and rated")
        else:
            typer.echo(f"deleted {database.run_here(forget_texts, database.study_id)} turns")
        database.erase_here()
        database.close()
