"""A GPT-2 checkpoint over trunks and branches in torch, and its graphs, which give one loss per target.

The inputs are those of turnscore_core.scorers.fed.batch, which draws them.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.symbolic_helper import _optional_input_placeholder_tensor
from transformers import AutoTokenizer, GPT2LMHeadModel
from turnscore_core.scorers.fed.batch import Branch, BranchedTrunk, FedBatch, build_tree

from turnscore_exporters.errors import CheckpointError, GraphExportError
from turnscore_exporters.graphs.export import GraphContract, check_graph, trace_graph
from turnscore_exporters.graphs.fp16 import DATA_SUFFIX
from turnscore_exporters.graphs.int8 import OPSET
from turnscore_exporters.training.encoders import plain_tokenizer


@dataclass(frozen=True, kw_only=True)
class FedCheckpoint:
    """A language model in fp32, and how its text becomes tokens."""

    name: str
    model: GPT2LMHeadModel
    tokenizer: Tokenizer
    eos_id: int

    @property
    def window(self) -> int:
        """The model's number of positions."""
        return int(self.model.config.n_positions)


def load_checkpoint(name: str) -> FedCheckpoint:
    """Loads a folder such as DialoGPT's (`config.json`, weights, `vocab.json`, `merges.txt`) or a hub name.

    Raises CheckpointError where it is not a GPT-2, or its tokenizer has entries that the model does not know, or no
    end-of-text token.
    """
    try:
        model, report = GPT2LMHeadModel.from_pretrained(name, dtype=torch.float32, output_loading_info=True)
        wrapped = AutoTokenizer.from_pretrained(name)
    except Exception as error:
        raise CheckpointError(f"{name}: holds no GPT-2 language model and tokenizer ({error})") from error
    missing = sorted(set(report["missing_keys"]) - {"lm_head.weight"})
    if missing:
        raise CheckpointError(f"{name}: lacks the weights {', '.join(missing[:3])}; it is not a GPT-2 language model")
    tokenizer = plain_tokenizer(wrapped.backend_tokenizer)
    entries, known = 1 + max(_ids_in_text(tokenizer)), int(model.config.vocab_size)
    if entries > known:
        raise CheckpointError(f"{name}: its tokenizer has {entries} entries, the model {known}")
    eos_id = wrapped.eos_token_id
    if eos_id is None or eos_id >= model.config.vocab_size:
        raise CheckpointError(f"{name}: its tokenizer has no end-of-text token that the model knows")
    return FedCheckpoint(name=name, model=model.eval(), tokenizer=tokenizer, eos_id=int(eos_id))


def _ids_in_text(tokenizer: Tokenizer) -> list[int]:
    """The entries that a text may become: no special ones, such as padding that was added later."""
    added = tokenizer.get_added_tokens_decoder()
    return [
        *tokenizer.get_vocab(with_added_tokens=False).values(),
        *(each for each, token in added.items() if not token.special),
    ]


MICROSOFT = "com.microsoft"
OPERATOR = f"{MICROSOFT}::MultiHeadAttention"


class FusedAttention(torch.autograd.Function):
    """Attention of `query` [rows, tokens, width] over `key` and `value` [rows, others, width].

    `bias` [rows, 1, tokens, others] is added to the scores; without it each token attends to those up to its own place.
    torch computes it step by step; in a traced graph it is one operator.
    """

    @staticmethod
    def forward(_: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, heads: int) -> Tensor:
        queries, keys, values = (_split_heads(each, heads) for each in (query, key, value))
        scores = (queries @ keys.transpose(-1, -2)).float() * queries.shape[-1] ** -0.5
        if bias is None:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        else:
            scores = scores + bias.float()
        mixed = torch.softmax(scores, dim=-1).to(value.dtype) @ values
        return mixed.transpose(1, 2).flatten(2)

    @staticmethod
    def symbolic(g: Any, query: Any, key: Any, value: Any, bias: Any, heads: int) -> Any:
        is_causal = bias is None or bias.node().mustBeNone()
        nothing = _optional_input_placeholder_tensor(g)  # type: ignore[no-untyped-call]
        inputs = [query, key, value] if is_causal else [query, key, value, nothing, nothing, bias]
        return g.op(OPERATOR, *inputs, num_heads_i=heads, unidirectional_i=int(is_causal)).setType(query.type())


