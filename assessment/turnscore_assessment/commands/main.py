"""`turnscore assess`, its sub-commands put together, and `turnscore study`: serve, invite, progress, delete, demo."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnscore_assessment.command_line import Commands, RoundsOption, SeedOption, input_file
from turnscore_assessment.commands import analysis
from turnscore_assessment.figures import ROUNDS
from turnscore_assessment.ratings.rating_file import RatingFile, write_ratings

if TYPE_CHECKING:
    from turnscore_assessment.study.database import StudyDatabase
    from turnscore_assessment.study.plan import StudyPlan


PlanFile = Annotated[Path, input_file("STUDY.toml (docs/studies.md).")]
PublicUrl = Annotated[str | None, typer.Option(help="The address that workers open, as in https://study.example.org.")]
HostOption = Annotated[str, typer.Option(help="Where to listen; default: on this machine only.")]
PortOption = Annotated[int, typer.Option(min=1, max=65535)]

PORT = 8200
HOST = "127.0.0.1"


app = analysis.app
study = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    help="Run a study: workers talk with systems or read dialogues, and rate; docs/studies.md.",
)


@contextmanager
def _opened(path: Path) -> Iterator[tuple["StudyPlan", "StudyDatabase"]]:
    """A study and its database, closed afterwards."""
    from turnscore_assessment.study.database import open_database
    from turnscore_assessment.study.plan import read_plan

    plan = read_plan(path)
    with closing(open_database(plan)) as database:
        yield plan, database


def _print_links(database: "StudyDatabase", workers: int, origin: str) -> None:
    from turnscore_assessment.study.workers import invite_workers

    for link in database.run_here(invite_workers, database.study_id, workers, time.time()):
        typer.echo(f"{origin}/#{link}")


@study.command("serve")
def run_serve(
    plan: PlanFile,
    host: HostOption = HOST,
    port: PortOption = PORT,
    public_url: PublicUrl = None,
    invite: Annotated[int, typer.Option(min=0, max=10_000, help="Print links for this many new workers first.")] = 0,
) -> None:
    """Run a study: workers open their links, talk with the systems or read dialogues, and rate."""
    from turnscore_assessment.study.server import build_app, list_origins, run_server

    origins = list_origins(host, port, public_url)
    with _opened(plan) as (study_plan, database):
        app = build_app(study_plan, database, origins)
        if invite:
            _print_links(database, invite, origins[0])
        typer.echo(f"serving {study_plan.name!r} at {origins[0]}; stop it with Ctrl-C", err=True)
        run_server(app, host, port)


@study.command("invite")
def run_invite(
    plan: PlanFile,
    workers: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 1,
    host: HostOption = HOST,
    port: PortOption = PORT,
    public_url: PublicUrl = None,
) -> None:
    """Print a link for each new worker of a study. A link is a secret, and cannot be shown again."""
    from turnscore_assessment.study.server import list_origins

    origin = list_origins(host, port, public_url)[0]
    with _opened(plan) as (_, database):
        _print_links(database, workers, origin)


@study.command("progress")
def run_progress(plan: PlanFile) -> None:
    """Print how far each worker is, by the code before the dot of the link, which the study also shows at its end."""
    from turnscore_assessment.study.workers import list_progress

    with _opened(plan) as (_, database):
        for worker in database.run_here(list_progress, database.study_id):
            given_up = f", {worker.given_up} given up" if worker.given_up else ""
            typer.echo(f"{worker.code}  {worker.state:8}  {worker.rated} of {worker.total} rated{given_up}")


@study.command("delete")
def run_delete(
    plan: PlanFile,
    worker: Annotated[str | None, typer.Option(help="The worker's code: dialogues and ratings are deleted.")] = None,
    texts: Annotated[bool, typer.Option("--texts", help="The texts of rated dialogues; ratings stay.")] = False,
) -> None:
    """Delete a worker's part of a study, or the texts of all workers."""
    from turnscore_assessment.study.workers import delete_texts, delete_worker

    if (worker is None) == (not texts):
        raise typer.BadParameter("give either --worker CODE or --texts")
    with _opened(plan) as (_, database):
        if worker is not None:
            database.run_here(delete_worker, database.study_id, worker, time.time())
            typer.echo(f"deleted the texts and ratings of {worker}")
        else:
            typer.echo(f"deleted {database.run_here(delete_texts, database.study_id)} turns")
        database.erase_here()


def _export(plan: Path, *, with_texts: bool = True) -> RatingFile:
    from turnscore_assessment.study.recordings import export_ratings, read_recordings

    with _opened(plan) as (study_plan, database):
        recordings = read_recordings(study_plan)
        return database.run_here(export_ratings, database.study_id, study_plan, recordings, with_texts=with_texts)


@study.command("export-ratings")
def run_export_ratings(
    plan: PlanFile,
    output: Annotated[Path, typer.Option(dir_okay=False, help="Where to write; gzipped if it ends in .gz.")],
    texts: Annotated[bool, typer.Option("--texts/--no-texts", help="With the texts of the dialogues.")] = True,
) -> None:
    """Write a study's ratings under made-up names; also while it runs."""
    ratings = _export(plan, with_texts=texts)
    write_ratings(output, ratings)
    raters = {dialogue.worker for dialogue in ratings.dialogues}
    typer.echo(f"wrote {output}: {len(ratings.dialogues)} rated dialogues of {len(raters)} workers")


@study.command("report")
def run_report(
    plan: PlanFile,
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the report.")] = Path("build/assessment"),
    rounds: RoundsOption = ROUNDS,
    seed: SeedOption = 0,
) -> None:
    """Report on a study, also while it runs: every worker's outcome and its reason, systems, differences."""
    analysis.report_study(_export(plan), output, rounds, seed, f"turnscore study report {plan.name}")


DEMO_PORT = 8210
STUDY_FILES = ("STUDY.toml", "corpus.jsonl")


@study.command("demo")
def run_demo(
    folder: Annotated[
        Path, typer.Argument(file_okay=False, help="Folder for STUDY.toml and its corpus, unless it has them.")
    ],
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = DEMO_PORT,
    raters: Annotated[int, typer.Option(min=0, max=1000, help="Simulated raters, instead of a server.")] = 0,
) -> None:
    """Serve three demo chatbots on this machine, and write a study of them to try, or fill it with simulated raters."""
    from turnscore_assessment.study.demo import create_demo_app, simulate_raters
    from turnscore_assessment.study.server import run_server

    folder.mkdir(parents=True, exist_ok=True)
    for name in STUDY_FILES:
        if not (folder / name).exists():
            text = files("turnscore_assessment.study").joinpath("demo_files", name).read_text(encoding="utf-8")
            (folder / name).write_text(text.replace(f":{DEMO_PORT}/", f":{port}/"), encoding="utf-8")
            typer.echo(f"wrote {folder / name}")
    if raters:
        with _opened(folder / STUDY_FILES[0]) as (plan, database):
            asyncio.run(simulate_raters(plan, database, raters))
        typer.echo(f"{raters} simulated raters took part, some of them carelessly")
        return
    typer.echo(f"serving demo chatbots at http://127.0.0.1:{port}/v1; stop them with Ctrl-C", err=True)
    run_server(create_demo_app(), "127.0.0.1", port)
