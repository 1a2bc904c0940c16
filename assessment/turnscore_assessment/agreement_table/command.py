"""The agreement table: scores the development sets with bundles, measures, and writes one page."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.command_line import reported_errors

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

MOST_TURNS = 3000
"""Most turns per set: an interval is then some .07 wide. Chosen for the time it takes."""
MOST_CONTEXTS = 250
"""Contexts of adversarial responses per split, with 15 responses each. Chosen."""
SLOW_TURNS = 300
"""Most turns per set for fed. Chosen: fed takes 30 ms of CPU and more per turn, the others 2 to 7."""
ROUNDS = 500
"""Resamples; the ends of an interval then vary by some .005 from seed to seed. Chosen."""


@app.command()
def agreement_table(
    data: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="Folder with the development sets.")],
    output: Annotated[Path, typer.Option(dir_okay=False, help="The page.")],
    bundles: Annotated[
        list[str] | None,
        typer.Option("--bundle", help="A bundle's folder (with a /) or name; repeatable. Default: all starters."),
    ] = None,
    turns: Annotated[int, typer.Option(min=10, help="Most turns per set.")] = MOST_TURNS,
    fed_turns: Annotated[int, typer.Option(min=10, help="Most turns per set for fed, which is slow.")] = SLOW_TURNS,
    contexts: Annotated[int, typer.Option(min=3, help="Contexts of adversarial responses per split.")] = MOST_CONTEXTS,
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples of dialogues per interval.")] = ROUNDS,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Write one page on how every scorer, its parts, their sums, length and position agree with people's judgements."""
    from turnscore_models import starter_bundles

    from turnscore_assessment.agreement_table.job import TableJob, run_table_job

    named = bundles or [f"{folder}/" for folder in starter_bundles()]
    options = [word for name in bundles or () for word in ("--bundle", Path(name).name)]
    for option, value, usual in (
        ("--turns", turns, MOST_TURNS),
        ("--fed-turns", fed_turns, SLOW_TURNS),
        ("--contexts", contexts, MOST_CONTEXTS),
        ("--bootstrap", bootstrap, ROUNDS),
        ("--seed", seed, 0),
    ):
        options += [option, str(value)] if value != usual else []
    job = TableJob(
        data=data,
        bundles=named,
        most_turns=turns,
        slow_turns=fed_turns,
        most_contexts=contexts,
        draws=(bootstrap, seed),
        command=shlex.join(
            ["python", "-m", "turnscore_assessment.agreement_table", "DATA", "--output", output.name, *options]
        ),
        date=datetime.now(UTC).date().isoformat(),
    )
    with reported_errors():
        page = run_table_job(job, lambda done: typer.echo(done, err=True))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page.format(), encoding="utf-8")
    typer.echo(f"wrote {output}")
