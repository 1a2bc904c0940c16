"""`turnscore train`: trains checkpoints from data files. Exports nothing."""

from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.commands.options import DataOption, EncoderOption, OutputOption, ThreadsOption
from turnscore_exporters.commands.quality import train_quality
from turnscore_exporters.commands.sentiment import train_sentiment_stop
from turnscore_exporters.errors import ExporterError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Train the models that turnscore serves.")
app.command("quality")(train_quality)
app.command("sentiment-stop")(train_sentiment_stop)


@app.command()
def engagement(
    data: DataOption,
    output: OutputOption,
    encoder: EncoderOption = "minilm-l6",
    recipe: Annotated[str, typer.Option(help="`paper` (Ghazarian et al. 2020) or `mixed` (the starter's).")] = "mixed",
    labels: Annotated[str, typer.Option(help="Recipe paper: `published` or `corrected` ratings.")] = "corrected",
    pooling: Annotated[str, typer.Option(help="`mean` or `max` over a text's tokens.")] = "mean",
    fine_tune: Annotated[bool, typer.Option(help="Recipe paper: train the encoder too.")] = False,
    transfer: Annotated[bool, typer.Option(help="Recipe paper: go on with the transfer pairs.")] = True,
    steps: Annotated[int | None, typer.Option(help="Steps of the encoder's training; fewer for a trial.")] = None,
    seed: int = 0,
    threads: ThreadsOption = 0,
    any_counts: Annotated[bool, typer.Option(help="Accept other pair counts than the published ones.")] = False,
) -> None:
    """Train the engagement classifier and report its agreement with people."""
    from turnscore_exporters.engagement.report import EngagementJob, run_engagement_job

    job = EngagementJob(
        data=data,
        output=output,
        encoder=encoder,
        recipe=recipe,
        labels=labels,
        pooling=pooling,
        is_fine_tuned=fine_tune,
        with_transfer=transfer,
        steps=steps,
        seed=seed,
        threads=threads,
        check_counts=not any_counts,
    )
    with reported_errors(ExporterError):
        run_engagement_job(job)


@app.command("dialogue-lm")
def dialogue_lm(
    data: DataOption,
    output: OutputOption,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of about 2,048 tokens.")] = 1800,
    layers: Annotated[int, typer.Option(min=1)] = 6,
    width: Annotated[int, typer.Option(min=8, help="Width of the hidden states; a multiple of the heads.")] = 256,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    positions: Annotated[int, typer.Option(min=32, help="The longest context, follow-up included, in tokens.")] = 256,
    vocabulary: Annotated[int, typer.Option(min=300, help="Entries of the byte-level BPE.")] = 8192,
    seed: int = 0,
    threads: ThreadsOption = 0,
) -> None:
    """Train a small dialogue language model (GPT-2 architecture) for FED and report its held-out perplexity."""
    from turnscore_exporters.fed.language_model import LanguageModelJob, LanguageModelSize, run_language_model_job

    size = LanguageModelSize(vocabulary=vocabulary, positions=positions, width=width, layers=layers, heads=heads)
    with reported_errors(ExporterError):
        run_language_model_job(
            LanguageModelJob(data=data, output=output, size=size, steps=steps, seed=seed, threads=threads)
        )
