"""An engagement training from data to report, by two recipes: the paper's, and the mixture of the starter bundle.

The report has models' agreement with people, next to that of the response's length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import typer
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional
from turnscore_assessment.data.dialogues import LabelledTurn, is_sample
from turnscore_assessment.figures import (
    Statistic,
    bootstrap,
    compute_auc,
    compute_balanced_accuracy,
    compute_pearson,
    compute_spearman,
    find_best_threshold,
)

from turnscore_exporters.data.pairs import (
    CONVAI_FILE,
    TEXT_FILE,
    TRANSFER_FILES,
    ContrastText,
    ConvaiSplit,
    EngagementData,
    Labels,
    count_labels,
    read_contrast_text,
    read_engagement_data,
)
from turnscore_exporters.engagement.model import (
    EngagementHead,
    EngagementModel,
    EngagementSettings,
    TokenPooling,
    compare,
    cross_validate_blend,
    fit_blend,
    pool,
)
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import EngagementTrainOptions
from turnscore_exporters.training.encoders import Encoder, TextVectors, load_encoder, read_texts, save_model
from turnscore_exporters.training.loop import (
    REPORT_FILE,
    STATE_FOLDER,
    TRAINING_FILE,
    LoopSettings,
    choose_batch,
    claim_folder,
    describe_run,
    train,
)

WEIGHT_DECAY = 0.05  # chosen


class PairVectors(TextVectors):
    """The head's input of pairs, by row vectors that are computed once for each text."""

    def __init__(self, model: EngagementModel, encoder: Encoder) -> None:
        super().__init__(encoder, lambda ids, mask: model.eval().read_rows(ids, mask))
        self._model = model

    def features(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """[pairs, features] of (query, reply) texts; an empty query counts as missing."""
        queries, replies = [query or reply for query, reply in pairs], [reply for _, reply in pairs]
        vectors = self.of([*queries, *replies])
        return self._model.combine(vectors[: len(pairs)], vectors[len(pairs) :])


@dataclass(frozen=True)
class Source:
    """Labelled features [pairs, features], and how many of them a step takes."""

    features: Tensor
    labels: Tensor
    batch_size: int

    def class_weights(self) -> Tensor:
        """Inverse class frequencies, with mean 1 over the pairs: [weight of 0, weight of 1]."""
        positives = float(self.labels.float().mean().clamp(1e-3, 1 - 1e-3))
        return torch.tensor([0.5 / (1 - positives), 0.5 / positives])


def texts_of(pairs: Sequence[LabelledTurn]) -> list[tuple[str, str]]:
    return [(pair.query, pair.response) for pair in pairs]


def labels_of(pairs: Sequence[LabelledTurn]) -> Tensor:
    return torch.tensor([int(pair.rating) for pair in pairs])


def train_head(head: EngagementHead, source: Source, settings: LoopSettings, state_path: Path | None = None) -> None:
    """Trains one head in place on the weighted cross entropy."""
    weight = source.class_weights()

    def step_loss(step: int) -> Tensor:
        chosen = torch.tensor(choose_batch(len(source.labels), source.batch_size, step, settings.seed))
        return functional.cross_entropy(head(source.features[chosen]), source.labels[chosen], weight=weight)

    train(head, step_loss, settings, state_path=state_path)


# Chosen on the 300 transfer pairs (cross-validated); 24 + 3 x 8 pairs a step fill a CPU core for about a second.
ADAPTATION_RATE, ADAPTATION_HEAD_RATE, ADAPTATION_DECAY = 5e-5, 1e-3, 0.01
CONTRAST_BATCH, LABELLED_BATCH, ADAPTED_ROWS_AT_ONCE = 24, 8, 48
MISSING_QUERY_EVERY = 12
CONTRAST = "contrast"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A batch of one question: queries, replies, and the answer for each."""

    name: str
    queries: list[str]
    replies: list[str]
    answers: list[float]


class AdaptedEncoder(nn.Module):
    """The encoder with one head per question."""

    def __init__(self, encoder: Encoder, questions: Sequence[str], pooling: TokenPooling) -> None:
        super().__init__()
        self.bert = encoder.model
        self.bert.embeddings.requires_grad_(False)
        self.pooling = pooling
        self._encoder = encoder
        width = encoder.width * 4
        self.heads = nn.ModuleDict({name: _build_head(width) for name in questions})

    def loss(self, questions: Sequence[Question], weights: Mapping[str, float]) -> Tensor:
        """The sum over questions of the cross entropy; `weights` are those of the answer 1."""
        texts = {text for each in questions for text in (*each.queries, *each.replies)}
        vectors = read_texts(self._encoder, texts, self._read, ADAPTED_ROWS_AT_ONCE)
        total = torch.zeros(())
        for each in questions:
            query = torch.stack([vectors[text] for text in each.queries])
            reply = torch.stack([vectors[text] for text in each.replies])
            logits = self.heads[each.name](compare(query, reply)).squeeze(-1)
            total = total + functional.binary_cross_entropy_with_logits(
                logits, torch.tensor(each.answers), pos_weight=torch.tensor(weights[each.name])
            )
        return total

    def _read(self, ids: Tensor, mask: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tokens = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        return pool(tokens.float(), mask, self.pooling)


def _build_head(width: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))


def _balance(pairs: Sequence[LabelledTurn]) -> float:
    positives = sum(pair.rating for pair in pairs)
    return (len(pairs) - positives) / max(1, positives)


def ask_contrast(contrast: ContrastText, step: int, seed: int) -> Question:
    """Three rows per pair of a batch: the real reply (1), its spoilt form and the next pair's reply (both 0).

    Every twelfth query is missing; without it any real reply fits, so the third row is left out there.
    """
    chosen = choose_batch(len(contrast.pairs), CONTRAST_BATCH, step, seed)
    queries, replies, answers = [], [], []
    for place, index in enumerate(chosen):
        pair, other = contrast.pairs[index], contrast.pairs[chosen[place - 1]]
        has_query = (step + place) % MISSING_QUERY_EVERY != 0
        candidates = [(pair.response, 1.0), (contrast.spoil(index), 0.0), (other.response, 0.0)]
        for reply, answer in candidates if has_query else candidates[:2]:
            queries.append(pair.query if has_query else reply)
            replies.append(reply)
            answers.append(answer)
    return Question(name=CONTRAST, queries=queries, replies=replies, answers=answers)


def _ask_labels(name: str, pairs: Sequence[LabelledTurn], step: int, seed: int) -> Question:
    chosen = [pairs[index] for index in choose_batch(len(pairs), LABELLED_BATCH, step, seed)]
    queries = [
        pair.response if not pair.query or (step + place) % MISSING_QUERY_EVERY == 0 else pair.query
        for place, pair in enumerate(chosen)
    ]
    return Question(
        name=name,
        queries=queries,
        replies=[pair.response for pair in chosen],
        answers=[pair.rating for pair in chosen],
    )


LEAST_SPREAD = 1e-4  # Least standard deviation of a trained head's probabilities.


@dataclass(frozen=True, kw_only=True)
class PaperRecipe:
    """One model as in Ghazarian et al. (2020): a frozen encoder, an MLP at the paper's rate, then the transfer step.

    What the paper does not state is chosen: steps, batches, Adam at a constant rate, the transfer step's rate.
    """

    labels: Labels = Labels.PUBLISHED
    pooling: TokenPooling = "mean"
    with_transfer: bool = False
    head_steps: int = 600
    head_batch: int = 128
    transfer_steps: int = 100
    transfer_rate: float = 3e-4

    @property
    def name(self) -> str:
        return f"{self.labels}-{self.pooling}-frozen" + ("-transfer" if self.with_transfer else "")

    @property
    def learning_rate(self) -> float:
        """The head's. Specified: 1e-3 with mean pooling, 1e-2 with max pooling."""
        return 1e-3 if self.pooling == "mean" else 1e-2

    def loop(self, name: str, steps: int, encoder: Encoder, seed: int, learning_rate: float) -> LoopSettings:
        """The settings of one of its loops."""
        return LoopSettings(
            steps=steps,
            run_key=f"{name} {encoder.name} {self} {steps} seed {seed}",
            seed=seed,
            description=name,
            learning_rate=learning_rate,
            warm_up_steps=1,
            decays=False,
        )


@dataclass(frozen=True, kw_only=True)
class MixedRecipe:
    """Adapts the encoder, freezes it, trains heads on one source each; the transfer step fits their blend.

    Steps and shares were chosen by cross-validation on the transfer pairs.
    """

    pooling: TokenPooling = "mean"
    adaptation_steps: int = 300
    contrast_pairs: int = 18_000
    contrast_batches: int = 100
    head_steps: tuple[tuple[str, int], ...] = (
        ("contrast", 300),
        ("corrected", 120),
        ("thumbs", 120),
        ("published", 120),
    )
    heads_per_source: int = 2
    batch_size: int = 128
    dropout: float = 0.4
    token_limit: int = 128

    @property
    def heads(self) -> int:
        return len(self.head_steps) * self.heads_per_source


def train_paper_recipe(
    data: EngagementData,
    encoder: Encoder,
    recipe: PaperRecipe,
    seed: int = 0,
    state_folder: Path | None = None,
    vectors: PairVectors | None = None,
) -> tuple[EngagementModel, PairVectors]:
    """Trains on one reading of ConvAI. Runs may share `vectors`, of the frozen encoder and this pooling."""
    torch.manual_seed(seed)
    settings = EngagementSettings(
        encoder=encoder.name, pooling=recipe.pooling, token_limit=encoder.token_limit, dropout=0.0
    )
    model = EngagementModel(encoder.model, settings)
    vectors = vectors or PairVectors(model, encoder)
    pairs = data.convai.pairs[recipe.labels][ConvaiSplit.TRAIN]
    source = Source(vectors.features(texts_of(pairs)), labels_of(pairs), recipe.head_batch)
    loop = recipe.loop("head", recipe.head_steps, encoder, seed, recipe.learning_rate)
    train_head(model.first_head, source, loop, _state(state_folder, "head"))
    with torch.inference_mode():
        spread = float(model.probability(source.features).std())
    if spread < LEAST_SPREAD:
        # Measured with max pooling's rate: the last layer's eight ReLUs die with some seeds.
        raise ExporterError(f"--seed {seed}: the head scores every pair alike after training; take another seed")
    if recipe.with_transfer:
        transfer(model, encoder, vectors, data.transfer, recipe, seed)
    return model, vectors


def transfer(
    model: EngagementModel,
    encoder: Encoder,
    vectors: PairVectors,
    pairs: Sequence[LabelledTurn],
    recipe: PaperRecipe,
    seed: int = 0,
) -> None:
    """The paper's transfer step: continues to train the head, in place, on pairs of the target domain."""
    source = Source(vectors.features(texts_of(pairs)), labels_of(pairs), 64)
    loop = recipe.loop("transfer", recipe.transfer_steps, encoder, seed, recipe.transfer_rate)
    train_head(model.first_head, source, loop)


def train_mixed_recipe(
    data: EngagementData,
    text: Path,
    encoder_name: str,
    recipe: MixedRecipe,
    seed: int = 0,
    state_folder: Path | None = None,
) -> tuple[EngagementModel, Encoder, PairVectors]:
    """Adapts the encoder, trains the heads, fits the blend; also returns the vectors it computed."""
    contrast = read_contrast_text(text, recipe.contrast_pairs, seed)
    encoder = load_encoder(encoder_name, recipe.token_limit)
    settings = LoopSettings(
        steps=recipe.adaptation_steps,
        run_key=f"adapt {encoder_name} {recipe.pooling} {recipe.adaptation_steps} seed {seed}",
        seed=seed,
        description="adapting the encoder",
        weight_decay=ADAPTATION_DECAY,
    )
    labelled = {str(labels): data.convai.pairs[labels][ConvaiSplit.TRAIN] for labels in Labels}
    labelled["thumbs"] = data.convai.thumbs[ConvaiSplit.TRAIN]
    torch.manual_seed(seed)
    adapted = AdaptedEncoder(encoder, [CONTRAST, *labelled], recipe.pooling)
    groups = [
        {"params": [each for each in adapted.bert.parameters() if each.requires_grad], "lr": ADAPTATION_RATE},
        {"params": adapted.heads.parameters(), "lr": ADAPTATION_HEAD_RATE},
    ]
    weights = {name: _balance(pairs) for name, pairs in labelled.items()} | {CONTRAST: 2.0}

    def step_loss(step: int) -> Tensor:
        questions = [ask_contrast(contrast, step, seed)]
        questions += [_ask_labels(name, pairs, step, seed) for name, pairs in labelled.items()]
        return adapted.loss(questions, weights)

    # Its encoder is trained in place; its heads are dropped.
    train(adapted, step_loss, settings, groups=groups, state_path=_state(state_folder, "adapted"))
    torch.manual_seed(seed)
    model = EngagementModel(
        encoder.model,
        EngagementSettings(
            encoder=encoder_name,
            pooling=recipe.pooling,
            combination="compare",
            heads=recipe.heads,
            token_limit=encoder.token_limit,
            dropout=recipe.dropout,
            is_blended=True,
        ),
    )
    vectors = PairVectors(model, encoder)
    # Contrast pairs come from the end, which adaptation saw least.
    queries: list[tuple[str, str]] = []
    answers: list[float] = []
    batches = len(contrast.pairs) // CONTRAST_BATCH
    for step in range(max(0, batches - recipe.contrast_batches), max(1, batches)):
        question = ask_contrast(contrast, step, seed)
        queries += zip(question.queries, question.replies, strict=True)
        answers += question.answers
    sources = {CONTRAST: Source(vectors.features(queries), torch.tensor(answers).long(), recipe.batch_size)}
    for name, pairs in labelled.items():
        sources[name] = Source(vectors.features(texts_of(pairs)), labels_of(pairs), recipe.batch_size)
    train_mixed_heads(model, sources, recipe, seed)
    fit_blend(model, vectors.features(texts_of(data.transfer)), labels_of(data.transfer))
    return model, encoder, vectors


def train_mixed_heads(model: EngagementModel, sources: Mapping[str, Source], recipe: MixedRecipe, seed: int) -> None:
    """Trains every head in place on its source, each with a seed of its own."""
    plan = [(name, steps) for name, steps in recipe.head_steps for _ in range(recipe.heads_per_source)]
    for number, (head, (name, steps)) in enumerate(zip(model.each_head, plan, strict=True)):
        settings = LoopSettings(
            steps=steps,
            run_key="",
            seed=seed + number,
            description=f"head {number + 1} of {len(plan)}: {name}",
            weight_decay=WEIGHT_DECAY,
        )
        head.fit_scale(sources[name].features)
        train_head(head, sources[name], settings)


def _state(folder: Path | None, name: str) -> Path | None:
    return folder / f"{name}.state" if folder else None


@dataclass(frozen=True)
class TestSet:
    """Pairs that people judged and that no model trains on."""

    name: str
    pairs: Sequence[LabelledTurn]
    validation: Sequence[LabelledTurn]

    @property
    def labels(self) -> list[int]:
        return [int(pair.rating) for pair in self.pairs]


def list_test_sets(data: EngagementData) -> list[TestSet]:
    """The ConvAI test pairs under both readings, the pairs judged by AMT raters, and ConvAI's thumbs.

    `validation` sets the length baseline's threshold; the judged pairs have none of their own and take the corrected
    reading's.
    """
    published, corrected = (data.convai.pairs[labels] for labels in (Labels.PUBLISHED, Labels.CORRECTED))
    splits = {"published": published, "corrected": corrected, "thumbs": data.convai.thumbs}
    sets = {name: TestSet(name, of[ConvaiSplit.TEST], of[ConvaiSplit.VALIDATION]) for name, of in splits.items()}
    judged = TestSet("judged", data.judged, sets["corrected"].validation)
    return [sets["published"], sets["corrected"], judged, sets["thumbs"]]


def measure_lengths(pairs: Sequence[LabelledTurn]) -> dict[str, list[float]]:
    """The characters and words of each reply."""
    return {
        "characters": [float(len(pair.response)) for pair in pairs],
        "words": [float(len(pair.response.split())) for pair in pairs],
    }


BOOTSTRAP_ROUNDS = 1000


def measure_agreement(scores: Sequence[float], labels: Sequence[int], threshold: float = 0.5) -> dict[str, Any]:
    """Four figures of one score against people's binary judgements, each with its interval."""
    balanced = partial(compute_balanced_accuracy, threshold=threshold)
    figures: dict[str, Statistic] = {"balanced_accuracy": balanced, "auc": compute_auc}
    figures |= {"pearson": compute_pearson, "spearman": compute_spearman}
    found = {name: asdict(bootstrap(each, scores, labels, BOOTSTRAP_ROUNDS)) for name, each in figures.items()}
    return {"pairs": len(labels), **found}


def report_baselines(test_sets: Sequence[TestSet]) -> dict[str, Any]:
    """Agreement of the reply's length alone, on each test set, with the validation pairs' best threshold."""
    report: dict[str, Any] = {}
    for test_set in test_sets:
        validation = measure_lengths(test_set.validation)
        labels = [pair.rating for pair in test_set.validation]
        report[test_set.name] = {
            kind: measure_agreement(lengths, test_set.labels, find_best_threshold(validation[kind], labels))
            for kind, lengths in measure_lengths(test_set.pairs).items()
        }
    return report


def report_model(model: EngagementModel, vectors: PairVectors, test_sets: Sequence[TestSet]) -> dict[str, Any]:
    """One model's agreement on each test set."""
    report: dict[str, Any] = {}
    for test_set in test_sets:
        scores = model.probability(vectors.features(texts_of(test_set.pairs))).detach().tolist()
        report[test_set.name] = measure_agreement(scores, test_set.labels)
    return report


def report_transfer(model: EngagementModel, vectors: PairVectors, pairs: Sequence[LabelledTurn]) -> dict[str, Any]:
    """Agreement on the transfer pairs, each scored by a blend that did not see it, and that of the lengths alone."""
    odds = cross_validate_blend(model, vectors.features(texts_of(pairs)), labels_of(pairs))
    labels = [pair.rating for pair in pairs]

    def measure_auc(scores: ArrayLike) -> dict[str, Any]:
        return asdict(bootstrap(compute_auc, scores, labels, BOOTSTRAP_ROUNDS))

    of_length = {kind: measure_auc(lengths) for kind, lengths in measure_lengths(pairs).items()}
    return {"pairs": len(pairs), "auc": measure_auc(odds), "auc_of_length": of_length}


MIXED_LABELS = "heads: contrast text, corrected, thumbs, published; blend: transfer pairs"


def run_engagement_training(options: EngagementTrainOptions) -> None:
    """Trains; writes checkpoint, `training.json` and `report.json` to the output folder; prints the main figures."""
    claim_folder(options.output, options.data)
    data = read_engagement_data(options.data, check_counts=not options.any_counts)
    print_counts(data, checked=not options.any_counts and not is_sample(options.data))
    pooling, state = options.pooling, options.output / STATE_FOLDER
    if options.recipe == "mixed":
        recipe = MixedRecipe(pooling=pooling)
        if options.steps is not None:
            recipe = replace(recipe, adaptation_steps=options.steps)
        text = options.data / TEXT_FILE
        model, encoder, vectors = train_mixed_recipe(data, text, options.encoder, recipe, options.seed, state)
    else:
        encoder = load_encoder(options.encoder)
        paper = PaperRecipe(labels=Labels(options.labels), pooling=pooling, with_transfer=options.transfer)
        model, vectors = train_paper_recipe(data, encoder, paper, options.seed, state)
    save_model(model, encoder, options.output)
    test_sets = list_test_sets(data)
    lengths = report_baselines(test_sets)
    report = report_model(model, vectors, test_sets)
    if options.recipe == "mixed":
        report["transfer_cross_validated"] = report_transfer(model, vectors, data.transfer)
    write_json(options.output / REPORT_FILE, {"model": report, "length": lengths})
    write_json(options.output / TRAINING_FILE, _describe(options, encoder.name))
    for test_set in test_sets:
        found, length = report[test_set.name]["auc"], lengths[test_set.name]["characters"]["auc"]
        typer.echo(f"{test_set.name}: AUC {found['value']:.3f} (length in characters {length['value']:.3f})")


def _describe(options: EngagementTrainOptions, encoder: str) -> dict[str, Any]:
    """The manifest's description of the training; file names only, since folders differ between machines."""
    return describe_run(
        f"turnscore train engagement --data DATA --output CHECKPOINT --encoder {encoder} "
        f"--recipe {options.recipe} --pooling {options.pooling} --seed {options.seed}",
        recipe=options.recipe,
        encoder=encoder,
        labels=options.labels if options.recipe == "paper" else MIXED_LABELS,
        pooling=options.pooling,
        seed=options.seed,
        data=[Path(each).name for each in (CONVAI_FILE, *TRANSFER_FILES, TEXT_FILE)],
    )


def print_counts(data: EngagementData, *, checked: bool = True) -> None:
    """Prints the pairs per label and split of both readings, and which of them were checked as they were read."""
    for labels in Labels:
        counts = {split: count_labels(data.convai.pairs[labels][split]) for split in ConvaiSplit}
        shares = ", ".join(f"{split} {zeros}/{ones}" for split, (zeros, ones) in counts.items())
        note = " (as published)" if checked and labels is Labels.PUBLISHED else ""
        typer.echo(f"{labels} labels, pairs with label 0/1: {shares}{note}")