def attend_fused(projected: Tensor, shape: Any, heads: int) -> Tensor:
    """The result of `_Block._attend`, [tokens, width] of the projections [tokens, 3 x width], by fused operators."""
    trunk_tokens = shape.trunks * shape.trunk_width
    trunk = projected[:trunk_tokens].reshape(shape.trunks, shape.trunk_width, -1)
    branch = projected[trunk_tokens:].reshape(shape.branches, shape.branch_width, -1)
    query, key, value = trunk.chunk(3, dim=-1)
    own_query, own_key, own_value = branch.chunk(3, dim=-1)
    keys = torch.cat([key[shape.branch_trunk], own_key], dim=1)
    values = torch.cat([value[shape.branch_trunk], own_value], dim=1)
    # The smallest fp16 number: its exp is 0 compared with the score of any token that may be seen.
    bias = torch.where(shape.branch_sees, 0.0, torch.finfo(torch.float16).min).to(projected.dtype)
    apply: Callable[..., Tensor] = FusedAttention.apply
    mixed = [apply(query, key, value, None, heads), apply(own_query, keys, values, bias, heads)]
    return torch.cat([each.flatten(0, 1) for each in mixed])


def count_fused(nodes: Any) -> int:
    """How many fused attentions the nodes hold."""
    return sum(node.op_type == "MultiHeadAttention" and node.domain == MICROSOFT for node in nodes)


