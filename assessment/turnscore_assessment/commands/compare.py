"""`compare`: systems by scores of their dialogues and by people's ratings, or two of them while ratings come in."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from turnscore_core.engine import open_file_engine
from turnscore_models import BundleError

from turnscore_assessment.command_line import SeedOption, client_of, reported_errors
from turnscore_assessment.comparison.comparison import (
    CORRECTIONS,
    Correction,
    SystemsComparison,
    compare_systems,
    name_systems,
    read_rated_systems,
    read_score_file,
    score_file,
)
from turnscore_assessment.comparison.difference import ROUNDS
from turnscore_assessment.comparison.sequential import (
    SequenceMethod,
    SequentialComparison,
    collect_observations,
    compare_scores_sequentially,
    compare_sequentially,
)
from turnscore_assessment.files import write_text
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_assessment.ratings.scoring import OVERALL
from turnscore_assessment.rendering import Page, Section, Table, draw_intervals, print_page, show, show_p, to_html

MOST_SYSTEMS = 20  # Most files at once. Chosen: 190 pairs are more than a reader compares.
LOOKS_SHOWN = 20  # Rows of a table of looks. Chosen: a screen.


def build_comparison_page(found: SystemsComparison, command: str = "") -> Page:
    """A table with a column per system, then for each score a chart and every pair; and how it was made."""
    names = [each.system for each in found.systems]
    scores = list(dict.fromkeys(name for each in found.systems for name in each.figures))
    means: list[list[object]] = [["dialogues", *(each.dialogues for each in found.systems)]]
    means += [[score, *(each.figures.get(score) for each in found.systems)] for score in scores]
    warned = [
        f"warning: {row.scorer}, {row.a} - {row.b}: {each.warning}"
        for row in found.pairs
        for each in row.lengths
        if each.warning
    ]
    return Page(
        title=f"Comparison of {', '.join(names)}",
        sections=[
            Section("Systems", tables=[Table("Means over dialogues", ["", *names], means)]),
            *(_show_score(found, score) for score in dict.fromkeys(row.scorer for row in found.pairs)),
            Section("Method", [found.method, *found.notes, *warned]),
        ],
        command=command,
    )


def _show_score(found: SystemsComparison, score: str) -> Section:
    rows = []
    for row in found.pairs:
        measured, difference = row.found, row.found.difference
        more = "over 1,000,000" if row.outlook.more is None else f"{row.outlook.more:,}"
        if row.scorer == score:
            rows.append(
                [
                    f"{row.a} - {row.b}",
                    f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]",
                    show(measured.effect, 2),
                    f"{measured.superiority:.0%}",
                    *map(show_p, (measured.p_value, row.p_corrected)),
                    "decided" if row.is_decided else more,
                ]
            )
    correction = CORRECTIONS[found.correction]
    header = ["pair", "difference [95 %]", "g", "first higher", "p", correction, "more needed"]
    known = [(each.system, each.figures[score]) for each in found.systems if score in each.figures]
    chart = draw_intervals(f"{score}: mean with its 95 % interval", known)
    return Section(score, tables=[Table(f"{score}: all pairs", header, rows)], charts=[chart])


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
    list[Path] | None,
    typer.Argument(
        exists=True,
        dir_okay=False,
        help="A file of dialogues per system, scored by `turnscore score` or not yet; with --sequential two, or one of "
        "ratings.",
    ),
]
Ratings = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="People's ratings of these systems, named as the files are."),
]
Pairing = Annotated[
    bool | None, typer.Option("--pair/--no-pair", help="Pair dialogues by `id`; default: if most have a counterpart.")
]
Names = Annotated[
    str | None, typer.Option("--scorers", help="Scorers, separated by commas; default: all that all files have.")
]
Systems = Annotated[str | None, typer.Option(help="Two systems of the ratings, as in `A,B`.")]
Bounds = Annotated[str | None, typer.Option(help="Least and greatest possible score, as in `0,1`; betting needs them.")]


def run_compare(
    files: Files = None,
    ratings: Ratings = None,
    scorers: Names = None,
    url: Annotated[str | None, typer.Option(help="Service for unscored dialogues; default: TURNSCORE_URL.")] = None,
    engine: Annotated[
        Literal["local"] | None, typer.Option(help="`local`: starter bundles score them here, without a service.")
    ] = None,
    paired: Pairing = None,
    details: Annotated[bool, typer.Option("--details", help="Compare the scores' details, too.")] = False,
    correction: Annotated[Correction, typer.Option(help="Holm's for all tests, or Benjamini-Hochberg's.")] = "holm",
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
    html: Annotated[Path | None, typer.Option(dir_okay=False, help="File for the page, with charts.")] = None,
) -> None:
    """Compare your systems, every two of them, by scores of dialogues and by ratings; or two while ratings come in."""
    given = {"--method": method, "--bounds": bounds, "--margin": margin, "--systems": systems}
    refused = {"--pair": paired, "--details": details or None, "--ratings": ratings, "--html": html}
    needless = refused if sequential else given
    for option, value in needless.items():
        if value is not None:
            raise typer.BadParameter(f"{'does not go' if sequential else 'goes'} with --sequential", param_hint=option)
    if margin is not None and not margin > 0:
        raise typer.BadParameter("must be above 0", param_hint="--margin")
    files = files or []
    if sequential and len(files) != (1 if systems else 2):
        raise typer.BadParameter("two files of dialogues, or one of ratings with --systems A,B, go with --sequential")
    if not sequential and (len(files) > MOST_SYSTEMS or (len(files) < 2 and (files or not ratings))):
        raise typer.BadParameter(f"needs files of 2 to {MOST_SYSTEMS} systems, or --ratings")
    names = _split(scorers, "--scorers") if scorers else None
    with reported_errors(BundleError):
        if systems:
            followed = [_follow_ratings(files[0], systems, criterion, method, alpha, margin)]
            print_page(build_sequence_page(followed), followed, output)
            return
        read = dict(zip(name_systems(files), map(read_score_file, files), strict=True))
        local = open_file_engine(None, names) if engine and any(each.unscored for each in read.values()) else None
        for each in read.values():
            score_file(each, client_of(url), names, local)
        if sequential:
            a, b = read.values()
            span = _read_bounds(bounds)
            chosen = method or ("asymptotic" if span is None else "betting")
            followed = compare_scores_sequentially(
                a, b, scorers=names, method=chosen, bounds=span, alpha=alpha, margin=margin
            )
            print_page(build_sequence_page(followed), followed, output)
            return
        rated, note = read_rated_systems(ratings, list(read)) if ratings else ({}, None)
        compared = compare_systems(
            read,
            rated,
            notes=[note] if note else [],
            paired=paired,
            with_details=details,
            scorers=names,
            correction=correction,
            rounds=rounds,
            seed=seed,
        )
    asked = {"--ratings": ratings and ratings.name, "--scorers": scorers, "--url": url, "--engine": engine}
    asked |= {"--correction": correction, "--rounds": str(rounds), "--seed": str(seed)}
    words = ["turnscore", "compare", *(path.name for path in files), *["--details"] * details]
    words += [word for option, value in asked.items() if value for word in (option, value)]
    words += [] if paired is None else ["--pair" if paired else "--no-pair"]
    page = build_comparison_page(compared, shlex.join(words))
    print_page(page, compared, output)
    if html is not None:
        write_text(html, to_html(page))
        typer.echo(f"wrote {html}")


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
