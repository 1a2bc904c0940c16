"""`turnscore-export`: makes bundles of checkpoints. Trains nothing."""

from pathlib import Path
from typing import Annotated

import typer

from turnscore_exporters.cli_options import Fp16ToleranceOption, GraphsOption, Int8ToleranceOption
from turnscore_exporters.reported_errors import reported_errors
from turnscore_exporters.sentiment_cli import export_sentiment_stop

LicenceOption = Annotated[str, typer.Option(help="What the manifest says of the weights' licence.")]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make bundles that turnscore serves.")
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

    from turnscore_exporters.bundle_writing import choose_graphs
    from turnscore_exporters.convai import Labels, Split
    from turnscore_exporters.encoder_bundle import GraphChoice
    from turnscore_exporters.engagement_bundle import EngagementExport, ExportData, export_engagement
    from turnscore_exporters.engagement_data import EngagementPaths, read_engagement_data
    from turnscore_exporters.reference_turns import read_reference_turns

    if threads:
        torch.set_num_threads(threads)
    with reported_errors():
        labelled = read_engagement_data(EngagementPaths.in_folder(data), check_counts=False)
        judged = {
            "judged": labelled.judged,
            "thumbs": labelled.convai.thumbs[Split.TEST],
            "corrected": labelled.convai.pairs[Labels.CORRECTED][Split.TEST],
        }
        reference = read_reference_turns(data, turns)
        data_to_use = ExportData(reference, judged)
        graphs = GraphChoice(choose_graphs(graph), int8_tolerance, fp16_tolerance)
        bundle = export_engagement(EngagementExport(checkpoint, version, output, data_to_use, graphs, licence))
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
    turns: Annotated[int, typer.Option(min=100, help="Their system turns that are scored for that.")] = 300,
    graph: GraphsOption = None,
    qualities: Annotated[Path | None, typer.Option(help="A JSON file of qualities in place of the published.")] = None,
    join: Annotated[str, typer.Option(help="`stripped` or `spaced`: spaces beside the separators.")] = "stripped",
    loss: Annotated[str, typer.Option(help="Default loss, `response_only` or `whole_sequence`.")] = "response_only",
    licence: Annotated[str, typer.Option(help="Licence of the checkpoint's weights.")] = "that of the checkpoint",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads of torch; 0 leaves the choice to it.")] = 0,
) -> None:
    """Write the FED bundle of a language model, or only verify it; fails unless the one pass gives the same numbers."""
    from turnscore_exporters.fed_job import FedJob, run_fed_job

    with reported_errors():
        run_fed_job(
            FedJob(
                checkpoint,
                version,
                output,
                verify,
                dialogues or [],
                turns,
                graph,
                qualities,
                join,
                loss,
                licence,
                threads,
            )
        )
