"""`turnscore references`: hypotheses against references, their diversity, and the agreement with ratings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final
from xml.sax.saxutils import escape

import typer

from turnscore_assessment.command_line import reported_errors
from turnscore_assessment.errors import ReferencesError
from turnscore_assessment.figures import Interval
from turnscore_assessment.files import to_json_text
from turnscore_assessment.references.encoders import BundleEncoder
from turnscore_assessment.references.evaluation import (
    DEFAULT_METRIC,
    DEFAULT_REDUCER,
    REDUCERS,
    Correlated,
    Evaluation,
    Resources,
    evaluate,
    find_metrics,
    metric_names,
)
from turnscore_assessment.references.ngram_metrics import Diversity, find_tokenisation
from turnscore_assessment.references.reference_file import ReferencedReplies, read_comparisons, read_rated
from turnscore_assessment.references.vector_metrics import WordVectors, read_word_vectors

_Cells = Sequence[str]
_LEAST_SHOWN = 0.0001


def to_json(evaluation: Evaluation) -> str:
    """The evaluation as JSON; NaN becomes null."""
    return to_json_text(asdict(evaluation))


def to_table(evaluation: Evaluation) -> str:
    """Tables of results, diversity and correlations, and at the end each metric's definition."""
    parts = [
        "\n".join(
            [
                f"{evaluation.rows} rows, {evaluation.contexts} contexts, {evaluation.rated_rows} rated",
                *_warn(evaluation),
            ]
        ),
        _lay_out(
            ("system", "metric", "reducer", "level", "tokens", "rows", "value"),
            [
                (r.system, r.metric, r.reducer, r.level, r.tokenisation, str(r.rows), f"{r.value:.4f}")
                for r in evaluation.results
            ],
        ),
        _lay_out(
            ("system", "diversity", "tokens", "responses", "value"),
            [line for each in evaluation.diversity for line in _diversity_lines(each)],
        ),
    ]
    if evaluation.correlations:
        parts.append(_correlation_table(evaluation))
    definitions = {r.metric: r.definition for r in evaluation.results}
    parts.append("\n".join(f"{name}: {definition}" for name, definition in definitions.items()))
    return "\n\n".join(parts) + "\n"


def _warn(evaluation: Evaluation) -> list[str]:
    return [
        f"warning: {count} empty replies of {system} are compared as a full stop, which many references share"
        for system, count in evaluation.empty.items()
    ]


def _correlation_table(evaluation: Evaluation) -> str:
    head = ("metric", "reducer", "references", "n", "contexts", "Pearson", "Spearman", "Williams p")
    lines = [
        (
            each.metric,
            each.reducer,
            str(each.references),
            str(each.agreement.rows),
            str(each.agreement.contexts),
            _show(each.agreement.pearson),
            _show(each.agreement.spearman),
            "" if each.against_first is None else _number(each.against_first.p),
        )
        for each in evaluation.correlations
    ]
    note = (
        "Correlations with the ratings; intervals of 95 % from drawing contexts anew. Williams' test compares "
        f"Pearson's r with that of {evaluation.correlations[0].metric}."
    )
    return f"{note}\n{_lay_out(head, lines)}"


def _diversity_lines(found: Diversity) -> list[_Cells]:
    figures = {f"distinct-{order}": value for order, value in found.distinct.items()}
    for order, value in found.expected_adjusted.items():
        figures[f"ead-{order} (V = {found.vocabulary[order]})"] = value
    for order, value in (found.distinct_within_rows or {}).items():
        figures[f"distinct-{order} within rows"] = value
    for order, value in (found.self_bleu or {}).items():
        figures[f"self-bleu-{order}"] = value
    return [
        (found.system, name, found.tokenisation, str(found.responses), f"{value:.4f}")
        for name, value in figures.items()
    ]


def _lay_out(head: _Cells, lines: Sequence[_Cells]) -> str:
    widths = [max(len(line[place]) for line in (head, *lines)) for place in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    )


def _show(interval: Interval) -> str:
    if not math.isfinite(interval.value):
        return "-"
    if not math.isfinite(interval.low):
        return f"{interval.value:.4f}"
    return f"{interval.value:.4f} [{interval.low:.3f}, {interval.high:.3f}]"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.4f}" if value >= _LEAST_SHOWN else f"< {_LEAST_SHOWN}"


_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 190, 28, 44
_COLOURS: Final = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#566573", "#16a085", "#7b241c")
_TICKS = 5

_Points = Sequence[tuple[int, float, float, float]]
"""References, correlation, and the ends of its interval."""


def draw_growth(correlations: Sequence[Correlated], reducer: str = "max") -> str:
    """Pearson's r with its interval for each metric; a metric without a number for two counts is left out."""
    lines: dict[str, list[tuple[int, float, float, float]]] = {}
    for each in correlations:
        found = each.agreement.pearson
        if each.reducer == reducer and math.isfinite(found.value):
            low, high = (end if math.isfinite(end) else found.value for end in (found.low, found.high))
            lines.setdefault(each.metric, []).append((each.references, found.value, low, high))
    return _draw({name: points for name, points in lines.items() if len(points) > 1}, reducer)


