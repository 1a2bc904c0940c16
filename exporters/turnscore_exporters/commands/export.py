"""`turnscore export`: makes bundles from checkpoints. Trains nothing."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.commands.exported import choose_graphs, exporting
from turnscore_exporters.commands.options import (
    BundleOutputOption,
    BundleVersionOption,
    DataOption,
    DialoguesOption,
    Fp16ToleranceOption,
    GraphsOption,
    Int8ToleranceOption,
    LicenceOption,
    OptionalDataOption,
    ReferenceTurnsOption,
    ThreadsOption,
)
from turnscore_exporters.commands.pair_models import export_combination, export_relevance, export_usr
from turnscore_exporters.commands.renewal import percentiles, recover, release, self_test
from turnscore_exporters.errors import ExporterError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make bundles that turnscore serves.")


@app.command()
def engagement(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore train wrote.")],
    version: BundleVersionOption,
    output: BundleOutputOption,
    data: DataOption,
    turns: ReferenceTurnsOption = 4000,
    graph: GraphsOption = None,
    int8_tolerance: Int8ToleranceOption = 0.15,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder and of the training data",
    threads: ThreadsOption = 0,
) -> None:
    """Write the bundle of an engagement checkpoint; fails unless graphs and checkpoint agree as served."""
    from turnscore_exporters.data.convai import EngagementPaths, Labels, Split, read_engagement_data
    from turnscore_exporters.data.reference_turns import read_reference_turns
    from turnscore_exporters.engagement.bundle import EngagementExport, ExportData, export_engagement

    with exporting(threads) as report:
        labelled = read_engagement_data(EngagementPaths.in_folder(data), check_counts=False)
        judged = {
            "judged": labelled.judged,
            "thumbs": labelled.convai.thumbs[Split.TEST],
            "corrected": labelled.convai.pairs[Labels.CORRECTED][Split.TEST],
        }
        reference = read_reference_turns(data, turns)
        data_to_use = ExportData(reference, judged)
        job = EngagementExport(
            checkpoint=checkpoint,
            version=version,
            output=output,
            data=data_to_use,
            graphs=choose_graphs(graph, int8_tolerance, fp16_tolerance),
            licence=licence,
        )
        report(export_engagement(job))


@app.command()
def sentiment_stop(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore train wrote.")],
    version: BundleVersionOption,
    output: BundleOutputOption,
    data: DataOption,
    turns: ReferenceTurnsOption = 4000,
    graph: GraphsOption = None,
    int8_tolerance: Int8ToleranceOption = 0.15,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder and of the training data",
    threads: ThreadsOption = 0,
) -> None:
    """Write the bundle of a sentiment/stop checkpoint; fails unless graphs and checkpoint agree as served."""
    from turnscore_exporters.sentiment.bundle import SentimentExport, export_sentiment, read_sentiment_reference

    with exporting(threads) as report:
        reference = read_sentiment_reference(data, turns)
        job = SentimentExport(
            checkpoint=checkpoint,
            version=version,
            output=output,
            reference=reference,
            graphs=choose_graphs(graph, int8_tolerance, fp16_tolerance),
            licence=licence,
        )
        report(export_sentiment(job))


@app.command()
def quality(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore train wrote, with its value.json.")],
    version: BundleVersionOption,
    output: BundleOutputOption,
    data: DataOption,
    turns: ReferenceTurnsOption = 4000,
    graph: GraphsOption = None,
    int8_tolerance: Int8ToleranceOption = 0.15,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder and of the training data",
    threads: ThreadsOption = 0,
) -> None:
    """Write the bundle of a quality checkpoint; fails unless every head of the graphs agrees with it as served."""
    from turnscore_exporters.quality.bundle import QualityExport, export_quality, read_quality_reference

    with exporting(threads) as report:
        reference = read_quality_reference(data, turns)
        job = QualityExport(
            checkpoint=checkpoint,
            version=version,
            output=output,
            reference=reference,
            graphs=choose_graphs(graph, int8_tolerance, fp16_tolerance),
            licence=licence,
        )
        report(export_quality(job))


@app.command()
def encoder(
    encoder: Annotated[str, typer.Option(help="A sentence encoder (BERT): its folder, or `minilm-l6`.")],
    version: BundleVersionOption,
    output: BundleOutputOption,
    data: OptionalDataOption = None,
    dialogues: DialoguesOption = None,
    turns: ReferenceTurnsOption = 4000,
    graph: GraphsOption = None,
    pooling: Annotated[str | None, typer.Option(help="`mean` or `cls`, in place of what the folder asks for.")] = None,
    token_limit: Annotated[int, typer.Option(min=8, help="Most tokens of a text that the encoder reads.")] = 256,
    int8_tolerance: Int8ToleranceOption = 0.05,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder",
    threads: ThreadsOption = 0,
) -> None:
    """Write the bundle of a sentence encoder, as published; fails unless graphs and encoder agree as served."""
    from turnscore_exporters.text_encoder.job import TextEncoderJob, run_text_encoder_job

    with exporting(0) as report:
        job = TextEncoderJob(
            encoder=encoder,
            version=version,
            output=output,
            data=data,
            dialogues=dialogues or [],
            turns=turns,
            graphs=choose_graphs(graph, int8_tolerance, fp16_tolerance),
            pooling=pooling,
            token_limit=token_limit,
            licence=licence,
            threads=threads,
        )
        report(run_text_encoder_job(job))


@app.command()
def fed(
    checkpoint: Annotated[str, typer.Option(help="GPT-2 architecture: a folder, or a name such as DialoGPT's.")],
    version: BundleVersionOption = "0.0.0",
    output: Annotated[Path | None, typer.Option(help="Folder for the bundle; must be empty or missing.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only compare with the published computation; needs no data.")
    ] = False,
    dialogues: Annotated[list[Path] | None, typer.Option(help="Dialogues for the percentiles; repeatable.")] = None,
    turns: Annotated[int, typer.Option(min=100, help="System turns of these dialogues to score.")] = 300,
    graph: GraphsOption = None,
    qualities: Annotated[Path | None, typer.Option(help="A JSON file of qualities in place of the published.")] = None,
    join: Annotated[str, typer.Option(help="Spaces beside the separators: `stripped` or `spaced`.")] = "stripped",
    loss: Annotated[str, typer.Option(help="Default loss, `response_only` or `whole_sequence`.")] = "response_only",
    licence: LicenceOption = "that of the checkpoint",
    threads: ThreadsOption = 0,
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="Mark the bundle as a stand-in for a better one.")
    ] = False,
) -> None:
    """Write the FED bundle of a language model, or only verify it; fails unless the one pass gives the same numbers."""
    from turnscore_exporters.fed.bundle import FedJob, run_fed_job

    with reported_errors(ExporterError):
        run_fed_job(
            FedJob(
                checkpoint=checkpoint,
                version=version,
                output=output,
                is_verification=verify,
                dialogues=dialogues or [],
                turns=turns,
                graphs=graph,
                qualities=qualities,
                join=join,
                loss=loss,
                licence=licence,
                threads=threads,
                stand_in=stand_in,
            )
        )


for name, command in (
    ("self-test", self_test),
    ("percentiles", percentiles),
    ("recover", recover),
    ("release", release),
    ("combination", export_combination),
    ("relevance", export_relevance),
    ("usr", export_usr),
):
    app.command(name)(command)
