"""`compare`: two systems by scores of their dialogues, or by people's ratings while they come in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from turnscore_assessment.command_line import SeedOption, client_of, reported_errors
from turnscore_assessment.comparison.comparison import SystemComparison, compare_files, read_score_file, score_file
from turnscore_assessment.comparison.difference import ROUNDS
from turnscore_assessment.comparison.sequential import (
    SequenceMethod,
    SequentialComparison,
    collect_observations,
    compare_scores_sequentially,
    compare_sequentially,
)
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_assessment.ratings.scoring import OVERALL
from turnscore_assessment.rendering import Page, Section, Table, print_page, show, show_p

LOOKS_SHOWN = 20  # Rows of a table of looks. Chosen: a screen.


def build_comparison_page(found: SystemComparison) -> Page:
    """A row per score; remarks on the method, on what was left out, and on differences that length explains."""
    rows = []
    for row in found.scorers:
        measured, difference = row.found, row.found.difference
        more = "over 1,000,000" if row.outlook.more is None else f"{row.outlook.more:,}"
        rows.append(
            [
                *(row.scorer, measured.mean_a, measured.mean_b),
                f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]",
                show(measured.effect, 2),
                f"{measured.superiority:.0%}",
                *map(show_p, (measured.p_value, row.p_holm, row.p_benjamini_hochberg)),
                "decided" if row.is_decided else more,
            ]
        )
    header = ["score", "A", "B", "A - B [95 %]", "g", "A higher", "p", "Holm", "BH", "more dialogues"]
    first = found.scorers[0].found
    remarks = [
        f"A: {found.a}, {first.dialogues_a} dialogues; B: {found.b}, {first.dialogues_b} dialogues",
        found.method,
        *found.notes,
        *(f"warning: {row.scorer}: {each.warning}" for row in found.scorers for each in row.lengths if each.warning),
    ]
    section = Section("Scores", tables=[Table("", header, rows)], paragraphs=remarks)
    return Page(title="A and B", sections=[section])


def build_sequence_page(found: Sequence[SequentialComparison]) -> Page:
    """Each comparison's looks, thinned evenly to a screen (the deciding one and the last stay), and its verdict."""
    sections = []
    for each in found:
        count = len(each.looks)
        places = {round(place) for place in np.linspace(0, count - 1, min(count, LOOKS_SHOWN))}
        places |= {each.decided_at - 1} if each.decided_at else set()
        rows = [
            [
                f"{look.observations}{' *' if place + 1 == each.decided_at else ''}",
                *(look.mean, look.low, look.high, show_p(look.p_value)),
            ]
            for place, look in ((place, each.looks[place]) for place in sorted(places))
        ]
        verdict = f"{each.what}: undecided after {count} observations; more may be added and looked at"
        if each.decided_at is not None:
            names = f"(a: {each.a}, b: {each.b})"
            verdict = f"{each.what}: {each.verdict} {names}, decided after {each.decided_at} of {count} observations"
        table = Table("", ["observations", "A - B", "low", "high", "p, any time"], rows)
        remarks = [verdict, f"an observation: {each.unit}", each.method, *each.notes]
        sections.append(Section(each.what, tables=[table], paragraphs=remarks))
    return Page(title="A and B, look by look", sections=sections)


Files = Annotated[
    list[Path],
    typer.Argument(
        exists=True,
        dir_okay=False,
        help="Two files of dialogues, scored by `turnscore score` or not yet; with --sequential also one of ratings.",
    ),
]
Pairing = Annotated[
    bool | None, typer.Option("--pair/--no-pair", help="Pair dialogues by `id`; default: if most have a counterpart.")
]
Names = Annotated[
    str | None, typer.Option("--scorers", help="Scorers, separated by commas; default: all that both files have.")
]
Systems = Annotated[str | None, typer.Option(help="Two systems of the ratings, as in `A,B`.")]
Bounds = Annotated[str | None, typer.Option(help="Least and greatest possible score, as in `0,1`; betting needs them.")]


