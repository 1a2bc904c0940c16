"""Options of the command that trains the sentiment/stop model."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from turnscore_assessment.command_line import reported_errors

from turnscore_exporters.commands.options import (
    DataOption,
    EncoderOption,
    OutputOption,
    ThreadsOption,
)
from turnscore_exporters.errors import ExporterError

Marks = Literal["separator", "speaker"]


def train_sentiment_stop(
    data: DataOption,
    output: OutputOption,
    encoder: EncoderOption = "minilm-l6",
    target: Annotated[str, typer.Option(help="`two`, or a published variant: `sentiment`, or their `sum`.")] = "two",
    pooling: Annotated[str, typer.Option(help="Pooling of a row's tokens: `mean`, `first`, or `response`.")] = "mean",
    context_turns: Annotated[int, typer.Option(min=0, help="Latest turns of the context that the model reads.")] = 3,
    turn_marks: Annotated[
        Marks, typer.Option(help="Separators between turns, or the speaker's mark before each.")
    ] = "separator",
    response_segment: Annotated[int, typer.Option(min=0, max=1, help="Segment id of the response.")] = 1,
    token_limit: Annotated[int, typer.Option(min=16, help="Most tokens of context and response together.")] = 80,
    short_answers: Annotated[bool, typer.Option(help="Do not take a `no` to a question for a complaint.")] = True,
    complaint_weight: Annotated[float, typer.Option(min=0, help="Sentiment that a complaint loses.")] = 0.6,
    negatives: Annotated[float, typer.Option(min=0, max=1, help="Made-up bad responses per real one.")] = 0.5,
    epochs: Annotated[int, typer.Option(min=1)] = 2,
    learning_rate: Annotated[float, typer.Option(min=0)] = 1e-4,
    frozen_layers: Annotated[int, typer.Option(min=-1, help="Layers that stay frozen; -1 trains everything.")] = 2,
    steps: Annotated[int | None, typer.Option(help="Most steps; for a trial.")] = None,
    sets: Annotated[Path | None, typer.Option(help="Your own descriptions of the sets of dialogues, JSON.")] = None,
    seed: int = 0,
    threads: ThreadsOption = 0,
) -> None:
    """Train the sentiment/stop model on what users said next; report labels and agreement with people."""
    from turnscore_assessment.data.dialogue_sets import DEFAULT_SETS
    from turnscore_core.scorers.sentiment_stop import RowLayout

    from turnscore_exporters.sentiment.labels import LabelRules, NegativeRecipe
    from turnscore_exporters.sentiment.model import ModelSettings, RowPooling, Target
    from turnscore_exporters.sentiment.training import SentimentJob, SentimentRecipe, run_sentiment_job
    from turnscore_exporters.training.loop import parse_choice

    layout = RowLayout(
        context_turns=context_turns, turn_marks=turn_marks, response_segment=1 if response_segment else 0
    )
    labels = LabelRules(short_answers, complaint_weight)
    with reported_errors(ExporterError):
        read, wanted = parse_choice(RowPooling, pooling, "pooling"), parse_choice(Target, target, "target")
        settings = ModelSettings(encoder=encoder, layout=layout, pooling=read, target=wanted, token_limit=token_limit)
        recipe = SentimentRecipe(
            labels=labels,
            negatives=NegativeRecipe(negatives),
            epochs=epochs,
            learning_rate=learning_rate,
            frozen_layers=frozen_layers,
        )
        run_sentiment_job(
            SentimentJob(
                data=data,
                output=output,
                settings=settings,
                recipe=recipe,
                sets=sets or DEFAULT_SETS,
                steps=steps,
                seed=seed,
                threads=threads,
            )
        )
