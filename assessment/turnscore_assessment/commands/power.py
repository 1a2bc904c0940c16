"""`turnscore-assess power`: parses options and prints a plan. Simulates nothing itself."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.options import RatingsFile, SeedOption
from turnscore_assessment.comparison.decision import LEVEL, POWER
from turnscore_assessment.console import open_console
from turnscore_assessment.files import to_json_text, write_text
from turnscore_assessment.power.pilot import OVERALL, Transform, read_pilot
from turnscore_assessment.power.planning import MOST_SIMULATIONS, SIMULATIONS, plan_study
from turnscore_assessment.power.report import list_remarks, make_power_table
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_assessment.reported_errors import reported_errors


def run(
    pilot: RatingsFile,
    systems: Annotated[str, typer.Option(help="Two systems of the pilot, as in `A,B`.")],
    difference: Annotated[
        float | None,
        typer.Option(help="Smallest difference that matters, in the unit of --transform; default: the pilot's own."),
    ] = None,
    criterion: Annotated[str, typer.Option(help="Criterion of the pilot.")] = OVERALL,
    transform: Annotated[Transform, typer.Option(help="Unit of ratings: z per worker, or raw points.")] = Transform.Z,
    dialogues: Annotated[int, typer.Option(min=1, max=100, help="Dialogues of each system that a worker rates.")] = 1,
    level: Annotated[float, typer.Option(min=0.00001, max=0.5, help="Level of the test.")] = LEVEL,
    power: Annotated[
        float, typer.Option(min=0.1, max=0.99, help="Share of studies that must see the difference.")
    ] = POWER,
    simulations: Annotated[int, typer.Option(min=100, max=MOST_SIMULATIONS, help="Studies simulated.")] = SIMULATIONS,
    seed: SeedOption = 0,
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="File for the plan, as JSON.")] = None,
) -> None:
    """Plan how many workers and dialogues show a difference between two systems, from the ratings of a pilot study."""
    names = [name.strip() for name in systems.split(",")]
    if len(names) != 2 or not all(names):
        raise typer.BadParameter("must name two systems, as in `A,B`", param_hint="--systems")
    with reported_errors():
        found = read_pilot(
            read_ratings(pilot), names[0], names[1], criterion=criterion, transform=transform, dialogues=dialogues
        )
        plan = plan_study(
            found,
            difference=difference,
            dialogues=dialogues,
            level=level,
            power=power,
            simulations=simulations,
            seed=seed,
        )
    console = open_console()
    if plan.curve:
        console.print(make_power_table(plan))
    for remark in (*list_remarks(plan), f"transforms: {', '.join(found.transforms)}"):
        console.print(remark, soft_wrap=True, markup=False, highlight=False)
    if output is not None:
        write_text(output, to_json_text({**asdict(plan), "transforms": list(found.transforms)}))
        typer.echo(f"wrote {output}")
