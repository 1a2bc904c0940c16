"""`turnscore-assess export-ratings`: a study's ratings as a file that `report` reads."""

from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.serve import PlanFile
from turnscore_assessment.reported_errors import reported_errors


def run(
    plan: PlanFile,
    output: Annotated[Path, typer.Option(dir_okay=False, help="Where to write; gzipped if it ends in .gz.")],
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="With what was said.")] = True,
) -> None:
    """Write a study's ratings under made-up names; also while it runs."""
    from turnscore_assessment.ratings.rating_file import write_ratings
    from turnscore_assessment.study.database import open_database
    from turnscore_assessment.study.export import export_ratings
    from turnscore_assessment.study.plan import read_plan
    from turnscore_assessment.study.recordings import read_recordings

    with reported_errors():
        study = read_plan(plan)
        recordings = read_recordings(study)
        database = open_database(study)
        ratings = database.run_here(export_ratings, database.study_id, study, recordings, with_texts=texts)
        database.close()
        write_ratings(output, ratings)
    raters = {dialogue.worker for dialogue in ratings.dialogues}
    typer.echo(f"wrote {output}: {len(ratings.dialogues)} rated dialogues of {len(raters)} workers")