def _split_heads(states: Tensor, heads: int) -> Tensor:
    rows, tokens, width = states.shape
    return states.reshape(rows, tokens, heads, width // heads).transpose(1, 2)


# Measured on 2 cores: of 512 to 8,192 entries, 2,048 were the fastest for one turn and for a dialogue of 20. Logits of
# a dialogue's 2,600 predictors over 50,257 entries would be 0.5 GB, and touching new memory costs more than filling it.
VOCABULARY_SLICE = 2048
# Chosen for GPUs, which want large matmuls: logits of 16 turns with 18 qualities (4,200 predictors) are 276 MB.
FUSED_VOCABULARY_SLICE = 16_384
# Chosen: exp(-40) is lost in fp32 next to a score of 0, which every token gives the first of its trunk. The usual mask,
# a score of -65504, makes softmax compute denormal numbers, which takes it six times as long (measured, AVX-512).
UNSEEN = -40.0


class FedModel(nn.Module):
    """The checkpoint's weights, arranged for the one pass. `dtype` is the matmuls'; norms, softmax and loss are fp32.

    `is_fused` is the form for GPUs: attention as one operator, the vocabulary in larger slices.
    """

    def __init__(self, model: GPT2LMHeadModel, dtype: torch.dtype = torch.float32, *, is_fused: bool = False) -> None:
        """Raises CheckpointError for a GPT-2 with settings that DialoGPT does not use."""
        super().__init__()
        config = model.config
        if config.activation_function not in ("gelu_new", "gelu_pytorch_tanh") or not config.scale_attn_weights:
            raise CheckpointError(f"activation {config.activation_function} or unscaled attention is not supported")
        if config.scale_attn_by_inverse_layer_idx or config.add_cross_attention:
            raise CheckpointError("attention scaled by layer, and cross attention, are not supported")
        transformer = model.transformer
        self.dtype = dtype
        self.token_table = nn.Parameter(transformer.wte.weight.detach().to(dtype))
        self.position_table = nn.Parameter(transformer.wpe.weight.detach().to(dtype))
        self.blocks = nn.ModuleList(_Block(block, config.n_head, dtype, is_fused=is_fused) for block in transformer.h)
        self.final_norm = _Norm(transformer.ln_f, dtype)
        size = FUSED_VOCABULARY_SLICE if is_fused else VOCABULARY_SLICE
        head = model.lm_head.weight.detach().to(dtype)
        self.head = nn.ParameterList(part.T.contiguous() for part in head.split(size))

    def forward(
        self,
        trunk_ids: Tensor,
        branch_ids: Tensor,
        branch_positions: Tensor,
        branch_ends: Tensor,
        branch_trunk: Tensor,
        branch_start: Tensor,
        predictors: Tensor,
        target_predictor: Tensor,
        target_ids: Tensor,
    ) -> Tensor:
        """Losses [targets], float32: log-sum-exp of the logits at each target's predictor, minus the target's logit."""
        shape = _Shape(trunk_ids, branch_ids, branch_ends, branch_trunk, branch_start)
        trunk_positions = torch.arange(trunk_ids.shape[1], device=trunk_ids.device).expand_as(trunk_ids)
        ids = torch.cat([trunk_ids.flatten(), branch_ids.flatten()])
        positions = torch.cat([trunk_positions.flatten(), branch_positions.flatten()])
        states = self.token_table[ids].float() + self.position_table[positions].float()
        *first, last = self.blocks
        for block in first:
            states = block(states, shape)
        states = last(states, shape, predictors)
        return self._losses(self.final_norm(states), target_predictor, target_ids)

    def _losses(self, states: Tensor, target_predictor: Tensor, target_ids: Tensor) -> Tensor:
        """The vocabulary in slices, so that the logits of all predictors never exist at once."""
        totals, chosen, first = [], torch.zeros_like(target_ids, dtype=torch.float32), 0
        for matrix in self.head:
            logits = _multiply(states, matrix).float()
            # The same as logsumexp; ONNX Runtime takes seven times as long for that (measured).
            totals.append(logits[:, 0] - torch.log_softmax(logits, dim=-1)[:, 0])
            size = matrix.shape[1]
            place = target_ids - first
            is_here = (place >= 0) & (place < size)
            flat = target_predictor * size + place.clamp(0, size - 1)
            chosen = chosen + torch.where(is_here, logits.flatten()[flat], 0.0)
            first += size
        total = totals[0] if len(totals) == 1 else torch.logsumexp(torch.stack(totals, dim=-1), dim=-1)
        return total[target_predictor] - chosen


class _Shape:
    """Row counts and widths, and which token may attend to which."""

    def __init__(
        self, trunk_ids: Tensor, branch_ids: Tensor, branch_ends: Tensor, branch_trunk: Tensor, branch_start: Tensor
    ) -> None:
        self.trunks, self.trunk_width = trunk_ids.shape
        self.branches, self.branch_width = branch_ids.shape
        self.branch_trunk = branch_trunk
        trunk_places = torch.arange(self.trunk_width, device=trunk_ids.device)
        places = torch.arange(self.branch_width, device=trunk_ids.device)
        self.trunk_ceiling = _ceiling(trunk_places[:, None] >= trunk_places[None, :])
        sees_trunk = (trunk_places[None, :] < branch_start[:, None])[:, None, :].expand(-1, self.branch_width, -1)
        is_ancestor = (places[None, None, :] <= places[None, :, None]) & (
            places[None, :, None] <= branch_ends[:, None, :]
        )
        self.branch_sees = torch.cat([sees_trunk, is_ancestor], dim=-1)[:, None]
        self.branch_ceiling = _ceiling(self.branch_sees)


def _multiply(states: Tensor, matrix: Tensor) -> Tensor:
    """The product; a trace on the CPU needs no values of it, and without fp16 instructions they take minutes."""
    if states.dtype == torch.float16 and states.device.type == "cpu" and torch.onnx.is_in_onnx_export():
        apply: Callable[..., Tensor] = _TracedMatmul.apply
        return apply(states, matrix)
    return states @ matrix


class _TracedMatmul(torch.autograd.Function):
    """A MatMul in a traced graph; zeros in torch."""

    @staticmethod
    def forward(_: Any, states: Tensor, matrix: Tensor) -> Tensor:
        return states.new_zeros(states.shape[0], matrix.shape[1])

    @staticmethod
    def symbolic(g: Any, states: Any, matrix: Any) -> Any:
        return g.op("MatMul", states, matrix).setType(states.type().with_sizes([None, None]))


class _Norm(nn.Module):
    """Layer norm in fp32; the result has the dtype of the next matmul."""

    def __init__(self, norm: nn.LayerNorm, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(norm.weight.detach().float())
        self.bias = nn.Parameter(norm.bias.detach().float())
        self.eps = norm.eps
        self.dtype = dtype

    def forward(self, states: Tensor) -> Tensor:
        normed = functional.layer_norm(states, (self.weight.shape[0],), self.weight, self.bias, self.eps)
        return normed.to(self.dtype)


class _Linear(nn.Module):
    """transformers' Conv1D: a weight [in, out], so that the graph has a plain MatMul."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(layer.weight.detach().to(dtype))
        self.bias = nn.Parameter(layer.bias.detach().to(dtype))

    def forward(self, states: Tensor) -> Tensor:
        return _multiply(states, self.weight) + self.bias


class _Block(nn.Module):
    """One layer: attention of trunks and branches, then the MLP over all their tokens at once."""

    def __init__(self, block: Any, heads: int, dtype: torch.dtype, *, is_fused: bool) -> None:
        super().__init__()
        self.heads = heads
        self.is_fused = is_fused
        self.attention_norm, self.mlp_norm = _Norm(block.ln_1, dtype), _Norm(block.ln_2, dtype)
        self.project, self.merge = _Linear(block.attn.c_attn, dtype), _Linear(block.attn.c_proj, dtype)
        self.widen, self.narrow = _Linear(block.mlp.c_fc, dtype), _Linear(block.mlp.c_proj, dtype)
        self.width = self.merge.weight.shape[0]

    def forward(self, states: Tensor, shape: _Shape, wanted: Tensor | None = None) -> Tensor:
        """The states after the layer: of the tokens `wanted`, which spares the others the MLP, or of all."""
        projected = self.project(self.attention_norm(states))
        mixed = attend_fused(projected, shape, self.heads) if self.is_fused else self._attend(projected, shape)
        if wanted is not None:
            states, mixed = states[wanted], mixed[wanted]
        states = states + self.merge(mixed).float()
        widened = functional.gelu(self.widen(self.mlp_norm(states)), approximate="tanh")
        result: Tensor = states + self.narrow(widened).float()
        return result

    def _attend(self, projected: Tensor, shape: _Shape) -> Tensor:
        trunk_tokens = shape.trunks * shape.trunk_width
        query, key, value = self._split(projected[:trunk_tokens], shape.trunks, shape.trunk_width)
        own_query, own_key, own_value = self._split(projected[trunk_tokens:], shape.branches, shape.branch_width)
        # Softmax does not change if all of a token's scores are lowered by its score of the trunk's first token.
        first_key = key[:, :, :1]
        key, own_key = key - first_key, own_key - first_key[shape.branch_trunk]
        trunk = _mix(query, key, value, shape.trunk_ceiling)
        keys = torch.cat([key[shape.branch_trunk], own_key], dim=-2)
        values = torch.cat([value[shape.branch_trunk], own_value], dim=-2)
        branch = _mix(own_query, keys, values, shape.branch_ceiling)
        return torch.cat([part.transpose(1, 2).reshape(-1, self.width) for part in (trunk, branch)])

    def _split(self, projected: Tensor, rows: int, tokens: int) -> list[Tensor]:
        """Query (scaled), key and value [rows, heads, tokens, width of a head]."""
        size = self.width // self.heads
        query, key, value = projected.reshape(rows, tokens, 3, self.heads, size).permute(2, 0, 3, 1, 4)
        return [query * size**-0.5, key, value]


def _ceiling(sees: Tensor) -> Tensor:
    """The largest score that a token may give: infinity where it may attend, UNSEEN elsewhere."""
    return torch.where(sees, torch.finfo(torch.float32).max, UNSEEN)


def _mix(query: Tensor, key: Tensor, value: Tensor, ceiling: Tensor) -> Tensor:
    """Attention; `key` is relative to that of the trunk's first token, to which every token gives the score 0."""
    scores = torch.minimum((query @ key.transpose(-1, -2)).float(), ceiling)
    mixed: Tensor = torch.softmax(scores, dim=-1).to(value.dtype) @ value
    return mixed


TRACED_OPSET = 20  # specified: the first with Gelu as one operator, the last that tracing writes
BRANCH_AXES = ("branches", "branch_tokens")
INPUT_AXES: dict[str, tuple[str, ...]] = {
    "trunk_ids": ("trunks", "trunk_tokens"),
    "branch_ids": BRANCH_AXES,
    "branch_positions": BRANCH_AXES,
    "branch_ends": BRANCH_AXES,
    "branch_trunk": BRANCH_AXES[:1],
    "branch_start": BRANCH_AXES[:1],
    "predictors": ("predictors",),
    "target_predictor": ("targets",),
    "target_ids": ("targets",),
}
OUTPUT_AXES: dict[str, tuple[str, ...]] = {"loss": ("targets",)}
# Specified: a protobuf message ends at 2 GiB. Weights beyond 1.5 GB go into a file next to the graph.
MAX_INLINE_BYTES = 1_500_000_000


def export_graph(
    model: GPT2LMHeadModel, path: Path, dtype: torch.dtype = torch.float32, *, is_fused: bool = False
) -> None:
    """Writes the graph, its weights inside or in `path` + `.data`; matmuls in `dtype`, the losses always fp32.

    `is_fused` writes the form for GPUs. Raises GraphExportError unless the names and axes are right, and, in that form,
    every layer's attention is fused.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    probe = build_probe(vocabulary=16)
    contract = GraphContract(INPUT_AXES, OUTPUT_AXES, tuple(torch.from_numpy(probe[name]) for name in INPUT_AXES))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        traced = Path(folder) / "traced.onnx"
        custom = {MICROSOFT: 1} if is_fused else None
        fed = FedModel(model, dtype, is_fused=is_fused)
        trace_graph(fed, contract, traced, TRACED_OPSET, custom_opsets=custom)
        graph = onnx.load(traced)  # weights included, wherever tracing put them
    for entry in graph.opset_import:
        # The version changes nothing that the graph uses, and a model of over 2 GB cannot be converted.
        entry.version = OPSET if not entry.domain else entry.version
    check_graph(graph, contract, path)
    fused, wanted = count_fused(graph.graph.node), 2 * int(model.config.n_layer) if is_fused else 0
    if fused != wanted:
        raise GraphExportError(f"{path}: has {fused} fused attentions, expected {wanted}")
    is_large = sum(len(tensor.raw_data) for tensor in graph.graph.initializer) > MAX_INLINE_BYTES
    onnx.save(graph, path, save_as_external_data=is_large, location=path.name + DATA_SUFFIX)


def build_probe(vocabulary: int) -> dict[str, np.ndarray]:
    """Inputs of random tokens: two conversations of 48 tokens, a small tree at the end and in the middle of each."""
    generator = np.random.default_rng(0)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(int(each) for each in generator.integers(0, vocabulary, count))

    tree = build_tree([draw(3), draw(4), draw(5)])
    trunks = [draw(48), draw(48)]
    return FedBatch(
        [BranchedTrunk(each, (Branch(24, draw(4), tree), Branch(48, (), tree)), with_context=True) for each in trunks],
        pad_id=0,
    ).feeds()
