"""`compare`: two systems by scores of their dialogues, or by people's ratings while they come in."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from turnscore_assessment.command_line import SeedOption, client_of, open_console, reported_errors
from turnscore_assessment.comparison.comparison import Comparison, Outlook, ScorerComparison, compare_files
from turnscore_assessment.comparison.difference import ROUNDS
from turnscore_assessment.comparison.score_file import ScoreFile, read_score_file, score_file
from turnscore_assessment.comparison.sequential import (
    OVERALL,
    SequenceMethod,
    SequentialComparison,
    collect_observations,
    compare_scores_sequentially,
    compare_sequentially,
)
from turnscore_assessment.figures import Interval
from turnscore_assessment.files import to_json_text, write_text
from turnscore_assessment.ratings.rating_file import read_ratings

LOOKS_SHOWN = 20
"""Rows of a table of looks. Chosen: a screen."""


def make_comparison_table(found: Comparison) -> Table:
    """A row per score."""
    table = Table("score", "A", "B", "A - B [95 %]", "g", "A higher", "p", "Holm", "BH", "more dialogues")
    for row in found.scorers:
        measured = row.found
        table.add_row(
            row.scorer,
            f"{measured.mean_a:.3f}",
            f"{measured.mean_b:.3f}",
            _say_difference(measured.difference),
            "-" if measured.effect is None else f"{measured.effect:.2f}",
            f"{measured.superiority:.0%}",
            *(_say_p(p) for p in (measured.p_value, row.p_holm, row.p_benjamini_hochberg)),
            "decided" if row.is_decided else _say_outlook(row.outlook),
        )
    return table


def list_remarks(found: Comparison) -> Iterator[str]:
    """Remarks on the method, on what was left out, and on differences that length explains."""
    first = found.scorers[0].found
    yield f"A: {found.a}, {first.dialogues_a} dialogues; B: {found.b}, {first.dialogues_b} dialogues"
    yield found.method
    yield from found.notes
    for row in found.scorers:
        yield from (f"warning: {row.scorer}: {warning}" for warning in _list_warnings(row))


def make_look_table(found: SequentialComparison) -> Table:
    """The looks, thinned evenly to a screen; the deciding one and the last stay."""
    table = Table("observations", "A - B", "low", "high", "p, any time")
    count = len(found.looks)
    places = {round(place) for place in np.linspace(0, count - 1, min(count, LOOKS_SHOWN))}
    places |= {found.decided_at - 1} if found.decided_at else set()
    for place in sorted(places):
        look = found.looks[place]
        is_deciding = place + 1 == found.decided_at
        table.add_row(
            f"{look.observations}{' *' if is_deciding else ''}",
            *(f"{value:.3f}" for value in (look.mean, look.low, look.high)),
            _say_p(look.p_value),
        )
    return table


def describe_verdict(found: SequentialComparison) -> str:
    """The verdict in one sentence."""
    looks = len(found.looks)
    if found.decided_at is None:
        return f"{found.what}: undecided after {looks} observations; more may be added and looked at"
    names = f"(a: {found.a}, b: {found.b})"
    return f"{found.what}: {found.verdict} {names}, decided after {found.decided_at} of {looks} observations"


def _list_warnings(row: ScorerComparison) -> list[str]:
    return [effect.warning for effect in row.lengths if effect.warning]


def _say_difference(found: Interval) -> str:
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _say_p(p_value: float | None) -> str:
    if p_value is None:
        return "-"
    return "<.001" if p_value < 0.001 else f"{p_value:.3f}"


def _say_outlook(outlook: Outlook) -> str:
    return "over 1,000,000" if outlook.more is None else f"{outlook.more:,}"


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