def run_compare(
    files: Files,
    scorers: Names = None,
    url: Annotated[str | None, typer.Option(help="Service for unscored dialogues; default: TURNSCORE_URL.")] = None,
    paired: Pairing = None,
    details: Annotated[bool, typer.Option("--details", help="Compare the scores' details, too.")] = False,
    rounds: Annotated[int, typer.Option(min=200, max=100_000, help="Resamples of dialogues.")] = ROUNDS,
    seed: SeedOption = 0,
    sequential: Annotated[bool, typer.Option("--sequential", help="Compare after every observation.")] = False,
    systems: Systems = None,
    criterion: Annotated[str, typer.Option(help="Criterion of the ratings.")] = OVERALL,
    method: Annotated[
        SequenceMethod | None, typer.Option(help="Method of the sequence; default: betting if bounds are given.")
    ] = None,
    bounds: Bounds = None,
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.5, help="Level of the sequence.")] = 0.05,
    margin: Annotated[float | None, typer.Option(min=0, help="Smallest difference that matters.")] = None,
    output: Annotated[Path | None, typer.Option(dir_okay=False, help="File for the result, as JSON.")] = None,
) -> None:
    """Compare two of your systems: by scores of their dialogues, or, while ratings come in, by people."""
    given = {"--method": method, "--bounds": bounds, "--margin": margin, "--systems": systems}
    needless = {"--pair": paired, "--details": details or None} if sequential else given
    for option, value in needless.items():
        if value is not None:
            raise typer.BadParameter(f"{'does not go' if sequential else 'goes'} with --sequential", param_hint=option)
    if margin is not None and not margin > 0:
        raise typer.BadParameter("must be above 0", param_hint="--margin")
    if len(files) != (1 if systems else 2):
        raise typer.BadParameter("two files of dialogues, or one of ratings with --sequential --systems A,B")
    names = _split(scorers, "--scorers") if scorers else None
    with reported_errors():
        if systems:
            followed = [_follow_ratings(files[0], systems, criterion, method, alpha, margin)]
            print_page(build_sequence_page(followed), followed, output)
            return
        a, b = (read_score_file(path) for path in files)
        for each in (a, b):
            score_file(each, client_of(url), names)
        if sequential:
            span = _read_bounds(bounds)
            chosen = method or ("asymptotic" if span is None else "betting")
            followed = compare_scores_sequentially(
                a, b, scorers=names, method=chosen, bounds=span, alpha=alpha, margin=margin
            )
            print_page(build_sequence_page(followed), followed, output)
            return
        compared = compare_files(a, b, paired=paired, with_details=details, scorers=names, rounds=rounds, seed=seed)
    print_page(build_comparison_page(compared), compared, output)


def _follow_ratings(
    path: Path, systems: str, criterion: str, method: SequenceMethod | None, alpha: float, margin: float | None
) -> SequentialComparison:
    names = _split(systems, "--systems")
    if len(names) != 2:
        raise typer.BadParameter("must name two systems, as in `A,B`", param_hint="--systems")
    a, b = names
    return compare_sequentially(
        collect_observations(read_ratings(path), a, b, criterion),
        a=a,
        b=b,
        what=criterion,
        method=method or "betting",
        alpha=alpha,
        margin=margin,
    )


def _read_bounds(bounds: str | None) -> tuple[float, float] | None:
    if bounds is None:
        return None
    try:
        low, high = (float(part) for part in bounds.split(","))
    except ValueError:
        raise typer.BadParameter("must be two numbers, as in `0,1`", param_hint="--bounds") from None
    if not -1e300 < low < high < 1e300:
        raise typer.BadParameter("must be finite, and the first the smaller one", param_hint="--bounds")
    return low, high


def _split(names: str, option: str) -> list[str]:
    parts = [name.strip() for name in names.split(",")]
    if not all(parts):
        raise typer.BadParameter("has an empty name", param_hint=option)
    return parts
