"""The quality model in torch: each text is encoded by itself, then the response attends to the conversation.

All six layers read a text in a row of its own, so what they compute of a text can be kept and used again. The mean
vectors of response and context are compared, which carries relevance (Reimers and Gurevych 2019). Beside that the
upper layers run once more with queries of the response alone, over the kept token vectors of the response and of up
to four context turns (late joint attention, as DeFormer, Cao et al. 2020, and PreTTR, MacAvaney et al. 2020).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel
from turnscore_assessment.data.dialogues import SYSTEM, Spoken
from turnscore_core.scorers.quality import (
    COMPARED_ROWS,
    HEADS,
    NO_ROW,
    RowLayout,
    TurnRows,
    lay_out_rows,
    lay_out_tokens,
)
from turnscore_core.scorers.reaction import REACTIONS

from turnscore_exporters.errors import EncoderError
from turnscore_exporters.graphs.export import BertGraph
from turnscore_exporters.graphs.int8 import smoothing_factors
from turnscore_exporters.training.encoders import Encoder, chunks, pad_rows, read_checkpoint

# The sets of heads that a bundle has, each a graph of its own over the features.
HEAD_SETS: Mapping[str, Sequence[str]] = {"quality": HEADS, "reaction": REACTIONS}
RELEVANT, FLUENT, ENGAGING, SENTIMENT, CONTINUES, OVERALL = range(len(HEADS))
# The output after them that is trained to rank what was really said above what was not; it is not served.
FITS = len(HEADS)
JOINT_LAYERS = 2
PLACES = 8  # Of context turns: four distances, and who said it (turnscore_core.scorers.quality.lay_out_tokens).
HIDDEN_UNITS, REACTION_UNITS = 512, 192
LOWEST = -1e4
TURNS_AT_ONCE = 64
WIDTHS = (16, 32, 64, 128, 256)  # Rows are computed with those of their width class.


@dataclass(frozen=True)
class QualitySettings:
    """What, besides the weights, makes the model."""

    encoder: str
    layout: RowLayout = field(default_factory=RowLayout)
    dropout: float = 0.1


@dataclass(frozen=True, slots=True)
class RowStates:
    """What is kept of text rows: `lower` and `upper` token vectors [rows, tokens, width], the inputs of the two joint
    layers; `pooled` [rows, 2 x width + 1]; `mask` [rows, tokens]."""

    lower: Tensor
    upper: Tensor
    pooled: Tensor
    mask: Tensor


class JointLayer(nn.Module):
    """A BERT layer whose queries are the response's tokens and whose keys are the response's and the context's."""

    def __init__(self, width: int, heads: int, inner: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self.output_norm = nn.LayerNorm(width, eps=epsilon)
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.outer_norm = nn.LayerNorm(width, eps=epsilon)
        self.key_places = nn.Embedding(PLACES, width)
        self.value_places = nn.Embedding(PLACES, width)
        nn.init.zeros_(self.key_places.weight)
        nn.init.zeros_(self.value_places.weight)
        self.register_buffer("scale", torch.ones(width), persistent=False)
        self.scale: Tensor

    def take_weights(self, layer: Any) -> None:
        """Starts from a layer of a BERT."""
        pairs: dict[nn.Module, nn.Module] = {
            self.query: layer.attention.self.query,
            self.key: layer.attention.self.key,
            self.value: layer.attention.self.value,
            self.output: layer.attention.output.dense,
            self.output_norm: layer.attention.output.LayerNorm,
            self.inner: layer.intermediate.dense,
            self.outer: layer.output.dense,
            self.outer_norm: layer.output.LayerNorm,
        }
        for own, theirs in pairs.items():
            own.load_state_dict(theirs.state_dict())

    def forward(
        self,
        response: Tensor,
        mask: Tensor,
        queries: Tensor,
        own: tuple[Tensor, Tensor],
        context: tuple[Tensor, Tensor],
        is_there: Tensor,
        key_order: Tensor | None = None,
    ) -> Tensor:
        """The response's new token vectors [pairs, tokens, width].

        Of its vectors and mask [pairs, tokens], its queries, its own keys and values, and those of the context's tokens
        [pairs, context tokens, width] with their mask. `key_order` [pairs, keys] numbers the tokens that are there,
        without padding between them, in all pairs' rows of response and context; -1 where a pair has no more.
        """
        pairs, tokens, width = response.shape
        keys, values = (torch.cat(both, 1) for both in zip(own, context, strict=True))
        masked = torch.cat([mask, is_there.to(mask.dtype)], 1)
        if key_order is not None:  # padding between two sums would group them by its width: the last bits would differ
            keys, values = (each.reshape(-1, width)[key_order.clamp_min(0)] for each in (keys, values))
            masked = (key_order >= 0).to(mask.dtype)
        scores = self._split(queries) @ self._split(keys).transpose(2, 3) / math.sqrt(width // self.heads)
        scores = scores.float() + (1.0 - masked.float())[:, None, None, :] * LOWEST
        mixed = (scores.softmax(-1).to(values.dtype) @ self._split(values)).transpose(1, 2)
        attended = self.output_norm(response + self.output(mixed.reshape(pairs, tokens, width)))
        inner = functional.gelu(self.inner(attended))
        result: Tensor = self.outer_norm(attended + self.outer(inner))
        return result

    def queries_of(self, states: Tensor) -> Tensor:
        """Queries of token vectors [rows, tokens, width]."""
        result: Tensor = self.query(states * self.scale)
        return result

    def keys_of(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of token vectors [rows, tokens, width]."""
        scaled = states * self.scale
        return self.key(scaled), self.value(scaled)

    def choose(self, kept: tuple[Tensor, Tensor], tokens: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the context's tokens [pairs, context tokens], named as `attend` says, of kept rows'."""
        width = self.query.in_features
        chosen = tokens.clamp_min(0)
        keys, values = (each.reshape(-1, width)[chosen] for each in kept)
        return keys + self.key_places(places), values + self.value_places(places)

    def smooth(self, channel_range: Tensor) -> None:
        """Divides each input channel by a factor that the weights take back, so that int8 keeps more of small ones.

        The graph's own smoothing (Xiao et al. 2023) finds inputs that come from a layer norm alone, and these do not:
        the runtime fuses the encoder's attention only where nothing else multiplies its input. `channel_range` is the
        largest absolute value of each channel.
        """
        layers = (self.query, self.key, self.value)
        factors = torch.from_numpy(
            smoothing_factors(channel_range.numpy(), [layer.weight.detach().numpy().T for layer in layers])
        )
        with torch.no_grad():
            self.scale.copy_(1 / factors)
            for layer in layers:
                layer.weight.mul_(factors)

    def _split(self, vectors: Tensor) -> Tensor:
        pairs, tokens, width = vectors.shape
        return vectors.view(pairs, tokens, self.heads, width // self.heads).transpose(1, 2)


class JointLayers(nn.ModuleList):
    """The layers in which the response attends to its context, lower first."""

    def __init__(self, width: int, heads: int, inner: int, epsilon: float) -> None:
        super().__init__(JointLayer(width, heads, inner, epsilon) for _ in range(JOINT_LAYERS))

    @property
    def layers(self) -> list[JointLayer]:
        """The two."""
        return [layer for layer in self if isinstance(layer, JointLayer)]

    def attend(
        self,
        response: Tensor,
        response_mask: Tensor,
        kept: tuple[Tensor, Tensor],
        context_tokens: Tensor,
        places: Tensor,
        key_order: Tensor | None = None,
    ) -> Tensor:
        """Joint vectors [pairs, 2 x width]: mean and [CLS] of the response after it attended to its context.

        `response` are its lower token vectors [pairs, tokens, width]; `kept` those of all context texts, lower and
        upper, [..., width]. `context_tokens` [pairs, context tokens] number them as if they were [tokens, width],
        NO_ROW for none; `places` are theirs (turnscore_core.scorers.quality.lay_out_tokens). `key_order` changes
        nothing but the last bits (JointLayer).
        """
        lower, upper = self.layers
        is_there = context_tokens >= 0
        context = lower.choose(lower.keys_of(kept[0]), context_tokens, places)
        queries, own = lower.queries_of(response), lower.keys_of(response)
        tokens = lower(response, response_mask, queries, own, context, is_there, key_order)
        context = upper.choose(upper.keys_of(kept[1]), context_tokens, places)
        queries, own = upper.queries_of(tokens), upper.keys_of(tokens)
        tokens = upper(tokens, response_mask, queries, own, context, is_there, key_order).float()
        mean = _mean_of_tokens(tokens, response_mask.unsqueeze(-1).to(tokens.dtype))
        return torch.cat([mean, tokens[:, 0]], dim=-1)


class QualityModel(BertGraph):
    """Answers every question about pairs of a response and its context, and about user turns in the same pass."""

    def __init__(self, encoder: BertModel, settings: QualitySettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.settings = settings
        config = encoder.config
        width = int(config.hidden_size)
        self.dropout = nn.Dropout(settings.dropout)
        self.joint = JointLayers(width, config.num_attention_heads, config.intermediate_size, config.layer_norm_eps)
        self.hidden = nn.Linear(width * 11 + 6, HIDDEN_UNITS)
        self.head = nn.Linear(HIDDEN_UNITS, len(HEADS) + 1)
        self.reaction_hidden = nn.Linear(width * 11 + 6, REACTION_UNITS)
        self.reaction_head = nn.Linear(REACTION_UNITS, len(REACTIONS))
        for layer in (self.hidden, self.head, self.reaction_hidden, self.reaction_head):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.slope = nn.Parameter(torch.tensor(10.0))
        self.register_buffer("similar", torch.zeros(len(HEADS) + 1), persistent=False)
        self.similar: Tensor
        # Looked up: ONNX Runtime's logarithm of a number differs in the last bit by where it stands among others.
        lengths = torch.arange(int(config.max_position_embeddings) + 1).clamp_min(1).float().log()
        self.register_buffer("log_lengths", lengths, persistent=False)
        self.log_lengths: Tensor
        self.similar[[RELEVANT, FITS]] = 1.0

    def read_rows(self, input_ids: Tensor, attention_mask: Tensor) -> RowStates:
        """What is kept of rows of ids and mask [rows, tokens]."""
        states = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=torch.zeros_like(input_ids),
            output_hidden_states=True,
        ).hidden_states
        tokens = states[-1].float()
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = _mean_of_tokens(tokens, mask)
        mean = mean / (mean * mean).sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
        highest = (tokens * mask + LOWEST * (1 - mask)).amax(1)
        length = self.log_lengths[attention_mask.sum(1, keepdim=True)]
        return RowStates(states[-3], states[-2], torch.cat([mean, highest, length], dim=-1), attention_mask)

    def start_joint_layers(self) -> None:
        """Starts them from the encoder's upper layers."""
        for own, theirs in zip(self.joint.layers, self.encoder.encoder.layer[-JOINT_LAYERS:], strict=True):
            own.take_weights(theirs)

    def compare(self, response: Tensor, context: Tensor, context_rows: Tensor) -> Tensor:
        """Features [pairs, 9 x width + 6] of pooled vectors; in the column 9 x width the latest turn's cosine.

        `response` is [pairs, 2 x width + 1], `context` [rows, 2 x width + 1].
        """
        width = (response.shape[-1] - 1) // 2
        scale = float(width) ** 0.5
        there = (context_rows >= 0).unsqueeze(-1).to(response.dtype)
        said = context[context_rows.clamp_min(0)] * there
        mean, means = response[:, :width] * scale, said[:, :, :width] * scale
        last, previous, earlier = means[:, 0], means[:, 1], means[:, 2]
        products = means * mean.unsqueeze(1)
        return torch.cat(
            [
                mean,
                response[:, width : 2 * width],
                last,
                previous,
                (last - mean).abs(),
                (previous - mean).abs(),
                products[:, 0],
                products[:, 1],
                earlier * mean,
                products.mean(-1),
                response[:, 2 * width :],
                said[:, 0, 2 * width :],
                there[:, 1],
            ],
            dim=-1,
        )

    def answer(self, features: Tensor) -> Tensor:
        """Quality outputs [pairs, heads + 1] before any sigmoid, of features [pairs, 11 x width + 6]."""
        outputs = self.head(self.dropout(functional.gelu(self.hidden(self.dropout(features)))))
        cosine = 9 * int(self.encoder.config.hidden_size)
        result: Tensor = outputs + self.slope * features[:, cosine : cosine + 1] * self.similar
        return result

    def react(self, features: Tensor) -> Tensor:
        """Reaction outputs [pairs, len(REACTIONS)] before any sigmoid, of user turns in the response's place."""
        result: Tensor = self.reaction_head(self.dropout(functional.gelu(self.reaction_hidden(self.dropout(features)))))
        return result


def _mean_of_tokens(tokens: Tensor, mask: Tensor) -> Tensor:
    """[rows, width] of [rows, tokens, width] and mask [rows, tokens, 1].

    With a row of zeros: ONNX Runtime sums one row in another order than several, so that the last bits would tell
    whether a text had neighbours.
    """
    return functional.pad(tokens * mask, (0, 0, 0, 0, 0, 1)).sum(1)[:-1] / mask.sum(1).clamp_min(1.0)


class RowPart(BertGraph):
    """The encoder's first graph: what is read of each text alone, which may be kept and used again."""

    def __init__(self, model: QualityModel) -> None:
        super().__init__()
        self.encoder = model.encoder
        self._read = model.read_rows

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`lower`, `upper` and `pooled` of RowStates."""
        states = self._read(input_ids, attention_mask)
        return states.lower, states.upper, states.pooled


class JointPart(BertGraph):
    """The encoder's second graph: the features of pairs, of what the first one gave for their texts."""

    fused_layers = 0

    def __init__(self, model: QualityModel) -> None:
        super().__init__()
        self.config = model.encoder.config
        self.joint = model.joint
        self._compare = model.compare

    def forward(
        self,
        response_lower: Tensor,
        response_mask: Tensor,
        response_pooled: Tensor,
        context_lower: Tensor,
        context_upper: Tensor,
        context_pooled: Tensor,
        context_rows: Tensor,
        context_tokens: Tensor,
        places: Tensor,
        key_order: Tensor,
    ) -> Tensor:
        """Features [pairs, 11 x width + 6], float32: those of `compare`, then the joint vectors of `attend`.

        `context_rows` [pairs, COMPARED_ROWS] name rows of `context_pooled`, the latest turn first and NO_ROW for none;
        `context_tokens` and `places` [pairs, context tokens] and `key_order` are those of `attend`.
        """
        kept = context_lower, context_upper
        joint = self.joint.attend(response_lower, response_mask, kept, context_tokens, places, key_order)
        return torch.cat([self._compare(response_pooled, context_pooled, context_rows), joint], -1)


class HeadSet(nn.Module):
    """One of HEAD_SETS as it is exported."""

    def __init__(self, model: QualityModel, name: str) -> None:
        super().__init__()
        self.model = model
        self.outputs = HEAD_SETS[name]

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        """float32 [pairs] for each output: probabilities, and the sentiment as it is."""
        found = self.model.answer(features) if self.outputs is HEADS else self.model.react(features)
        return tuple(
            found[:, place] if name == "sentiment" else found[:, place].sigmoid()
            for place, name in enumerate(self.outputs)
        )


class RowBuilder:
    """Lays texts out as the service does, each text tokenized once."""

    def __init__(self, encoder: Encoder, layout: RowLayout) -> None:
        """EncoderError where the tokenizer lacks a token that a row needs, or reads shorter rows."""
        if encoder.token_limit < layout.row_tokens:
            raise EncoderError(
                f"encoder {encoder.name}: reads {encoder.token_limit} tokens, a row has {layout.row_tokens}"
            )
        self._encoder = encoder
        self._layout = layout
        self._first, self._separator = encoder.special("[CLS]"), encoder.special("[SEP]")
        self._ids: dict[str, list[int]] = {}

    def build(self, turns: Sequence[tuple[Sequence[Spoken], str]]) -> list[TurnRows]:
        """The rows of contexts, oldest turn first, and their responses."""
        latest = [context[max(0, len(context) - self._layout.context_turns) :] for context, _ in turns]
        wanted = dict.fromkeys(
            text
            for (_, response), said in zip(turns, latest, strict=True)
            for text in (response, *(t for _, t in said))
        )
        missing = [text for text in wanted if text not in self._ids]
        self._ids.update(zip(missing, self._encoder.tokenize_bare(missing), strict=True))
        return [
            lay_out_rows(
                [(speaker == SYSTEM, self._ids[text]) for speaker, text in said if self._ids[text]],
                self._ids[response],
                self._layout,
                self._first,
                self._separator,
            )
            for (_, response), said in zip(turns, latest, strict=True)
        ]


@dataclass(frozen=True)
class Outputs:
    """What the model says of turns in their order, before any sigmoid, and the vectors that it compared."""

    quality: Tensor  # [turns, heads + 1], the last one `fits`.
    reactions: Tensor
    pooled: Tensor
    context: Tensor
    context_rows: Tensor
    features: Tensor


def answer_rows(model: QualityModel, turns: Sequence[TurnRows], *, fixed_context: bool = False) -> Outputs:
    """Runs the model over turns; each distinct context row is computed once, and rows with those of their width.

    With a fixed context no gradient goes through what is kept of context rows: a training step then costs about half.
    """
    places: dict[tuple[int, ...], int] = {}
    for turn in turns:
        for row in turn.context:
            places.setdefault(row, len(places))
    with torch.set_grad_enabled(torch.is_grad_enabled() and not fixed_context):
        kept = _read_by_width(model, list(places) or [turns[0].response[:1]])
    order: list[int] = []
    joint, pooled = [], []
    for chunk in group_by_width([turn.response for turn in turns]):
        order += chunk
        states = model.read_rows(*pad_rows([turns[index].response for index in chunk]))
        width = kept.mask.shape[1]
        begins = {row: width * place for row, place in places.items()}
        tokens, where = lay_out_tokens([turns[index] for index in chunk], begins)
        context = kept.lower, kept.upper
        joint.append(
            model.joint.attend(states.lower, states.mask, context, torch.as_tensor(tokens), torch.as_tensor(where))
        )
        pooled.append(states.pooled)
    back = torch.tensor(order).argsort()
    vectors, attended = torch.cat(pooled)[back], torch.cat(joint)[back]
    context_rows = torch.tensor(
        [([places[row] for row in turn.context] + [NO_ROW] * COMPARED_ROWS)[:COMPARED_ROWS] for turn in turns]
    )
    features = torch.cat([model.compare(vectors, kept.pooled, context_rows), attended], -1)
    return Outputs(model.answer(features), model.react(features), vectors, kept.pooled, context_rows, features)


def smooth_joint_layers(model: QualityModel, turns: Sequence[TurnRows]) -> None:
    """Prepares the joint layers for int8 in place; on no turn do the answers change but by rounding."""
    layers = model.joint.layers
    ranges = [torch.zeros(len(layer.scale)) for layer in layers]

    def note(place: int, states: Tensor) -> None:
        ranges[place] = torch.maximum(ranges[place], states.abs().flatten(0, 1).amax(0))

    hooks = [
        part.register_forward_pre_hook(lambda _, given, place=place: note(place, given[0]))
        for place, layer in enumerate(layers)
        for part in (layer.query, layer.key)
    ]
    score_rows(model, turns)
    for hook in hooks:
        hook.remove()
    for layer, found in zip(layers, ranges, strict=True):
        layer.smooth(found)


def score_rows(model: QualityModel, turns: Sequence[TurnRows]) -> tuple[Tensor, Tensor]:
    """What forward gives for each turn, in order: heads [turns, heads] and reactions [turns, reactions]."""
    order = sorted(range(len(turns)), key=lambda place: len(turns[place].response))
    heads, reactions = torch.zeros(len(turns), len(HEADS)), torch.zeros(len(turns), len(REACTIONS))
    with torch.inference_mode():
        for chunk in chunks(order, TURNS_AT_ONCE):
            found = answer_rows(model, [turns[place] for place in chunk])
            quality = found.quality[:, : len(HEADS)].float()
            sentiment = quality[:, SENTIMENT].clone()
            heads[chunk], reactions[chunk] = quality.sigmoid(), found.reactions.float().sigmoid()
            heads[chunk, SENTIMENT] = sentiment
    return heads, reactions


def group_by_width(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """The places of rows, those of a width class together, so that short ones are not padded to a long one."""
    chunks: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        chunks.setdefault(next((width for width in WIDTHS if len(row) <= width), len(row)), []).append(index)
    return [chunks[width] for width in sorted(chunks)]


def _read_by_width(model: QualityModel, rows: Sequence[Sequence[int]]) -> RowStates:
    """The states of rows in their order, padded to one width."""
    chunks = group_by_width(rows)
    longest = max(map(len, rows))
    parts = [model.read_rows(*pad_rows([rows[index] for index in chunk])) for chunk in chunks]
    back = torch.tensor([index for chunk in chunks for index in chunk]).argsort()

    def join(states: Sequence[Tensor]) -> Tensor:
        return torch.cat([functional.pad(each, (0, 0, 0, longest - each.shape[1])) for each in states])[back]

    masks = torch.cat([functional.pad(part.mask, (0, longest - part.mask.shape[1])) for part in parts])[back]
    pooled = torch.cat([part.pooled for part in parts])[back]
    return RowStates(join([part.lower for part in parts]), join([part.upper for part in parts]), pooled, masks)


def load_model(folder: Path) -> tuple[QualityModel, Encoder]:
    """A checkpoint, ready to score; CheckpointError naming what is missing or broken."""
    return read_checkpoint(folder, "quality", QualityModel, QualitySettings)
