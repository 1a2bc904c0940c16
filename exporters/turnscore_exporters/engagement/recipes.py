"""The two recipes of the engagement classifier: the paper's, and the mixture that the starter bundle is trained by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from turnscore_exporters.data.contrast_text import ContrastText, read_contrast_text
from turnscore_exporters.data.convai import Labels, Split
from turnscore_exporters.data.pairs import EngagementPair
from turnscore_exporters.engagement.adaptation import CONTRAST, CONTRAST_BATCH, adapt_encoder, ask_contrast
from turnscore_exporters.engagement.blend import fit_blend
from turnscore_exporters.engagement.data import EngagementData
from turnscore_exporters.engagement.model import Combination, EngagementModel, ModelSettings, Pooling
from turnscore_exporters.engagement.training import (
    Source,
    TextVectors,
    fine_tune,
    labels_of,
    texts_of,
    train_head,
)
from turnscore_exporters.training.encoders import Encoder, load_encoder
from turnscore_exporters.training.loop import LoopSettings


@dataclass(frozen=True, kw_only=True)
class PaperRecipe:
    """One model as in Ghazarian et al. (2020), or with the encoder fine-tuned; then the transfer step if asked for.

    Without `fine_tune_steps` a fine-tuned encoder sees every pair once.
    """

    labels: Labels = Labels.PUBLISHED
    pooling: Pooling = Pooling.MEAN
    is_fine_tuned: bool = False
    with_transfer: bool = False
    head_steps: int = 600
    fine_tune_steps: int | None = None
    batch_size: int = 32
    transfer_steps: int = 100

    @property
    def name(self) -> str:
        encoder = "fine-tuned" if self.is_fine_tuned else "frozen"
        return f"{self.labels}-{self.pooling}-{encoder}" + ("-transfer" if self.with_transfer else "")


@dataclass(frozen=True, kw_only=True)
class MixedRecipe:
    """Adapts the encoder, freezes it, trains heads on one source each; the transfer step fits their blend.

    Steps and shares were chosen by cross-validation on the transfer pairs.
    """

    pooling: Pooling = Pooling.MEAN
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
    vectors: TextVectors | None = None,
) -> EngagementModel:
    """Trains on one reading of ConvAI. Runs may share `vectors`, of the frozen encoder and this pooling."""
    torch.manual_seed(seed)
    model = EngagementModel(
        encoder.model, ModelSettings(encoder=encoder.name, pooling=recipe.pooling, token_limit=encoder.token_limit)
    )
    vectors = vectors or TextVectors(model, encoder)
    pairs = data.convai.pairs[recipe.labels][Split.TRAIN]
    source = Source(vectors.features(texts_of(pairs)), labels_of(pairs), 128)
    steps = recipe.head_steps
    settings = LoopSettings(
        steps=steps,
        run_key=f"head {encoder.name} {recipe.name} {steps} seed {seed}",
        seed=seed,
        description="training the head",
    )
    train_head(model.first_head, source, settings, state_path=_state(state_folder, "head"))
    if recipe.is_fine_tuned:
        steps = recipe.fine_tune_steps or -(-len(pairs) // recipe.batch_size)
        settings = LoopSettings(
            steps=steps,
            run_key=f"fine-tune {encoder.name} {recipe.name} {steps} seed {seed}",
            seed=seed,
            description="fine-tuning",
        )
        fine_tune(
            model, encoder, pairs, settings, batch_size=recipe.batch_size, state_path=_state(state_folder, "tuned")
        )
    if recipe.with_transfer:
        transfer(model, TextVectors(model, encoder), data.transfer, recipe.transfer_steps, seed)
    return model


def transfer(
    model: EngagementModel, vectors: TextVectors, pairs: Sequence[EngagementPair], steps: int, seed: int = 0
) -> None:
    """The paper's transfer step: continues to train the heads, in place, on pairs of the target domain.

    `vectors` are those of the model's current encoder.
    """
    source = Source(vectors.features(texts_of(pairs)), labels_of(pairs), 64)
    settings = LoopSettings(
        steps=steps, run_key=f"transfer {steps} seed {seed}", seed=seed, warm_up_steps=1, description="transfer"
    )
    for head in model.each_head:
        train_head(head, source, settings, learning_rate=3e-4, keep_scale=True)


def train_mixed_recipe(
    data: EngagementData,
    text: Path,
    encoder_name: str,
    recipe: MixedRecipe,
    seed: int = 0,
    state_folder: Path | None = None,
) -> tuple[EngagementModel, Encoder, TextVectors]:
    """Adapts the encoder, trains the heads, fits the blend; also returns the vectors it computed."""
    contrast = read_contrast_text(text, recipe.contrast_pairs, seed)
    encoder = load_encoder(encoder_name, recipe.token_limit)
    run_key = f"adapt {encoder_name} {recipe.pooling} {recipe.adaptation_steps} seed {seed}"
    settings = LoopSettings(
        steps=recipe.adaptation_steps, run_key=run_key, seed=seed, description="adapting the encoder"
    )
    adapt_encoder(encoder, contrast, _labelled(data), recipe.pooling, settings, _state(state_folder, "adapted"))
    torch.manual_seed(seed)
    model = EngagementModel(
        encoder.model,
        ModelSettings(
            encoder=encoder_name,
            pooling=recipe.pooling,
            combination=Combination.COMPARE,
            heads=recipe.heads,
            token_limit=encoder.token_limit,
            dropout=recipe.dropout,
            is_blended=True,
        ),
    )
    vectors = TextVectors(model, encoder)
    train_mixed_heads(model, build_sources(data, contrast, vectors, recipe, seed), recipe, seed)
    fit_blend(model, vectors.features(texts_of(data.transfer)), labels_of(data.transfer))
    return model, encoder, vectors


def _labelled(data: EngagementData) -> dict[str, Sequence[EngagementPair]]:
    pairs = {str(labels): data.convai.pairs[labels][Split.TRAIN] for labels in Labels}
    return {**pairs, "thumbs": data.convai.thumbs[Split.TRAIN]}


def build_sources(
    data: EngagementData, contrast: ContrastText, vectors: TextVectors, recipe: MixedRecipe, seed: int
) -> dict[str, Source]:
    """The features of every head's source; contrast pairs come from the end, which adaptation saw least."""
    labelled = _labelled(data)
    batches = len(contrast.pairs) // CONTRAST_BATCH
    queries: list[tuple[str, str]] = []
    answers: list[float] = []
    for step in range(max(0, batches - recipe.contrast_batches), max(1, batches)):
        question = ask_contrast(contrast, step, seed)
        queries += zip(question.queries, question.replies, strict=True)
        answers += question.answers
    sources = {CONTRAST: Source(vectors.features(queries), torch.tensor(answers).long(), recipe.batch_size)}
    for name, pairs in labelled.items():
        sources[name] = Source(vectors.features(texts_of(pairs)), labels_of(pairs), recipe.batch_size)
    return sources


def train_mixed_heads(
    model: EngagementModel, sources: Mapping[str, Source], recipe: MixedRecipe, seed: int = 0
) -> None:
    """Trains every head in place on its source, each with a seed of its own."""
    plan = [(name, steps) for name, steps in recipe.head_steps for _ in range(recipe.heads_per_source)]
    for number, (head, (name, steps)) in enumerate(zip(model.each_head, plan, strict=True)):
        settings = LoopSettings(
            steps=steps, run_key="", seed=seed + number, description=f"head {number + 1} of {len(plan)}: {name}"
        )
        train_head(head, sources[name], settings)


def _state(folder: Path | None, name: str) -> Path | None:
    return folder / f"{name}.state" if folder else None
