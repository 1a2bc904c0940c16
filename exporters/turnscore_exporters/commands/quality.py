"""Options of the command that trains the quality model."""

from pathlib import Path
from typing import Annotated

import typer
from turnscore_assessment.reported_errors import reported_errors

from turnscore_exporters.commands.options import DataOption, EncoderOption, OutputOption, ThreadsOption
from turnscore_exporters.errors import ExporterError


def train_quality(
    data: DataOption,
    output: OutputOption,
    encoder: EncoderOption = "minilm-l6",
    teacher: Annotated[str, typer.Option(help="The engagement bundle that the head `engaging` learns from.")] = (
        "engagement"
    ),
    negatives: Annotated[int, typer.Option(min=1, help="Made-up responses per real one.")] = 4,
    without: Annotated[list[str] | None, typer.Option(help="A kind of made-up responses to leave out.")] = None,
    scale: Annotated[float, typer.Option(min=0.001, max=4, help="Share of the turns to draw; small in a trial.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=0, help="Learning rate of the encoder.")] = 5e-5,
    with_dailydialog: Annotated[
        bool, typer.Option(help="Also use data made from DailyDialog, licensed for non-commercial use.")
    ] = False,
    sentence_teacher: Annotated[
        str | None,
        typer.Option(
            help="A larger sentence encoder to learn from at last, by folder or hub name: "
            "`sentence-transformers/all-mpnet-base-v2`, say."
        ),
    ] = None,
    with_int8: Annotated[
        bool,
        typer.Option(
            help="Train at last with the int8 rounding in it: the int8 graph then answers as the weights did."
        ),
    ] = False,
    start: Annotated[
        list[Path] | None,
        typer.Option(help="A checkpoint in place of the training on groups; several are averaged."),
    ] = None,
    context_turns: Annotated[int, typer.Option(min=1, max=3, help="Latest turns of the context that it reads.")] = 2,
    seed: int = 0,
    threads: ThreadsOption = 0,
) -> None:
    """Train the quality model on people's turns, made-up ones beside them, and turns that people rated."""
    from turnscore_service.scorers.quality_windows import WindowLayout

    from turnscore_exporters.quality.examples import ExampleRecipe
    from turnscore_exporters.quality.job import QualityJob, Rounding, Teaching, run_quality_job
    from turnscore_exporters.quality.model import QualitySettings
    from turnscore_exporters.quality.negatives import SHARES, NegativeKind
    from turnscore_exporters.quality.preparation import Preparation
    from turnscore_exporters.quality.spoken_turns import TAUGHT_SOURCES
    from turnscore_exporters.quality.training import QualityRecipe

    with reported_errors(ExporterError):
        left_out = set(without or ())
        if unknown := sorted(left_out - set(NegativeKind)):
            raise ExporterError(f"--without is {unknown[0]!r}, expected one of {', '.join(NegativeKind)}")
        shares = {kind: share for kind, share in SHARES.items() if kind not in left_out}
        recipe = ExampleRecipe(negatives=negatives, shares=shares)
        prepared = Preparation(recipe=recipe, encoder=encoder, teacher=teacher, seed=seed).scaled(scale)
        taught = Preparation(sources=TAUGHT_SOURCES, seed=seed + 11).scaled(scale)
        run_quality_job(
            QualityJob(
                data=data,
                output=output,
                settings=QualitySettings(encoder, WindowLayout(context_turns=context_turns)),
                recipe=QualityRecipe(learning_rate=learning_rate),
                preparation=prepared,
                with_dailydialog=with_dailydialog,
                teaching=Teaching(teacher=sentence_teacher, preparation=taught) if sentence_teacher else None,
                rounding=Rounding(preparation=taught) if with_int8 else None,
                start=tuple(start or ()),
                seed=seed,
                threads=threads,
            )
        )
