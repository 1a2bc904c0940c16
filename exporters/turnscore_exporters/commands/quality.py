"""Options of the command that trains the quality model."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.commands.options import DataOption, EncoderOption, OutputOption, ThreadsOption
from turnscore_exporters.errors import ExporterError


def train_quality(
    data: DataOption,
    output: OutputOption,
    encoder: EncoderOption = "minilm-l6",
    init_from: Annotated[
        Path | None, typer.Option(help="A checkpoint of quality:1.3.0 or before to start from.", exists=True)
    ] = None,
    finish_only: Annotated[
        Path | None,
        typer.Option(help="A trained checkpoint: fit its value again, and train nothing.", exists=True),
    ] = None,
    passes: Annotated[float, typer.Option(min=0.001, help="How often the judged responses are read.")] = 2.5,
    share: Annotated[float, typer.Option(min=0.0001, max=1, help="Share of the data; small in a trial.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=0, help="Learning rate of the encoder.")] = 6e-5,
    seed: int = 0,
    threads: ThreadsOption = 0,
) -> None:
    """Train the quality model on judged responses and user turns, and on what people really said."""
    from turnscore_exporters.quality.job import QualityJob, run_quality_job
    from turnscore_exporters.quality.model import QualitySettings
    from turnscore_exporters.quality.training import JudgedRecipe

    with reported_errors(ExporterError):
        run_quality_job(
            QualityJob(
                data=data,
                output=output,
                settings=QualitySettings(encoder),
                recipe=JudgedRecipe(passes=passes, learning_rate=learning_rate),
                init_from=init_from,
                finish_only=finish_only,
                share=share,
                seed=seed,
                threads=threads,
            )
        )