def _draw(lines: Mapping[str, _Points], reducer: str) -> str:
    frame = _Frame([point for points in lines.values() for point in points])
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _write(_LEFT, 16, f"Pearson's r with the ratings ({reducer} over references)"),
        _write((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, "references", "middle"),
        *frame.draw_axes(),
    ]
    for number, (name, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        body += frame.draw_line(points, colour, shift=2 * (number - len(lines) / 2))
        body.append(_write(_WIDTH - _RIGHT + 12, _TOP + 16 * (number + 1), name, colour=colour))
    return "\n".join([*body, "</svg>"]) + "\n"


class _Frame:
    """Scales and edges of the picture."""

    def __init__(self, points: _Points) -> None:
        self._most = max((point[0] for point in points), default=2)
        self._low = math.floor(10 * min([0.0, *(point[2] for point in points)])) / 10
        self._high = math.ceil(10 * max([0.1, *(point[3] for point in points)])) / 10

    def draw_axes(self) -> list[str]:
        """Both axes' lines and numbers."""
        drawn = []
        for step in range(_TICKS + 1):
            value = self._low + (self._high - self._low) * step / _TICKS
            drawn.append(_stroke(_LEFT, self._up(value), _WIDTH - _RIGHT, self._up(value), "#ddd"))
            drawn.append(_write(_LEFT - 6, self._up(value) + 4, f"{value:.2f}", "end"))
        counts = range(1, self._most + 1)
        low = _HEIGHT - _BOTTOM + 16
        return [*drawn, *(_write(self._across(count), low, str(count), "middle") for count in counts)]

    def draw_line(self, points: _Points, colour: str, shift: float) -> list[str]:
        """The line through the points, with intervals `shift` apart from the points."""
        drawn = []
        for references, _, low, high in points:
            across = self._across(references) + shift
            drawn.append(_stroke(across, self._up(low), across, self._up(high), colour, ' opacity=".4"'))
        corners = " ".join(f"{self._across(point[0]):.1f},{self._up(point[1]):.1f}" for point in points)
        return [*drawn, f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>']

    def _across(self, references: float) -> float:
        return _LEFT + (references - 1) / (self._most - 1) * (_WIDTH - _LEFT - _RIGHT)

    def _up(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - self._low) / (self._high - self._low) * (_HEIGHT - _TOP - _BOTTOM)


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def _write(x: float, y: float, text: str, anchor: str = "start", colour: str = "#222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _print_metrics(is_asked: bool) -> None:
    if is_asked:
        typer.echo("\n".join(metric_names()))
        raise typer.Exit


def references(
    file: Annotated[
        Path, typer.Argument(exists=True, help="JSON lines (docs/references.md), or with --multiref their folder.")
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help=f"A metric's name; repeatable. Default: {DEFAULT_METRIC}.")
    ] = None,
    reducer: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(REDUCERS)}; repeatable. Default: {DEFAULT_REDUCER}.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="A bundle of kind encoder: its folder (with a /), or its name.")
    ] = None,
    word_vectors: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Word vectors as text; .gz is unpacked.")
    ] = None,
    meteor_jar: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="METEOR 1.5's jar, its data beside it.")
    ] = None,
    tokenisation: Annotated[str, typer.Option(help="`blanks` for tokenised text, `words` for any other.")] = "blanks",
    json: Annotated[Path | None, typer.Option(dir_okay=False, help="File for everything, as JSON.")] = None,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="File for the plot of correlation by references (SVG).")
    ] = None,
    multiref: Annotated[
        bool, typer.Option("--multiref", help="FILE is the folder of the multi-reference data.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, max=64, help="CPU threads of the encoder.")] = 1,
    _list: Annotated[
        bool, typer.Option("--list", callback=_print_metrics, is_eager=True, help="Print the metrics' names and exit.")
    ] = False,
) -> None:
    """Compare hypotheses with references: metrics, diversity, and correlations where the file has ratings."""
    with reported_errors():
        rows = read_rated(file) if multiref else read_comparisons(file)
        resources = Resources(
            tokenisation=tokenisation,
            encoder=BundleEncoder(encoder, threads) if encoder else None,
            word_vectors=_read_vectors(word_vectors, rows, tokenisation),
            meteor_jar=meteor_jar,
        )
        metrics = find_metrics(metric or [DEFAULT_METRIC], resources)
        evaluation = evaluate(rows, metrics, list(dict.fromkeys(reducer or [DEFAULT_REDUCER])), tokenisation)
        if plot is not None and not evaluation.correlations:
            raise ReferencesError("there is nothing to plot: no row has a rating")
    typer.echo(to_table(evaluation), nl=False)
    if json is not None:
        json.write_text(to_json(evaluation), encoding="utf-8")
    if plot is not None:
        plot.write_text(draw_growth(evaluation.correlations), encoding="utf-8")


def _read_vectors(path: Path | None, rows: list[ReferencedReplies], tokenisation: str) -> WordVectors | None:
    if path is None:
        return None
    tokenise = find_tokenisation(tokenisation)
    wanted = {word for row in rows for text in (*row.hypotheses, *row.references) for word in tokenise(text)}
    return read_word_vectors(path, wanted)
