"""The two recipes of the engagement classifier: the paper's, and the mixture that the starter bundle comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from turnscore_exporters.adaptation import adapt_encoder, ask_contrast
from turnscore_exporters.contrast_text import ContrastText, read_contrast_text
from turnscore_exporters.convai import Labels, Split
from turnscore_exporters.encoders import Encoder, load_encoder
from turnscore_exporters.engagement_data import EngagementData
from turnscore_exporters.engagement_model import Combination, EngagementModel, ModelSettings, Pooling
from turnscore_exporters.engagement_training import Source, TextVectors, fine_tune, labels_of, texts_of, train_head
from turnscore_exporters.pairs import EngagementPair
from turnscore_exporters.training import LoopSettings


@dataclass(frozen=True)
class PaperRecipe:
    """One model as in Ghazarian et al. (2020), or with the encoder fine-tuned; then the transfer step if asked.

    Without `fine_tune_steps` the encoder sees every pair once.
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


@dataclass(frozen=True)
class MixedRecipe:
    """Adapt the encoder, freeze it, train several heads on a mixture of every labelled source, average them.

    The shares were chosen by cross-validation on the transfer pairs; each source gives `batch` pairs a step.
    """

    pooling: Pooling = Pooling.MEAN
    heads: int = 5
    adaptation_steps: int = 300
    contrast_pairs: int = 18_000
    contrast_batches: int = 60
    head_steps: int = 250
    dropout: float = 0.3
    token_limit: int = 128
    batches: Mapping[str, tuple[int, float]] | None = None

    def shares(self) -> Mapping[str, tuple[int, float]]:
        """Source -> (pairs a step, weight of its loss)."""
        return self.batches or {
            "corrected": (64, 0.5),
            "thumbs": (32, 0.25),
            "contrast": (128, 1.0),
            "transfer": (64, 1.5),
        }


def train_paper_recipe(
    data: EngagementData,
    encoder: Encoder,
    recipe: PaperRecipe,
    seed: int = 0,
    state_folder: Path | None = None,
    vectors: TextVectors | None = None,
) -> EngagementModel:
    """Trains on one reading of ConvAI. `vectors` (of the frozen encoder and this pooling) may be shared by runs."""
    torch.manual_seed(seed)
    model = EngagementModel(encoder.model, ModelSettings(encoder.name, recipe.pooling, token_limit=encoder.token_limit))
    vectors = vectors or TextVectors(model, encoder)
    pairs = data.convai.pairs[recipe.labels][Split.TRAIN]
    source = Source(vectors.features(texts_of(pairs)), labels_of(pairs), 128)
    steps = recipe.head_steps
    settings = LoopSettings(steps, f"head {recipe.name} {steps} seed {seed}", seed, description="training the head")
    train_head(model.first_head, [source], settings, state_path=_state(state_folder, "head"))
    if recipe.is_fine_tuned:
        steps = recipe.fine_tune_steps or -(-len(pairs) // recipe.batch_size)
        settings = LoopSettings(steps, f"fine-tune {recipe.name} {steps} seed {seed}", seed, description="fine-tuning")
        fine_tune(
            model, encoder, pairs, settings, batch_size=recipe.batch_size, state_path=_state(state_folder, "tuned")
        )
    if recipe.with_transfer:
        transfer(model, TextVectors(model, encoder), data.transfer, recipe.transfer_steps, seed)
    return model


def transfer(
    model: EngagementModel, vectors: TextVectors, pairs: Sequence[EngagementPair], steps: int, seed: int = 0
) -> None:
    """The paper's transfer step: goes on training the heads, in place, on pairs of the target domain.

    `vectors` are those of the model's encoder as it is.
    """
    source = Source(vectors.features(texts_of(pairs)), labels_of(pairs), 64)
    settings = LoopSettings(steps, f"transfer {steps} seed {seed}", seed, warm_up_steps=1, description="transfer")
    for head in model.each_head:
        train_head(head, [source], settings, learning_rate=3e-4, keep_scale=True)


def train_mixed_recipe(
    data: EngagementData,
    text: Path,
    encoder_name: str,
    recipe: MixedRecipe,
    seed: int = 0,
    state_folder: Path | None = None,
) -> tuple[EngagementModel, Encoder, TextVectors]:
    """Adapts, then trains the heads; also returns the vectors it computed."""
    contrast = read_contrast_text(text, recipe.contrast_pairs, seed)
    encoder = load_encoder(encoder_name, recipe.token_limit)
    run_key = f"adapt {encoder_name} {recipe.pooling} {recipe.adaptation_steps} seed {seed}"
    settings = LoopSettings(recipe.adaptation_steps, run_key, seed, description="adapting the encoder")
    adapt_encoder(encoder, contrast, _labelled(data), recipe.pooling, settings, _state(state_folder, "adapted"))
    torch.manual_seed(seed)
    model = EngagementModel(
        encoder.model,
        ModelSettings(
            encoder_name, recipe.pooling, Combination.COMPARE, recipe.heads, encoder.token_limit, recipe.dropout
        ),
    )
    vectors = TextVectors(model, encoder)
    sources = build_sources(data, contrast, vectors, recipe, seed)
    train_mixed_heads(model, sources, recipe, seed)
    return model, encoder, vectors


def _labelled(data: EngagementData) -> dict[str, Sequence[EngagementPair]]:
    pairs = {str(labels): data.convai.pairs[labels][Split.TRAIN] for labels in Labels}
    return {**pairs, "thumbs": data.convai.thumbs[Split.TRAIN]}


def build_sources(
    data: EngagementData, contrast: ContrastText, vectors: TextVectors, recipe: MixedRecipe, seed: int
) -> dict[str, Source]:
    """The features of every source of the mixture; contrast pairs come from the end, which adaptation saw least."""
    labelled = {**_labelled(data), "transfer": data.transfer}
    batches = len(contrast.pairs) // 24
    queries: list[tuple[str, str]] = []
    answers: list[float] = []
    for step in range(max(0, batches - recipe.contrast_batches), max(1, batches)):
        question = ask_contrast(contrast, step, seed)
        queries += zip(question.queries, question.replies, strict=True)
        answers += question.answers
    sources = {}
    for name, (batch_size, share) in recipe.shares().items():
        pairs = queries if name == "contrast" else texts_of(labelled[name])
        labels = torch.tensor(answers).long() if name == "contrast" else labels_of(labelled[name])
        sources[name] = Source(vectors.features(pairs), labels, batch_size, share)
    return sources


def train_mixed_heads(
    model: EngagementModel, sources: Mapping[str, Source], recipe: MixedRecipe, seed: int = 0
) -> None:
    """Trains every head in place, each with a seed of its own."""
    for number, head in enumerate(model.each_head):
        description = f"training head {number + 1} of {len(model.heads)}"
        settings = LoopSettings(recipe.head_steps, "", seed + number, description=description)
        train_head(head, list(sources.values()), settings)


def _state(folder: Path | None, name: str) -> Path | None:
    return folder / f"{name}.state" if folder else None
