"""The engagement classifier of Ghazarian et al. 2020 in torch: encoder, pooling, heads, blend; and its export."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from transformers import BertModel
from turnscore_assessment.figures import Floats
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_models.bundle import Bundle

from turnscore_exporters.bundles.checkpoint import Checkpoint, export_checkpoint, score_as_pairs, write_graphs
from turnscore_exporters.bundles.writer import turns_of
from turnscore_exporters.data.pairs import read_reference_turns
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, BertGraph, GraphContract, average_tokens
from turnscore_exporters.json_files import read_json
from turnscore_exporters.options import EngagementExportOptions
from turnscore_exporters.training import encoders
from turnscore_exporters.training.encoders import Encoder, Standardized

# Specified: the paper's head has 64, 32 and 8 hidden units, then two classes.
HIDDEN_UNITS = (64, 32, 8)
CONTRACT = GraphContract(
    inputs={"input_ids": ROW_AXES, "attention_mask": ROW_AXES, "query_row": ("pairs",), "reply_row": ("pairs",)},
    outputs={"probability": ("pairs",)},
    examples=(EXAMPLE_IDS, (EXAMPLE_IDS > 0).long(), torch.tensor([0, 2]), torch.tensor([1, 2])),
)


TokenPooling = Literal["mean", "max"]  # How token vectors become a text's vector; padding never counts.
# How the vectors of query and reply become the head's input.
#
# `average`: their mean, as in the released code; swapping the two changes nothing. `compare`: both, their absolute
# difference, their product, and the logarithm of both numbers of tokens, so the head knows which is the reply.
TextCombination = Literal["average", "compare"]


@dataclass(frozen=True, kw_only=True)
class EngagementSettings:
    """The model's settings, besides its weights.

    Several heads are averaged in probability, or with `is_blended` weighted by a logistic regression on their margins
    and the logarithm of the reply's number of tokens.
    """

    encoder: str
    pooling: TokenPooling = "mean"
    combination: TextCombination = "average"
    heads: int = 1
    token_limit: int = 128
    dropout: float = 0.1
    is_blended: bool = False

    def __post_init__(self) -> None:
        """ValueError for a setting that there is not."""
        encoders.check_choice("pooling", self.pooling, TokenPooling)
        encoders.check_choice("combination", self.combination, TextCombination)


class EngagementHead(Standardized):
    """Standardises a pair's features, then the MLP."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__(width)
        layers: list[nn.Module] = []
        for units in HIDDEN_UNITS:
            layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(dropout)]
            width = units
        self.layers = nn.Sequential(*layers, nn.Linear(width, 2))

    def forward(self, features: Tensor) -> Tensor:
        """Logits [pairs, 2] of features [pairs, width]."""
        logits: Tensor = self.layers((features - self.center) / self.scale)
        return logits


