"""`design make` and `design analyse`: rating sheets, and systems' scores from filled ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from turnscore_assessment.command_line import command_of, input_file
from turnscore_assessment.designs.analysis import ERRORS, CriterionAnalysis, analyse_criterion
from turnscore_assessment.designs.form import DesignSpec, read_answers, read_items, read_key, write_design
from turnscore_assessment.designs.making import make_design
from turnscore_assessment.ratings.rating_file import RatingUnit
from turnscore_assessment.rendering import Page, Section, Table, print_page


def build_design_page(study: str, criteria: Sequence[CriterionAnalysis]) -> Page:
    """Each criterion's scores by every method, with remarks."""
    sections = []
    for criterion in criteria:
        scores = [{each.system: each.score for each in scoring.systems} for scoring in criterion.scorings]
        rows = [
            [each.system, each.shown, *(by_system[each.system] for by_system in scores)]
            for each in criterion.scorings[0].systems
        ]
        header = ["system", "shown", *(scoring.method for scoring in criterion.scorings)]
        table = Table(criterion.criterion, header, rows)
        sections.append(Section(criterion.criterion, tables=[table], paragraphs=list(list_remarks(criterion))))
    return Page(title=f"Study {study}", summary=[ERRORS], sections=sections)


def list_remarks(criterion: CriterionAnalysis) -> Iterator[str]:
    """Remarks on the method, on raters' agreement, and on systems that differ."""
    asked = criterion.answered + criterion.unanswered
    by = f"{criterion.raters} raters on {criterion.dialogues} dialogues"
    yield f"{criterion.answered} of {asked} questions answered by {by}"
    yield from (f"left out: {each}" for each in criterion.left_out)
    for scoring in criterion.scorings:
        yield f"{scoring.method}: {'; '.join(scoring.transforms)}"
        seen = [f"{pair.first} > {pair.second}" for pair in scoring.pairs if pair.p_holm < 0.05]
        told = f"{': ' if seen else ''}{', '.join(seen)}"
        yield f"{scoring.method}: {len(seen)} of {len(scoring.pairs)} pairs differ (Holm, 5 %){told}"
    yield _describe_agreement(criterion)


def _describe_agreement(criterion: CriterionAnalysis) -> str:
    found = criterion.agreement
    if found.alpha_interval is None or found.intraclass is None:
        return "agreement: no two raters judged the same item"
    single = found.intraclass
    parts = [f"Krippendorff's alpha {found.alpha_interval:.2f}"]
    parts.append(f"ICC of one rater: consistency {single.consistency:.2f}, agreement {single.agreement:.2f}")
    parts.append(
        f"of the mean of {single.raters:.3g}: consistency {single.consistency_of_mean:.2f}, "
        f"agreement {single.agreement_of_mean:.2f}"
    )
    if found.split_half is not None:
        parts.append(f"split halves, stepped up {found.split_half:.2f}")
    return "agreement on items: " + "; ".join(parts)


app = typer.Typer(no_args_is_help=True, help="Make blind, balanced rating sheets, and analyse filled ones.")


@dataclass(frozen=True, kw_only=True)
class MakeOptions(DesignSpec):
    """Make one sheet per rater, as CSV, and a key that names the system of each option."""

    items: Annotated[Path, input_file("What is judged (docs/studies.md).")]
    output: Annotated[Path, Option(file_okay=False, help="Folder for the key and the sheets.")]


def make(options: MakeOptions) -> None:
    """Makes the design, and says how evenly systems were dealt."""
    design = make_design(read_items(options.items), options)
    write_design(options.output, design)
    key = design.key
    output = options.output
    sheets = f"{options.raters} sheets in {output / 'sheets'}"
    typer.echo(f"wrote {output / 'key.json'}, which raters must not see, and {sheets}")
    dealt = ", ".join(f"{name} {low} to {high}" for name, (low, high) in key.balance.items())
    typer.echo(f"{len(key.questions)} questions about {len(key.items)} items; of a system, fewest to most: {dealt}")


app.command("make")(command_of(MakeOptions, make))


@app.command()
def analyse(
    key: Annotated[Path, input_file("The key that `make` wrote.")],
    sheets: Annotated[list[Path], input_file("Filled sheets.")],
    transform: Annotated[RatingUnit, Option(help="Use given numbers as z per rater, or raw.")] = "z",
    output: Annotated[Path | None, Option(dir_okay=False, help="Where the result goes as JSON.")] = None,
) -> None:
    """Analyse filled sheets: systems' scores, which differ, and how far raters agree."""
    design = read_key(key)
    answers = read_answers(design, sheets)
    criteria = [analyse_criterion(design, each, answers[each.name], transform) for each in design.criteria]
    found = {"study": design.study, "design": design.design, "errors": ERRORS, "criteria": criteria}
    print_page(build_design_page(design.study, criteria), found, output)
