"""`turnscore references`: hypotheses against references, their diversity, and the agreement with ratings."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from turnscore_assessment.command_line import file_option, reported_errors
from turnscore_assessment.errors import ReferencesError
from turnscore_assessment.figures import Interval
from turnscore_assessment.references.evaluation import (
    DEFAULT_METRIC,
    DEFAULT_REDUCER,
    ENCODER,
    REDUCERS,
    Correlated,
    Diversity,
    Evaluation,
    ReferencedReplies,
    Resources,
    evaluate,
    find_metrics,
    metric_names,
    read_comparisons,
    read_rated,
)
from turnscore_assessment.references.vector_metrics import BundleEncoder, ReferenceWordVectors, read_word_vectors
from turnscore_assessment.references.word_metrics import find_tokenisation
from turnscore_assessment.rendering import Page, Section, Table, draw_lines, print_page, show, show_p


def build_page(evaluation: Evaluation) -> Page:
    """Tables of results, diversity and correlations, and each metric's definition."""
    warnings = [
        f"warning: {count} empty replies of {system} are compared as a full stop, which many references share"
        for system, count in evaluation.empty.items()
    ]
    definitions = {each.metric: each.definition for each in evaluation.results}
    results = [
        [each.system, each.metric, each.reducer, each.level, each.tokenisation, each.rows, show(each.value, 4)]
        for each in evaluation.results
    ]
    diversity = [row for each in evaluation.diversity for row in _list_diversity(each)]
    header = ["system", "metric", "reducer", "level", "tokens", "rows", "value"]
    defined = [f"{name}: {definition}" for name, definition in definitions.items()]
    diversities = Table("", ["system", "diversity", "tokens", "responses", "value"], diversity)
    sections = [Section("Results", defined, [Table("", header, results)]), Section("Diversity", tables=[diversities])]
    if evaluation.correlations:
        sections.append(_show_correlations(evaluation))
    counted = f"{evaluation.rows} rows, {evaluation.contexts} contexts, {evaluation.rated_rows} rated"
    return Page(title="References", summary=[counted, *warnings], sections=sections)


def _show_correlations(evaluation: Evaluation) -> Section:
    rows = [
        [
            *(each.metric, each.reducer, each.references, each.agreement.rows, each.agreement.contexts),
            *(each.agreement.pearson, each.agreement.spearman),
            "" if each.against_first is None else show_p(each.against_first.p),
        ]
        for each in evaluation.correlations
    ]
    header = ["metric", "reducer", "references", "n", "contexts", "Pearson", "Spearman", "Williams p"]
    note = (
        "Correlations with the ratings; intervals of 95 % from resampled contexts. Williams' test compares "
        f"Pearson's r with that of {evaluation.correlations[0].metric}."
    )
    return Section("Correlations", tables=[Table("", header, rows)], paragraphs=[note])


def _list_diversity(found: Diversity) -> list[list[object]]:
    named = {f"distinct-{order}": value for order, value in found.distinct.items()}
    for order, value in found.expected_adjusted.items():
        named[f"ead-{order} (V = {found.vocabulary[order]})"] = value
    for order, value in (found.distinct_within_rows or {}).items():
        named[f"distinct-{order} within rows"] = value
    for order, value in (found.self_bleu or {}).items():
        named[f"self-bleu-{order}"] = value
    return [[found.system, name, found.tokenisation, found.responses, show(value, 4)] for name, value in named.items()]


def draw_growth(correlations: Sequence[Correlated], reducer: str = "max") -> str:
    """Pearson's r with its interval for each metric; a metric without a number for two counts is left out."""
    lines: dict[str, list[tuple[float, Interval]]] = {}
    for each in correlations:
        if each.reducer == reducer and math.isfinite(each.agreement.pearson.value):
            lines.setdefault(each.metric, []).append((each.references, each.agreement.pearson))
    title = f"Pearson's r with the ratings ({reducer} over references)"
    return draw_lines(title, "references", {name: points for name, points in lines.items() if len(points) > 1})


def _print_metrics(is_asked: bool) -> None:
    if is_asked:
        typer.echo("\n".join(metric_names()))
        raise typer.Exit


@reported_errors()
def references(
    file: Annotated[Path, Argument(exists=True, help="JSON lines (docs/references.md); with --multiref a folder.")],
    metric: Annotated[
        list[str] | None,
        Option(help=f"A metric's name; repeatable. Default: {DEFAULT_METRIC}; with --encoder, {ENCODER}."),
    ] = None,
    reducer: Annotated[
        list[str] | None, Option(help=f"{', '.join(REDUCERS)}; repeatable. Default: {DEFAULT_REDUCER}.")
    ] = None,
    encoder: Annotated[str | None, Option(help="A bundle of kind encoder: its folder (with a /), or its name.")] = None,
    word_vectors: Annotated[Path | None, file_option("Word vectors as text; .gz is unpacked.")] = None,
    meteor_jar: Annotated[Path | None, file_option("METEOR 1.5's jar, its data next to it.")] = None,
    tokenisation: Annotated[str, Option(help="`blanks` for tokenised text, `words` for any other.")] = "blanks",
    json: Annotated[Path | None, Option(dir_okay=False, help="File for everything, as JSON.")] = None,
    plot: Annotated[Path | None, Option(dir_okay=False, help="SVG to write: correlation by references.")] = None,
    multiref: Annotated[bool, Option("--multiref", help="FILE is the folder of the multi-reference data.")] = False,
    threads: Annotated[int, Option(min=1, max=64, help="CPU threads of the encoder.")] = 1,
    _list: Annotated[
        bool, Option("--list", callback=_print_metrics, is_eager=True, help="Print the metrics' names and exit.")
    ] = False,
) -> None:
    """Compare hypotheses with references: metrics, diversity, and correlations where the file has ratings."""
    rows = read_rated(file) if multiref else read_comparisons(file)
    resources = Resources(
        tokenisation=tokenisation,
        encoder=BundleEncoder(encoder, threads) if encoder else None,
        word_vectors=_read_vectors(word_vectors, rows, tokenisation),
        meteor_jar=meteor_jar,
    )
    metrics = find_metrics(metric or [ENCODER if encoder else DEFAULT_METRIC], resources)
    evaluation = evaluate(rows, metrics, list(dict.fromkeys(reducer or [DEFAULT_REDUCER])), tokenisation)
    if plot is not None and not evaluation.correlations:
        raise ReferencesError("there is nothing to plot: no row has a rating")
    print_page(build_page(evaluation), evaluation, json)
    if plot is not None:
        plot.write_text(draw_growth(evaluation.correlations), encoding="utf-8")


def _read_vectors(path: Path | None, rows: list[ReferencedReplies], tokenisation: str) -> ReferenceWordVectors | None:
    if path is None:
        return None
    tokenise = find_tokenisation(tokenisation)
    wanted = {word for row in rows for text in (*row.hypotheses, *row.references) for word in tokenise(text)}
    return read_word_vectors(path, wanted)
