"""`turnscore-export`: makes bundles of checkpoints. Trains nothing."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.reported_errors import reported_errors
from turnscore_models.version_option import add_version

from turnscore_exporters.commands.options import DISTRIBUTION, Fp16ToleranceOption, GraphsOption, Int8ToleranceOption
from turnscore_exporters.commands.sentiment import export_sentiment_stop
from turnscore_exporters.errors import ExporterError

LicenceOption = Annotated[str, typer.Option(help="Licence of the weights, for the manifest.")]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make bundles that turnscore serves.")
add_version(app, DISTRIBUTION)
app.command("sentiment-stop")(export_sentiment_stop)


@app.command()
def engagement(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore-train wrote.")],
    version: Annotated[str, typer.Option(help="Version of the bundle, such as 1.0.0.")],
    output: Annotated[Path, typer.Option(help="Folder for the bundle; must be empty or missing.")],
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    turns: Annotated[int, typer.Option(min=200, help="Real turns for parity and calibration.")] = 4000,
    graph: GraphsOption = None,
    int8_tolerance: Int8ToleranceOption = 0.15,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder and of the training data",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of torch; 0 leaves the choice to it.")] = 0,
) -> None:
    """Write the bundle of an engagement checkpoint; fails unless graphs and checkpoint agree as served."""
    import torch

    from turnscore_exporters.bundles.encoder import GraphChoice
    from turnscore_exporters.bundles.writer import choose_graphs
    from turnscore_exporters.data.convai import Labels, Split
    from turnscore_exporters.data.reference_turns import read_reference_turns
    from turnscore_exporters.engagement.bundle import EngagementExport, ExportData, export_engagement
    from turnscore_exporters.engagement.data import EngagementPaths, read_engagement_data

    if threads:
        torch.set_num_threads(threads)
    with reported_errors(ExporterError):
        labelled = read_engagement_data(EngagementPaths.in_folder(data), check_counts=False)
        judged = {
            "judged": labelled.judged,
            "thumbs": labelled.convai.thumbs[Split.TEST],
            "corrected": labelled.convai.pairs[Labels.CORRECTED][Split.TEST],
        }
        reference = read_reference_turns(data, turns)
        data_to_use = ExportData(reference, judged)
        graphs = GraphChoice(choose_graphs(graph), int8_tolerance, fp16_tolerance)
        bundle = export_engagement(
            EngagementExport(
                checkpoint=checkpoint, version=version, output=output, data=data_to_use, graphs=graphs, licence=licence
            )
        )
    for variant, spec in bundle.manifest.graphs.items():
        typer.echo(f"{variant}: {spec.parity_measured}")
    typer.echo(f"{bundle.manifest.reference} written to {output}")


@app.command()
def quality(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore-train wrote, with its value.json.")],
    version: Annotated[str, typer.Option(help="Version of the bundle, such as 1.0.0.")],
    output: Annotated[Path, typer.Option(help="Folder for the bundle; must be empty or missing.")],
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    turns: Annotated[int, typer.Option(min=200, help="Real turns for parity and calibration.")] = 4000,
    graph: GraphsOption = None,
    int8_tolerance: Int8ToleranceOption = 0.15,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder and of the training data",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of torch; 0 leaves the choice to it.")] = 0,
) -> None:
    """Write the bundle of a quality checkpoint; fails unless every head of the graphs agrees with it as served."""
    import torch

    from turnscore_exporters.bundles.encoder import GraphChoice
    from turnscore_exporters.bundles.writer import choose_graphs
    from turnscore_exporters.quality.bundle import QualityExport, export_quality, read_quality_reference

    if threads:
        torch.set_num_threads(threads)
    with reported_errors(ExporterError):
        reference = read_quality_reference(data, turns)
        graphs = GraphChoice(choose_graphs(graph), int8_tolerance, fp16_tolerance)
        bundle = export_quality(
            QualityExport(
                checkpoint=checkpoint,
                version=version,
                output=output,
                reference=reference,
                graphs=graphs,
                licence=licence,
            )
        )
    for variant, spec in bundle.manifest.graphs.items():
        typer.echo(f"{variant}: {spec.parity_measured}")
    typer.echo(f"{bundle.manifest.reference} written to {output}")


@app.command()
def encoder(
    encoder: Annotated[str, typer.Option(help="A sentence encoder (BERT): its folder, or `minilm-l6`.")],
    version: Annotated[str, typer.Option(help="Version of the bundle, such as 1.0.0.")],
    output: Annotated[Path, typer.Option(help="Folder for the bundle; must be empty or missing.")],
    data: Annotated[Path | None, typer.Option(help="Folder with the data files under their published names.")] = None,
    dialogues: Annotated[
        list[Path] | None, typer.Option(help="Dialogues (JSON lines) in place of --data; repeatable.")
    ] = None,
    turns: Annotated[int, typer.Option(min=200, help="Real turns for parity and percentiles.")] = 4000,
    graph: GraphsOption = None,
    pooling: Annotated[str | None, typer.Option(help="`mean` or `cls`, in place of what the folder asks for.")] = None,
    token_limit: Annotated[int, typer.Option(min=8, help="Tokens of a text that the encoder reads.")] = 256,
    int8_tolerance: Int8ToleranceOption = 0.05,
    fp16_tolerance: Fp16ToleranceOption = 0.02,
    licence: LicenceOption = "that of the encoder",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of torch; 0 leaves the choice to it.")] = 0,
) -> None:
    """Write the bundle of a sentence encoder, as published; fails unless graphs and encoder agree as served."""
    from turnscore_exporters.bundles.encoder import GraphChoice
    from turnscore_exporters.bundles.writer import choose_graphs
    from turnscore_exporters.text_encoder.job import TextEncoderJob, run_text_encoder_job

    with reported_errors(ExporterError):
        graphs = GraphChoice(choose_graphs(graph), int8_tolerance, fp16_tolerance)
        bundle = run_text_encoder_job(
            TextEncoderJob(
                encoder=encoder,
                version=version,
                output=output,
                data=data,
                dialogues=dialogues or [],
                turns=turns,
                graphs=graphs,
                pooling=pooling,
                token_limit=token_limit,
                licence=licence,
                threads=threads,
            )
        )
    for variant, spec in bundle.manifest.graphs.items():
        typer.echo(f"{variant}: {spec.parity_measured}")
    typer.echo(f"{bundle.manifest.reference} written to {output}")


@app.command()
def fed(
    checkpoint: Annotated[str, typer.Option(help="GPT-2 architecture: a folder, or a name such as DialoGPT's.")],
    version: Annotated[str, typer.Option(help="Version of the bundle, such as 1.0.0.")] = "0.0.0",
    output: Annotated[Path | None, typer.Option(help="Folder for the bundle; must be empty or missing.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only compare with the published way; needs no data.")
    ] = False,
    dialogues: Annotated[list[Path] | None, typer.Option(help="Dialogues for the percentiles; repeatable.")] = None,
    turns: Annotated[int, typer.Option(min=100, help="System turns of these dialogues to score.")] = 300,
    graph: GraphsOption = None,
    qualities: Annotated[Path | None, typer.Option(help="A JSON file of qualities in place of the published.")] = None,
    join: Annotated[str, typer.Option(help="`stripped` or `spaced`: spaces beside the separators.")] = "stripped",
    loss: Annotated[str, typer.Option(help="Default loss, `response_only` or `whole_sequence`.")] = "response_only",
    licence: Annotated[str, typer.Option(help="Licence of the checkpoint's weights.")] = "that of the checkpoint",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of torch; 0 leaves the choice to it.")] = 0,
    stand_in: Annotated[bool, typer.Option("--stand-in", help="Mark it as a stand-in for a better model.")] = False,
) -> None:
    """Write the FED bundle of a language model, or only verify it; fails unless the one pass gives the same numbers."""
    from turnscore_exporters.fed.job import FedJob, run_fed_job

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


@app.command("self-test")
def self_test(
    bundle: Annotated[Path, typer.Option(help="Folder of a bundle, of any age.")],
    version: Annotated[str, typer.Option(help="Version of the new bundle, such as 1.0.2.")],
    output: Annotated[Path, typer.Option(help="Folder for the new bundle; empty or missing.")],
) -> None:
    """Write a bundle anew with the outputs of its own graphs as self-test; weights stay byte for byte."""
    from turnscore_models import BundleError, read_bundle

    from turnscore_exporters.bundles.self_test import renew_self_test

    with reported_errors(ExporterError):
        try:
            renewed = renew_self_test(read_bundle(bundle), version, output)
        except BundleError as error:
            raise ExporterError(str(error)) from error
    typer.echo(f"{renewed.manifest.reference} written to {output}; tolerances: {renewed.self_test().tolerances}")


@app.command()
def percentiles(
    bundle: Annotated[str, typer.Option(help="A bundle's folder (with a /), or its name.")],
    data: Annotated[Path, typer.Option(help="Folder with the data files under their published names.")],
    version: Annotated[str, typer.Option(help="Version of the new bundle, such as 1.0.3.")],
    output: Annotated[Path, typer.Option(help="Folder for the new bundle; empty or missing.")],
    turns: Annotated[int | None, typer.Option(min=100, help="Turns of the population, at most.")] = None,
) -> None:
    """Write a bundle anew with its percentiles among turns that no shipped model was trained on; weights stay."""
    from turnscore_assessment.data.population import read_population
    from turnscore_models import BundleError
    from turnscore_models.store import resolve

    from turnscore_exporters.calibration.percentiles import renew_percentiles

    with reported_errors(ExporterError):
        try:
            renewed = renew_percentiles(resolve(bundle), read_population(data), version, output, turns)
        except BundleError as error:
            raise ExporterError(str(error)) from error
    typer.echo(f"{renewed.manifest.reference} written to {output}: {renewed.calibration().turns} turns")


@app.command()
def threshold(
    bundle: Annotated[str, typer.Option(help="A bundle of quality: its folder (with a /), or its name.")],
    data: Annotated[Path, typer.Option(help="Folder with the development sets under their published names.")],
    version: Annotated[str, typer.Option(help="Version of the new bundle, such as 1.0.1.")],
    output: Annotated[Path, typer.Option(help="Folder for the new bundle; empty or missing.")],
    false_alarms: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="The largest share of good turns that may be called low.")
    ] = 0.05,
) -> None:
    """Write a quality bundle anew with the threshold below which a turn is called low; all else stays byte for byte."""
    from turnscore_models import BundleError
    from turnscore_models.store import resolve

    from turnscore_exporters.calibration.shipped_threshold import add_threshold, format_figures

    with reported_errors(ExporterError):
        try:
            made, figures = add_threshold(resolve(bundle), data, version, output, false_alarms)
        except BundleError as error:
            raise ExporterError(str(error)) from error
    for line in format_figures(figures):
        typer.echo(line)
    assert made.manifest.threshold is not None
    typer.echo(f"{made.manifest.reference} written to {output}: threshold {made.manifest.threshold.value:.4f}")


@app.command()
def release(
    checkpoint: Annotated[Path, typer.Option(help="Folder that turnscore-train wrote.")],
    output: Annotated[Path, typer.Option(dir_okay=False, help="The file, such as quality-checkpoint-1.0.0.tar.")],
) -> None:
    """Pack a checkpoint into one file to keep, and print its checksum as sha256sum does."""
    from turnscore_exporters.training.release import pack_checkpoint

    with reported_errors(ExporterError):
        digest = pack_checkpoint(checkpoint, output)
    typer.echo(f"{digest}  {output}")
