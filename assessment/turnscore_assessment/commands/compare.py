"""`turnscore-assess compare`: parses options and prints a table. Compares nothing itself."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.commands.options import SeedOption
from turnscore_assessment.comparison.comparison import Comparison, compare_files
from turnscore_assessment.comparison.difference import ROUNDS
from turnscore_assessment.comparison.report import (
    describe_verdict,
    list_remarks,
    make_comparison_table,
    make_look_table,
)
from turnscore_assessment.comparison.score_file import ScoreFile, read_score_file
from turnscore_assessment.comparison.score_sequence import compare_scores_sequentially
from turnscore_assessment.comparison.sequential import (
    OVERALL,
    SequenceMethod,
    SequentialComparison,
    collect_observations,
    compare_sequentially,
)
from turnscore_assessment.comparison.service_scoring import score_file
from turnscore_assessment.console import open_console
from turnscore_assessment.files import to_json_text, write_text
from turnscore_assessment.ratings.rating_file import read_ratings
from turnscore_assessment.reported_errors import reported_errors
from turnscore_assessment.service_client import client_of

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


def run(
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
            _print_sequences([_follow_ratings(files[0], systems, criterion, method, alpha, margin)], output)
            return
        a, b = (_read(path, url, names) for path in files)
        if sequential:
            _print_sequences(_follow_scores(a, b, names, method, bounds, alpha, margin), output)
            return
        compared = compare_files(a, b, paired=paired, with_details=details, scorers=names, rounds=rounds, seed=seed)
    _print_comparison(compared, output)


def _follow_scores(
    a: ScoreFile,
    b: ScoreFile,
    scorers: list[str] | None,
    method: SequenceMethod | None,
    bounds: str | None,
    alpha: float,
    margin: float | None,
) -> list[SequentialComparison]:
    span = _read_bounds(bounds)
    chosen = method or (SequenceMethod.ASYMPTOTIC if span is None else SequenceMethod.BETTING)
    return compare_scores_sequentially(a, b, scorers=scorers, method=chosen, bounds=span, alpha=alpha, margin=margin)


def _print_comparison(compared: Comparison, output: Path | None) -> None:
    console = open_console()
    console.print(make_comparison_table(compared))
    for remark in list_remarks(compared):
        console.print(remark, soft_wrap=True, markup=False, highlight=False)
    _write(output, to_json_text(asdict(compared)))


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
        method=method or SequenceMethod.BETTING,
        alpha=alpha,
        margin=margin,
    )


def _read(path: Path, url: str | None, scorers: list[str] | None) -> ScoreFile:
    found = read_score_file(path)
    score_file(found, client_of(url), scorers)
    return found


def _print_sequences(found: list[SequentialComparison], output: Path | None) -> None:
    console = open_console()
    for each in found:
        console.print(make_look_table(each))
        for line in (describe_verdict(each), f"an observation: {each.unit}", each.method, *each.notes):
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    _write(output, to_json_text([asdict(each) for each in found]))


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


def _write(output: Path | None, content: str) -> None:
    if output is not None:
        write_text(output, content)
        typer.echo(f"wrote {output}")
