"""Options of the commands that export relevance, USR and combinations."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.commands.exported import choose_graphs, exporting
from turnscore_exporters.commands.options import (
    BundleOutputOption,
    BundleVersionOption,
    DialoguesOption,
    Fp16ToleranceOption,
    GraphsOption,
    Int8ToleranceOption,
    LicenceOption,
    OptionalDataOption,
    ReferenceTurnsOption,
    ThreadsOption,
)
from turnscore_exporters.errors import ExporterError

LimitOption = Annotated[int, typer.Option(min=16, help="Most tokens of a row.")]


def export_relevance(
    checkpoint: Annotated[
        str, typer.Option(help="A BERT or RoBERTa for pairs: folder or hub name; or the folder of ctx-ruber or pone.")
    ],
    version: BundleVersionOption,
    output: BundleOutputOption,
    data: OptionalDataOption = None,
    dialogues: DialoguesOption = None,
    turns: ReferenceTurnsOption = 2000,
    graph: GraphsOption = None,
    token_limit: LimitOption = 128,
    int8_tolerance: Int8ToleranceOption = 0.15,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the checkpoint",
    threads: ThreadsOption = 0,
) -> None:
    """Write the bundle of a model that scores if a response fits; fails unless graphs and checkpoint agree as served.

    Of ctx-ruber and pone fp32 alone is written unless --graph names others.
    """
    from turnscore_exporters.data.reference_turns import choose_reference_turns
    from turnscore_exporters.pair_models.relevance import RelevanceExport, graphs_by_default
    from turnscore_exporters.pair_models.relevance import export_relevance as export

    with exporting(threads) as report:
        job = RelevanceExport(
            checkpoint=checkpoint,
            version=version,
            output=output,
            reference=choose_reference_turns(data, dialogues or [], turns),
            graphs=choose_graphs(graph or graphs_by_default(checkpoint), int8_tolerance, fp16_tolerance),
            token_limit=token_limit,
            licence=licence,
        )
        report(export(job))


def export_usr(
    version: BundleVersionOption,
    output: BundleOutputOption,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder of `turnscore train baseline usr`, in place of the next three options.")
    ] = None,
    masked: Annotated[str | None, typer.Option(help="A BERT or RoBERTa for masked words: folder or hub name.")] = None,
    retrieval: Annotated[str | None, typer.Option(help="A BERT or RoBERTa for pairs: folder or hub name.")] = None,
    formula: Annotated[Path | None, typer.Option(help="The regression, JSON. Default: equal weights.")] = None,
    data: OptionalDataOption = None,
    dialogues: DialoguesOption = None,
    turns: ReferenceTurnsOption = 400,
    graph: GraphsOption = None,
    token_limit: LimitOption = 96,
    int8_tolerance: Int8ToleranceOption = 0.3,
    licence: LicenceOption = "that of the checkpoints",
    threads: ThreadsOption = 0,
) -> None:
    """Write the bundle of USR, of any BERT or RoBERTa; fails unless graphs and checkpoints agree as served."""
    from turnscore_exporters.data.reference_turns import choose_reference_turns
    from turnscore_exporters.pair_models.usr import FORMULA_FILE, MASKED_FOLDER, RETRIEVAL_FOLDER, UsrExport
    from turnscore_exporters.pair_models.usr import export_usr as export

    with exporting(threads) as report:
        if (checkpoint is None) == (masked is None or retrieval is None):
            raise ExporterError("give either --checkpoint, or both --masked and --retrieval")
        if checkpoint is not None:
            masked, retrieval = str(checkpoint / MASKED_FOLDER), str(checkpoint / RETRIEVAL_FOLDER)
            formula = checkpoint / FORMULA_FILE
        job = UsrExport(
            masked=masked or "",
            retrieval=retrieval or "",
            formula=formula,
            version=version,
            output=output,
            reference=choose_reference_turns(data, dialogues or [], turns),
            graphs=choose_graphs(graph, int8_tolerance),
            token_limit=token_limit,
            licence=licence,
        )
        report(export(job))


def export_combination(
    output: Annotated[Path, typer.Option(dir_okay=False, help="File for the percentiles, JSON.")],
    weight: Annotated[
        list[str], typer.Option(help="A part and its weight: `engagement=0.5`, `quality.relevant=1`; repeatable.")
    ],
    bundle: Annotated[list[str], typer.Option(help="A bundle's folder (with a /) or name; repeatable.")],
    data: OptionalDataOption = None,
    dialogues: DialoguesOption = None,
    turns: ReferenceTurnsOption = 2000,
) -> None:
    """Write the percentiles of a combination of scorers over real turns, for TURNSCORE_COMBINATIONS."""
    from turnscore_exporters.data.reference_turns import choose_reference_turns
    from turnscore_exporters.rebuild_bundle import parse_weights, write_combination_percentiles

    with reported_errors(ExporterError):
        reference = choose_reference_turns(data, dialogues or [], turns)
        found = write_combination_percentiles(parse_weights(weight), bundle, reference, output)
    typer.echo(f"wrote {output}: values of {found.turns} turns from {found.percentiles[0]} to {found.percentiles[-1]}")
