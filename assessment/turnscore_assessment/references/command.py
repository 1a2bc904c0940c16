"""`turnscore-references`: scores hypotheses against references, their diversity, and the agreement with ratings."""

from pathlib import Path
from typing import Annotated

import typer

from turnscore_assessment.references.comparisons import Comparison
from turnscore_assessment.references.encoders import BundleEncoder
from turnscore_assessment.references.errors import ReferencesError
from turnscore_assessment.references.evaluation import evaluate
from turnscore_assessment.references.metrics.catalogue import DEFAULT_METRIC, Resources, find_metrics, metric_names
from turnscore_assessment.references.metrics.word_vectors import WordVectors, read_word_vectors
from turnscore_assessment.references.multiref import read_rated
from turnscore_assessment.references.plot import draw_growth
from turnscore_assessment.references.reducers import DEFAULT_REDUCER, REDUCERS
from turnscore_assessment.references.reference_file import read_comparisons
from turnscore_assessment.references.report import to_json, to_table
from turnscore_assessment.references.tokenisation import find_tokenisation
from turnscore_assessment.reported_errors import reported_errors
from turnscore_assessment.version_option import VersionOption

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_metrics(is_asked: bool) -> None:
    if is_asked:
        typer.echo("\n".join(metric_names()))
        raise typer.Exit


@app.command()
def run(
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
    _version: VersionOption = False,
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


def _read_vectors(path: Path | None, rows: list[Comparison], tokenisation: str) -> WordVectors | None:
    if path is None:
        return None
    tokenise = find_tokenisation(tokenisation)
    wanted = {word for row in rows for text in (*row.hypotheses, *row.references) for word in tokenise(text)}
    return read_word_vectors(path, wanted)
