"""`compare`: systems by scores of their dialogues and by people's ratings, or two of them while ratings come in."""

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import typer
from turnscore_client._files.runs import Url, split_names
from turnscore_core.engine import open_file_engine
from turnscore_models.manifest import BundleError
from typer import Option

from turnscore_assessment.command_line import (
    CALLS_IN_FLIGHT,
    ENGINE_DIALOGUES_AT_ONCE,
    client_of,
    client_over,
    command_of,
    file_option,
    input_file,
)
from turnscore_assessment.comparison import comparison
from turnscore_assessment.comparison.comparison import ComparisonOptions, ScoreFile, SystemsComparison
from turnscore_assessment.comparison.sequential import (
    SequenceMethod,
    SequentialComparison,
    collect_observations,
    compare_scores_sequentially,
    compare_sequentially,
)
from turnscore_assessment.files import write_text
from turnscore_assessment.ratings.rating_file import OVERALL, read_ratings
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
    correction = comparison.CORRECTIONS[found.correction]
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


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ComparisonOptions):
    """Compare your systems, every two of them, by scores of dialogues and by ratings; or two while ratings come in."""

    files: Annotated[
        list[Path] | None,
        input_file(
            "A file of dialogues per system, scored by `turnscore score` or not yet; with --sequential two, or "
            "one of ratings."
        ),
    ] = None
    ratings: Annotated[Path | None, file_option("People's ratings of these systems, named as files are.")] = None
    scorers: Annotated[str | None, Option(help="Scorers, separated by commas; default: all that all files have.")] = (
        None
    )
    url: Url = None
    engine: Annotated[
        Literal["local"] | None, Option(help="`local`: starter bundles score them here, without a service.")
    ] = None
    sequential: Annotated[bool, Option("--sequential", help="Compare after every observation.")] = False
    systems: Annotated[str | None, Option(help="Two systems of the ratings, as in `A,B`.")] = None
    criterion: Annotated[str, Option(help="Criterion of the ratings.")] = OVERALL
    method: Annotated[
        SequenceMethod | None, Option(help="Method of the sequence; default: betting if bounds are given.")
    ] = None
    bounds: Annotated[str | None, Option(help="Least and greatest score, as in `0,1`; betting needs them.")] = None
    alpha: Annotated[float, Option(min=0.0001, max=0.5, help="Level of the sequence.")] = 0.05
    margin: Annotated[float | None, Option(min=0, help="Smallest difference that matters.")] = None
    output: Annotated[Path | None, Option(dir_okay=False, help="File for the result, as JSON.")] = None
    html: Annotated[Path | None, Option(dir_okay=False, help="File for the page, with charts.")] = None


def run(options: CompareOptions) -> None:
    """Checks that the options go together, and compares."""
    files, sequential = options.files or [], options.sequential
    needless: dict[str, object] = {"--pair": options.paired, "--details": options.details or None}
    needless |= {"--ratings": options.ratings, "--html": options.html}
    if not sequential:
        needless = {"--method": options.method, "--bounds": options.bounds, "--margin": options.margin}
        needless |= {"--systems": options.systems}
    for option, value in needless.items():
        if value is not None:
            raise typer.BadParameter(f"{'does not go' if sequential else 'goes'} with --sequential", param_hint=option)
    if options.margin is not None and not options.margin > 0:
        raise typer.BadParameter("must be above 0", param_hint="--margin")
    if sequential and len(files) != (1 if options.systems else 2):
        raise typer.BadParameter("two files of dialogues, or one of ratings with --systems A,B, go with --sequential")
    if not sequential and (len(files) > MOST_SYSTEMS or (len(files) < 2 and (files or not options.ratings))):
        raise typer.BadParameter(f"needs files of 2 to {MOST_SYSTEMS} systems, or --ratings")
    names = split_names(options.scorers or None, "--scorers")
    if sequential:
        followed = _follow(options, files, names)
        print_page(build_sequence_page(followed), followed, options.output)
        return
    read = _read_scored(options, files, names)
    rated, note = comparison.read_rated_systems(options.ratings, list(read)) if options.ratings else ({}, None)
    compared = comparison.compare_systems(read, rated, names, options, [note] if note else [])
    page = build_comparison_page(compared, _write_command(options, files))
    print_page(page, compared, options.output)
    if options.html is not None:
        write_text(options.html, to_html(page))
        typer.echo(f"wrote {options.html}")


run_compare = command_of(CompareOptions, run, BundleError)


def _read_scored(options: CompareOptions, files: Sequence[Path], names: list[str] | None) -> dict[str, ScoreFile]:
    """The files by system, all of their dialogues scored."""
    read = dict(zip(comparison.name_systems(files), map(comparison.read_score_file, files), strict=True))
    if any(each.unscored for each in read.values()):
        asyncio.run(_score(options, read.values(), names))
    return read


async def _score(options: CompareOptions, files: Iterable[ScoreFile], names: list[str] | None) -> None:
    if options.engine is None:
        await comparison.score_files(files, client_of(options.url), names, CALLS_IN_FLIGHT)
    else:
        client = client_over(open_file_engine(None, names))
        await comparison.score_files(files, client, names, ENGINE_DIALOGUES_AT_ONCE)


def _follow(options: CompareOptions, files: Sequence[Path], names: list[str] | None) -> list[SequentialComparison]:
    if options.systems is None:
        span = _read_bounds(options.bounds)
        method = options.method or ("asymptotic" if span is None else "betting")
        first, second = _read_scored(options, files, names).values()
        return compare_scores_sequentially(first, second, names, method, span, options.alpha, options.margin)
    systems, criterion = split_names(options.systems, "--systems") or [], options.criterion
    if len(systems) != 2:
        raise typer.BadParameter("must name two systems, as in `A,B`", param_hint="--systems")
    a, b = systems
    observed = collect_observations(read_ratings(files[0]), a, b, criterion)
    return [compare_sequentially(observed, a, b, criterion, options.method or "betting", options.alpha, options.margin)]


def _write_command(options: CompareOptions, files: Sequence[Path]) -> str:
    """The command that gives the same figures, with names in place of local paths."""
    asked = {"--ratings": options.ratings and options.ratings.name, "--scorers": options.scorers, "--url": options.url}
    asked |= {"--engine": options.engine, "--correction": options.correction}
    asked |= {"--rounds": str(options.rounds), "--seed": str(options.seed)}
    words = ["turnscore", "compare", *(path.name for path in files), *["--details"] * options.details]
    words += [word for option, value in asked.items() if value for word in (option, value)]
    words += [] if options.paired is None else ["--pair" if options.paired else "--no-pair"]
    return shlex.join(words)


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
