"""Trains the sentiment/stop model: rows, made-up negatives, batches, loss, a run from data to report; and exports it.

The export refuses a graph without parity.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn import functional
from turnscore_assessment.data.dialogues import (
    DBDC3_FILE,
    DEFAULT_SETS,
    LabelledTurn,
    read_dbdc3,
    read_sets,
    read_turns,
)
from turnscore_assessment.figures import compute_pearson, compute_spearman
from turnscore_assessment.rendering import table_head, table_row
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.sentiment_stop import DialogueRow, SentimentStopScorer, WindowLayout
from turnscore_models.bundle import Bundle

from turnscore_exporters.bundles.checkpoint import Checkpoint, export_checkpoint, write_graphs
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, GraphContract
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.options import SentimentExportOptions, SentimentTrainOptions
from turnscore_exporters.sentiment.model import (
    BadResponses,
    LabelRules,
    NegativeRecipe,
    SentimentSettings,
    SentimentStopModel,
    Target,
    WindowBuilder,
    collate_rows,
    complains,
    label_sentiment,
    load_model,
    score_rows,
)
from turnscore_exporters.training.encoders import POOLED, Encoder, chunks, load_long_encoder, save_model
from turnscore_exporters.training.loop import (
    REPORT_FILE,
    STATE_FOLDER,
    TRAINING_FILE,
    BestWeights,
    LoopSettings,
    WeightAverage,
    claim_folder,
    describe_run,
    train,
)

UNKNOWN = math.nan
SORTED_TOGETHER = 2048  # chosen: long enough to sort by length, short enough to stay random


@dataclass(frozen=True, kw_only=True)
class SentimentRecipe:
    """How to train. The defaults are the starter's; see docs/models/sentiment_stop.md."""

    labels: LabelRules = field(default_factory=LabelRules)
    negatives: NegativeRecipe = field(default_factory=NegativeRecipe)
    epochs: int = 2
    batch_tokens: int = 3072
    # Rows of a batch in random order, in place of rows of like length by the budget of tokens.
    batch_rows: int | None = None
    learning_rate: float = 1e-4
    head_factor: float = 10.0
    frozen_layers: int = 2  # The word embeddings and this many layers stay frozen; -1 trains everything.
    # Decay of the exponential average of the weights, which begins a fifth into the training. None: the epoch counts
    # whose predictions correlate best (Spearman) with people's judgements in the development set.
    average_decay: float | None = 0.99
    weight_decay: float = 0.01  # Of AdamW, which is Adam where it is 0.
    warm_up_share: float = 0.06
    is_decaying: bool = True
    betas: tuple[float, float] = (0.9, 0.98)
    is_half: bool = True  # The encoder computes in bfloat16.
    starts_at_mean: bool = True  # The head's biases start at the mean sentiment and a likely going on.