class EngagementModel(BertGraph):
    """Probability that each pair's reply is engaging; rows are texts, and a pair gives the rows of its query and reply.

    A pair without a query gives its reply's row twice.
    """

    def __init__(self, encoder: BertModel, settings: EngagementSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        width = int(encoder.config.hidden_size)
        width = width * 4 + 2 if settings.combination == "compare" else width
        self.heads = nn.ModuleList(EngagementHead(width, settings.dropout) for _ in range(settings.heads))
        self.blend = nn.Linear(settings.heads + 1, 2) if settings.is_blended else None

    @property
    def each_head(self) -> list[EngagementHead]:
        return [head for head in self.heads if isinstance(head, EngagementHead)]

    @property
    def first_head(self) -> EngagementHead:
        """The only head, where there is one."""
        return self.each_head[0]

    def read_rows(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Row vectors [rows, width + 1] of token ids [rows, tokens]: the pooled vector, then log(number of tokens)."""
        pooled = pool(self.read_tokens(input_ids, attention_mask), attention_mask, self.settings.pooling)
        length = attention_mask.sum(1, keepdim=True).to(pooled.dtype).clamp_min(1.0).log()
        return torch.cat([pooled, length], dim=-1)

    def combine(self, query: Tensor, reply: Tensor) -> Tensor:
        """The head's input, [pairs, features], of two row vectors per pair."""
        query_length, reply_length = query[:, -1:], reply[:, -1:]
        query, reply = query[:, :-1], reply[:, :-1]
        if self.settings.combination == "average":
            return (query + reply) / 2
        return torch.cat([compare(query, reply), query_length, reply_length], dim=-1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, query_row: Tensor, reply_row: Tensor) -> Tensor:
        """Probabilities [pairs], float32."""
        vectors = self.read_rows(input_ids, attention_mask)
        return self.probability(self.combine(vectors[query_row], vectors[reply_row]))

    def probability(self, features: Tensor) -> Tensor:
        """Softmax's second class, [pairs], averaged or blended over the heads."""
        logits = torch.stack([head(features) for head in self.heads], dim=1)
        if self.blend is None:
            return logits.softmax(-1)[..., 1].mean(1)
        return self.blend(blend_columns(logits, features)).softmax(-1)[:, 1]  # type: ignore[no-any-return]


def blend_columns(logits: Tensor, features: Tensor) -> Tensor:
    """The blend's input, [pairs, heads + 1]: each head's margin, then the logarithm of the reply's number of tokens.

    `logits` are [pairs, heads, 2]; `features` those of `compare`, whose last column is that logarithm.
    """
    return torch.cat([logits[..., 1] - logits[..., 0], features[:, -1:]], dim=-1)


def pool(tokens: Tensor, attention_mask: Tensor, pooling: TokenPooling) -> Tensor:
    """Pools [rows, tokens, width] over real tokens to [rows, width]."""
    if pooling == "mean":
        return average_tokens(tokens, attention_mask)
    mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
    return (tokens + (mask - 1.0) * 1e4).amax(1)


def compare(query: Tensor, reply: Tensor) -> Tensor:
    """Both vectors, their absolute difference and their product: [pairs, 4 width] of two [pairs, width]."""
    return torch.cat([query, reply, (query - reply).abs(), query * reply], dim=-1)


def load_model(folder: Path) -> tuple[EngagementModel, Encoder]:
    """A checkpoint, ready to score; CheckpointError naming what is missing or broken."""
    return encoders.read_checkpoint(folder, "engagement", EngagementModel, EngagementSettings)


def score_pairs(model: EngagementModel, encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Probabilities of (query, reply) texts in order; an empty query counts as missing."""
    scores: list[float] = encoders.score_alike(
        pairs, lambda pair: sum(map(len, pair)), lambda chosen: model(*collate_pairs(encoder, chosen))
    ).tolist()
    return scores


def collate_pairs(encoder: Encoder, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The graph's four inputs for a batch of pairs; equal rows are one row.

    As in the service, a query beyond the token limit loses its beginning and a reply its end.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    ids = dict(zip(texts, encoder.tokenize_whole(texts), strict=True))
    rows: dict[tuple[int, ...], int] = {}
    places = []
    for query, reply in pairs:
        reply_ids = encoders.cut_end(ids[reply], encoder.token_limit)
        query_ids = encoders.cut_start(ids[query], encoder.token_limit) if query.strip() else reply_ids
        places.append([rows.setdefault(tuple(row), len(rows)) for row in (query_ids, reply_ids)])
    input_ids, attention_mask = encoders.pad_rows(list(rows))
    query_row, reply_row = torch.tensor(places).unbind(1)
    return input_ids, attention_mask, query_row, reply_row


REGULARISATION = 0.3  # chosen: scikit-learn's C, on columns of variance one
FOLDS = 10


def read_columns(model: EngagementModel, features: Tensor) -> Floats:
    """The blend's columns of pair features, [pairs, heads + 1]."""
    with torch.inference_mode():
        logits = torch.stack([head(features) for head in model.heads], dim=1)
        return np.asarray(blend_columns(logits, features).numpy(), dtype=np.float64)


def fit_blend(model: EngagementModel, features: Tensor, labels: Tensor) -> None:
    """Sets the model's blend from pairs that no head trained on; ValueError if the model has none."""
    if model.blend is None:
        raise ValueError("the model has no blend")
    scaler, regression = _blend_of().fit(read_columns(model, features), labels.numpy())
    weights = regression.coef_[0] / scaler.scale_
    with torch.no_grad():
        model.blend.weight.zero_()
        model.blend.bias.zero_()
        model.blend.weight[1] = torch.from_numpy(weights)
        model.blend.bias[1] = float(regression.intercept_[0] - weights @ scaler.mean_)


def cross_validate_blend(model: EngagementModel, features: Tensor, labels: Tensor) -> Floats:
    """Log odds of each pair from a blend fitted to the other folds; the heads stay as they are."""
    classes = labels.numpy()
    folds = StratifiedKFold(min(FOLDS, int(np.bincount(classes, minlength=2).min())), shuffle=True, random_state=0)
    odds = cross_val_predict(_blend_of(), read_columns(model, features), classes, cv=folds, method="decision_function")
    return np.asarray(odds)


def _blend_of() -> Pipeline:
    """A regression in which both classes weigh the same, and so do columns of unlike size."""
    regression = LogisticRegression(C=REGULARISATION, class_weight="balanced", max_iter=1000)
    return make_pipeline(StandardScaler(), regression)


def export_engagement(options: EngagementExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does."""
    reference = read_reference_turns(options.data, options.turns)
    model, encoder = load_model(options.checkpoint)
    training = read_json(options.checkpoint / "training.json")
    made = Checkpoint(
        scorer=EngagementScorer,
        encoder=encoder,
        write_graphs=partial(write_graphs, model, CONTRACT),
        score=score_as_pairs(partial(score_pairs, model, encoder)),
        turns=turns_of(reference.pairs),
        source=reference.source,
        training={**training, "combination": model.settings.combination, "heads": model.settings.heads},
        agreement={"report": _shorten(read_json(options.checkpoint / "report.json"))},
    )
    return export_checkpoint(made, options)


def _shorten(report: dict[str, Any]) -> dict[str, Any]:
    """AUC and Spearman with intervals on each test set, and the AUC of the reply's length."""
    lengths = report.get("length", {})
    return {
        name: {
            "pairs": figures["pairs"],
            "auc": figures["auc"],
            "spearman": figures["spearman"],
            "auc_of_length": {kind: each["auc"]["value"] for kind, each in lengths[name].items()},
        }
        for name, figures in report.get("model", {}).items()
        if name in lengths
    }
