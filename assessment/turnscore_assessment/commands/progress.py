"""`turnscore-assess progress`: how far the workers of a study are."""

import typer

from turnscore_assessment.commands.serve import PlanFile
from turnscore_assessment.reported_errors import reported_errors


def run(plan: PlanFile) -> None:
    """Print how far each worker is, by the code before the dot of the link, which the study also shows at its end."""
    from turnscore_assessment.study.database import open_database
    from turnscore_assessment.study.plan import read_plan
    from turnscore_assessment.study.workers import list_progress

    with reported_errors():
        database = open_database(read_plan(plan))
        for worker in database.run_here(list_progress, database.study_id):
            state = "left" if worker.left else "finished" if worker.finished else "agreed" if worker.agreed else "-"
            given_up = f", {worker.given_up} given up" if worker.given_up else ""
            typer.echo(f"{worker.code}  {state:8}  {worker.rated} of {worker.total} rated{given_up}")
        database.close()