PAPER_SETTINGS = SentimentSettings(
    encoder="google-bert/bert-base-uncased",
    layout=WindowLayout(context_turns=100, turn_marks="separator", response_segment=1),
    pooling="pooled",
    target="sum",
    token_limit=512,
)
# Specified (Ghazarian et al. 2022, section 2 and appendix): BERT-base over the context and the response, its pooled
# output, all layers, batches of 8, Adam at 1e-5, 10 epochs of which the best on a development set counts, sentiments
# from -3 to 3 plus 1 where the user goes on. docs/models/sentiment_stop.md has what the paper does not state.
PAPER = SentimentRecipe(
    labels=LabelRules(scale=3.0, handles_short_answers=False, complaint_weight=0.0),
    negatives=NegativeRecipe(share=0.0),
    epochs=10,
    batch_rows=8,
    learning_rate=1e-5,
    head_factor=1.0,
    frozen_layers=-1,
    average_decay=None,
    weight_decay=0.0,
    warm_up_share=0.0,
    is_decaying=False,
    betas=(0.9, 0.999),
    is_half=False,
    starts_at_mean=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRow:
    """A row with its labels; UNKNOWN where there is none."""

    row: DialogueRow
    sentiment: float
    goes_on: float
    goes_on_weight: float = 1.0


class TrainingRows:
    """The rows of every epoch: the real ones, and negatives drawn for each."""

    def __init__(
        self, turns: Sequence[LabelledTurn], rows: WindowBuilder, recipe: SentimentRecipe, seed: int = 0
    ) -> None:
        self._turns = turns
        self._rows = rows
        self._recipe = recipe
        self._seed = seed
        self.bad_responses = BadResponses(turns)
        rows.add(text for turn in turns for text in (turn.response, *(said for _, said in turn.context)))
        self.real = [self._label(turn) for turn in turns]

    def known(self, target: Target) -> list[LabelledRow]:
        """The real rows whose target is known: a sentiment; for the sum, whether the user goes on."""
        if target == "sentiment":
            return [row for row in self.real if not math.isnan(row.sentiment)]
        return [row for row in self.real if not math.isnan(row.goes_on)]

    def _label(self, turn: LabelledTurn) -> LabelledRow:
        sentiment = UNKNOWN
        if turn.next_user is not None:
            sentiment = label_sentiment(turn.next_user, turn.response, self._recipe.labels)
        goes_on = UNKNOWN if turn.goes_on is None else float(turn.goes_on)
        return LabelledRow(row=self._rows.build(turn.context, turn.response), sentiment=sentiment, goes_on=goes_on)

    def epoch(self, number: int) -> list[LabelledRow]:
        """The real rows and the epoch's negatives."""
        generator = random.Random(self._seed * 1000 + number)  # noqa: S311
        recipe = self._recipe.negatives
        negatives = []
        for place in generator.sample(range(len(self._turns)), int(recipe.share * len(self._turns))):
            turn, real = self._turns[place], self.real[place]
            response = self.bad_responses.make(turn, generator)
            if response.strip() and response != turn.response:
                stops = UNKNOWN if turn.next_user is not None and turn.goes_on is None else 0.0
                row = self._rows.build(turn.context, response)
                negatives.append(
                    LabelledRow(
                        row=row,
                        sentiment=real.sentiment + recipe.sentiment_shift,
                        goes_on=stops,
                        goes_on_weight=recipe.stop_weight,
                    )
                )
        return self.real + negatives

    def batches(self, target: Target) -> list[list[LabelledRow]]:
        """The batches of all epochs in order."""
        found: list[list[LabelledRow]] = []
        for number in range(self._recipe.epochs):
            generator = random.Random(self._seed * 1000 + number)  # noqa: S311
            if size := self._recipe.batch_rows:
                order = generator.sample(known := self.known(target), len(known))
                found += list(chunks(order, size))
            else:
                found += form_batches(self.epoch(number), self._recipe.batch_tokens, generator)
        return found

    def mean_sentiment(self) -> float:
        """The mean over the real rows that have a sentiment; 0 where none has."""
        known = [row.sentiment for row in self.real if not math.isnan(row.sentiment)]
        return sum(known) / len(known) if known else 0.0


def form_batches(rows: Sequence[LabelledRow], batch_tokens: int, generator: random.Random) -> list[list[LabelledRow]]:
    """Batches of rows of like length within the budget, padding included, in random order."""
    order = generator.sample(list(rows), len(rows))
    batches: list[list[LabelledRow]] = []
    for start in range(0, len(order), SORTED_TOGETHER):
        batch: list[LabelledRow] = []
        for each in sorted(order[start : start + SORTED_TOGETHER], key=lambda each: len(each.row.ids)):
            if batch and (len(batch) + 1) * len(each.row.ids) > batch_tokens:
                batches.append(batch)
                batch = []
            batch.append(each)
        batches.append(batch)
    generator.shuffle(batches)
    return batches


def compute_loss(outputs: Tensor, batch: Sequence[LabelledRow], target: Target) -> Tensor:
    """The batch's loss of sentiments and logits [rows, 2]: the mean over rows, unknown labels counting 0.

    `two` adds the squared error of the sentiment and the cross entropy of going on. `sum` is the squared error of
    sentiment plus going on, where an unknown sentiment counts as 0 and an unknown end as going on; a made-up row weighs
    as much as its label of going on.
    """
    sentiment = torch.tensor([each.sentiment for each in batch])
    goes_on = torch.tensor([each.goes_on for each in batch])
    weight = torch.tensor([each.goes_on_weight for each in batch])
    if target == "sum":
        wanted = sentiment.nan_to_num(0.0) + goes_on.nan_to_num(1.0)
        return (weight * (outputs[:, 0] - wanted).square()).mean()
    error = (outputs[:, 0] - sentiment.nan_to_num(0.0)).square()
    loss = torch.where(sentiment.isnan(), 0.0, error).mean()
    if target == "sentiment":
        return loss
    weight = torch.where(goes_on.isnan(), 0.0, weight)
    entropy = functional.binary_cross_entropy_with_logits(outputs[:, 1], goes_on.nan_to_num(0.0), reduction="none")
    return loss + (weight * entropy).mean()


def train_model(
    turns: Sequence[LabelledTurn],
    encoder: Encoder,
    settings: SentimentSettings,
    recipe: SentimentRecipe,
    seed: int = 0,
    steps: int | None = None,
    state_path: Path | None = None,
    judged: Sequence[LabelledTurn] = (),
) -> SentimentStopModel:
    """Trains the encoder in place with its head, resuming from `state_path`.

    The recipe says which weights are kept: averaged ones, or those of the epoch that agrees best with people on the
    `judged` responses.
    """
    rows = TrainingRows(turns, WindowBuilder(encoder, settings), recipe, seed)
    batches = rows.batches(settings.target)[:steps]
    torch.manual_seed(seed)
    model = SentimentStopModel(encoder.model, settings)
    if recipe.starts_at_mean:
        # So that the first steps need not find them: the mean sentiment, and a likely going on.
        mean = rows.mean_sentiment() + (settings.target == "sum")
        model.head.bias.data.copy_(torch.tensor([mean, 2.0]))
    if recipe.frozen_layers >= 0:
        model.encoder.embeddings.requires_grad_(False)
        model.encoder.encoder.layer[: recipe.frozen_layers].requires_grad_(False)
    groups: list[dict[str, Any]] = [
        {"params": model.head.parameters(), "lr": recipe.learning_rate * recipe.head_factor},
        {"params": [weight for weight in model.encoder.parameters() if weight.requires_grad]},
    ]
    loop = LoopSettings(
        steps=len(batches),
        run_key=f"sentiment_stop {settings} {recipe} {seed} {len(batches)}",
        seed=seed,
        warm_up_steps=max(1, int(recipe.warm_up_share * len(batches))),
        decays=recipe.is_decaying,
        save_every=100,
        description="sentiment/stop",
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        betas=recipe.betas,
    )

    def step_loss(step: int) -> Tensor:
        inputs = collate_rows([each.row for each in batches[step]], settings.layout)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=recipe.is_half):
            vectors = model.read_rows(*inputs)
        return compute_loss(model.predict(vectors), batches[step], settings.target)

    follower = _follow(model, encoder, recipe, len(batches), judged)
    train(model, step_loss, loop, groups=groups, state_path=state_path, follower=follower)
    return model


