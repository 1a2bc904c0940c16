"""`turnscore-assess design make` and `design analyse`: parse options, print sheets or tables. Design nothing."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.options import SeedOption
from turnscore_assessment.console import open_console
from turnscore_assessment.designs.analysis import analyse_design
from turnscore_assessment.designs.answer_file import read_answers, read_key
from turnscore_assessment.designs.form import LARGEST_TUPLE, POINTS, STANDARD, AskedCriterion, DesignKind, DesignWish
from turnscore_assessment.designs.item_file import read_items
from turnscore_assessment.designs.making import make_design
from turnscore_assessment.designs.report import list_remarks, make_score_table
from turnscore_assessment.designs.sheet_file import write_design
from turnscore_assessment.designs.transforms import Transform
from turnscore_assessment.files import to_json_text, write_text
from turnscore_assessment.reported_errors import reported_errors

app = typer.Typer(no_args_is_help=True, help="Make blind, balanced rating sheets, and analyse filled ones.")


@app.command()
def make(
    items: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="What is judged (docs/designs.md).")],
    kind: Annotated[DesignKind, typer.Option("--design", help="How raters are asked.")],
    criteria: Annotated[
        list[str],
        typer.Option("--criterion", help="A question about every option, as `fun` or `dull:negative`; repeatable."),
    ],
    raters: Annotated[int, typer.Option(min=1, help="Sheets to make.")],
    output: Annotated[Path, typer.Option(file_okay=False, help="Folder for the key and the sheets.")],
    per_rater: Annotated[int | None, typer.Option(min=1, help="Dialogues per rater; else all.")] = None,
    tuple_size: Annotated[int, typer.Option(min=2, max=LARGEST_TUPLE, help="Options of a question of choices.")] = 4,
    points: Annotated[int, typer.Option(min=2, max=100, help="Of a Likert scale.")] = POINTS,
    standard: Annotated[
        float, typer.Option(min=1, max=999, help="Rank-based magnitude: the reference's worth.")
    ] = STANDARD,
    study: Annotated[str, typer.Option(help="The study's name.")] = "study",
    seed: SeedOption = 0,
) -> None:
    """Make one sheet per rater, as JSON lines and CSV, and a key that names the system of each option."""
    with reported_errors():
        wish = DesignWish(
            kind=kind,
            study=study,
            criteria=[_read_criterion(text) for text in criteria],
            raters=raters,
            per_rater=per_rater,
            tuple_size=tuple_size,
            points=points,
            standard=standard,
            seed=seed,
        )
        design = make_design(read_items(items), wish)
        write_design(output, design)
    key = design.key
    typer.echo(f"wrote {output / 'key.json'}, which raters must not see, and {raters} sheets in {output / 'sheets'}")
    typer.echo(
        f"{len(key.questions)} questions about {len(key.items)} items; of a system, from fewest to most: ", nl=False
    )
    typer.echo(", ".join(f"{name} {low} to {high}" for name, (low, high) in key.balance.items()))


@app.command()
def analyse(
    key: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The key that `make` wrote.")],
    sheets: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Filled sheets, .jsonl or .csv.")],
    transform: Annotated[Transform, typer.Option(help="Use given numbers as z per rater, or raw.")] = Transform.Z,
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="Where the result goes as JSON.")] = None,
) -> None:
    """Analyse filled sheets: systems' scores, which differ, and how far raters agree."""
    with reported_errors():
        design = read_key(key)
        found = analyse_design(design, read_answers(design, sheets), transform)
    console = open_console()
    for criterion in found.criteria:
        console.print(make_score_table(criterion))
        for remark in list_remarks(criterion):
            console.print(remark, soft_wrap=True, markup=False, highlight=False)
    console.print(found.errors, soft_wrap=True, markup=False, highlight=False)
    if output is not None:
        write_text(output, to_json_text(asdict(found)))
        typer.echo(f"wrote {output}")


def _read_criterion(text: str) -> AskedCriterion:
    name, _, direction = text.partition(":")
    if not name.strip() or direction not in ("", "positive", "negative"):
        raise typer.BadParameter(f"{text!r} is neither NAME nor NAME:negative", param_hint="--criterion")
    return AskedCriterion(name=name.strip(), direction="negative" if direction == "negative" else "positive")