def _follow(
    model: SentimentStopModel, encoder: Encoder, recipe: SentimentRecipe, steps: int, judged: Sequence[LabelledTurn]
) -> WeightAverage | BestWeights:
    if recipe.average_decay is not None:
        return WeightAverage(recipe.average_decay, steps // 5)
    if not judged:
        raise ExporterError(f"this recipe chooses its epoch by {DBDC3_FILE}, which the data folder lacks")
    builder = WindowBuilder(encoder, model.settings)
    rows = [builder.build(each.context, each.response) for each in judged]

    def measure() -> float:
        model.eval()
        found = compute_spearman(score_rows(model, rows).sum(1).tolist(), [each.rating for each in judged])
        model.train()
        return -1.0 if math.isnan(found) else found

    return BestWeights(measure, steps, looks=recipe.epochs)


def choose_recipe(options: SentimentTrainOptions) -> tuple[SentimentSettings, SentimentRecipe]:
    """The model and the training of the recipe, with what the options say in its place."""
    is_paper = options.recipe == "paper"
    settings = PAPER_SETTINGS if is_paper else SentimentSettings(encoder="minilm-l6")
    recipe = PAPER if is_paper else SentimentRecipe()
    given = {name: getattr(options, name) for name in ("encoder", "target", "token_limit", "epochs")}
    given = {name: value for name, value in given.items() if value is not None}
    epochs = given.pop("epochs", recipe.epochs)
    settings = replace(settings, **given)
    if is_paper and settings.target == "two":
        raise ExporterError("--recipe paper predicts one number: --target sentiment, or sum")
    return settings, replace(recipe, epochs=epochs)


def run_sentiment_training(options: SentimentTrainOptions) -> None:
    """Trains; writes checkpoint, `training.json` and `report.json` to the output folder; prints the main figures."""
    settings, recipe = choose_recipe(options)
    claim_folder(options.output, options.data)
    sets = read_sets(options.sets or DEFAULT_SETS)
    by_set = read_turns(options.data, sets, options.seed)
    report: dict[str, Any] = {"labels": {name: count_labels(turns, recipe.labels) for name, turns in by_set.items()}}
    typer.echo(render_table(report["labels"], "set"))
    judged = read_dbdc3(options.data / DBDC3_FILE) if (options.data / DBDC3_FILE).exists() else []
    torch.manual_seed(options.seed)  # draws a pooling layer that the encoder lacks
    encoder = load_long_encoder(settings.encoder, settings.token_limit, has_pooler=settings.pooling == POOLED)
    turns = [turn for members in by_set.values() for turn in members]
    state = options.output / STATE_FOLDER / "sentiment_stop.pt"
    model = train_model(turns, encoder, settings, recipe, options.seed, options.steps, state, judged)
    save_model(model, encoder, options.output)
    if judged:
        report["development"] = measure_development(model, encoder, judged)
        typer.echo(render_table(report["development"], DBDC3_FILE))
    write_json(options.output / REPORT_FILE, report)
    described = describe_run(
        f"turnscore train sentiment-stop --data DATA --output CHECKPOINT --encoder {settings.encoder} "
        f"--recipe {options.recipe} --target {settings.target} --seed {options.seed}",
        encoder=settings.encoder,
        target=settings.target,
        pooling=settings.pooling,
        recipe=asdict(recipe),
        seed=options.seed,
        data={each.name: {"files": each.files, "goes_on": each.goes_on} for each in sets},
    )
    write_json(options.output / TRAINING_FILE, described)


def count_labels(turns: Sequence[LabelledTurn], rules: LabelRules) -> dict[str, Any]:
    """The numbers of turns, sentiments and ends of one set."""
    labels = [label_sentiment(turn.next_user, turn.response, rules) for turn in turns if turn.next_user is not None]
    ends = [turn.goes_on for turn in turns]
    return {
        "turns": len(turns),
        "sentiments": len(labels),
        "positive": sum(label > 0 for label in labels),
        "neutral": sum(label == 0 for label in labels),
        "negative": sum(label < 0 for label in labels),
        "mean_sentiment": round(sum(labels) / len(labels), 4) if labels else None,
        "goes_on": ends.count(True),
        "stops": ends.count(False),
        "unknown_end": ends.count(None),
        "complaints": sum(complains(turn.next_user) for turn in turns if turn.next_user is not None),
    }


def measure_development(
    model: SentimentStopModel, encoder: Encoder, judged: Sequence[LabelledTurn]
) -> dict[str, dict[str, float]]:
    """Correlations of the value and its parts with people's judgements; those of the value also by system."""
    rows = WindowBuilder(encoder, model.settings)
    scores = score_rows(model, [rows.build(each.context, each.response) for each in judged]).numpy().astype(np.float64)
    qualities = [each.rating for each in judged]
    values = scores.sum(1)
    found = {
        "value": _correlate(values, qualities),
        "sentiment": _correlate(scores[:, 0], qualities),
        "goes_on": _correlate(scores[:, 1], qualities),
    }
    for system in sorted({each.system for each in judged}):
        chosen = [place for place, each in enumerate(judged) if each.system == system]
        found[f"value, {system}"] = _correlate(values[chosen], [qualities[place] for place in chosen])
    return found


def _correlate(scores: Any, qualities: Sequence[float]) -> dict[str, float]:
    figures = {"spearman": compute_spearman(scores, qualities), "pearson": compute_pearson(scores, qualities)}
    return {name: round(figure, 4) for name, figure in figures.items() if not math.isnan(figure)}


def render_table(rows: Mapping[str, Mapping[str, Any]], first: str) -> str:
    """A Markdown table of figures by name: a row each, the first column being what `first` says."""
    columns = list(dict.fromkeys(column for figures in rows.values() for column in figures))
    lines = table_head([first, *(column.replace("_", " ") for column in columns)])
    lines += [table_row([name, *(figures.get(column, "") for column in columns)]) for name, figures in rows.items()]
    return "\n".join(lines)


CONTRACT = GraphContract(
    inputs={"input_ids": ROW_AXES, "attention_mask": ROW_AXES, "token_type_ids": ROW_AXES},
    outputs={"sentiment": ("rows",), "goes_on": ("rows",)},
    examples=(EXAMPLE_IDS, (EXAMPLE_IDS > 0).long(), (EXAMPLE_IDS > 1).long()),
)


def export_sentiment(options: SentimentExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does.

    Parity and percentiles are of turns drawn equally from the sets whose users could leave.
    """
    sets = [each for each in read_sets() if each.goes_on == "observed"]
    generator = random.Random(0)  # noqa: S311
    drawn: list[TurnToScore] = []
    for turns in read_turns(options.data, sets, 0).values():
        found = [each.to_score() for each in turns]
        drawn += generator.sample(found, min(options.turns // len(sets), len(found)))
    model, encoder = load_model(options.checkpoint)
    made = Checkpoint(
        scorer=SentimentStopScorer,
        encoder=encoder,
        write_graphs=partial(write_graphs, model, CONTRACT),
        score=partial(score_turns, model, encoder),
        turns=drawn,
        source=f"system turns of {' and '.join(each.name for each in sets)}, which were trained on",
        options=model.settings.layout.model_dump(),
        training=read_json(options.checkpoint / "training.json"),
        agreement={"report": read_json(options.checkpoint / "report.json")},
    )
    return export_checkpoint(made, options)


def score_turns(model: SentimentStopModel, encoder: Encoder, turns: Sequence[TurnToScore]) -> list[float]:
    """The checkpoint's values: sentiment plus probability of going on."""
    builder = WindowBuilder(encoder, model.settings)
    rows = [builder.build([(each.speaker, each.text) for each in turn.context], turn.response) for turn in turns]
    values: list[float] = score_rows(model, rows).double().sum(1).tolist()
    return values
