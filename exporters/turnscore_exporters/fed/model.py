"""A GPT-2 over trunks and branches in torch, from which the FED graphs are traced. Returns one loss per target.

The inputs are those of turnscore_core.scorers.fed.batch, which draws them.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2LMHeadModel

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.fed.attention import attend_fused

# Measured on 2 cores: of 512 to 8,192 entries, 2,048 were the fastest for one turn and for a dialogue of 20. Logits of
# a dialogue's 2,600 predictors over 50,257 entries would be 0.5 GB, and touching new memory costs more than filling it.
VOCABULARY_SLICE = 2048
# Chosen for GPUs, which want large matmuls: logits of 16 turns with 18 qualities (4,200 predictors) are 276 MB.
FUSED_VOCABULARY_SLICE = 16_384
# Chosen: beside a score of 0, which every token gives the first of its trunk, exp(-40) is lost in fp32. The usual mask,
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
            logits = (states @ matrix).float()
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
        projected: Tensor = states @ self.weight + self.bias
        return projected


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
        parts = [part.transpose(1, 2).reshape(-1, self.width) for part in (trunk, branch)]
        return torch.cat(parts)

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
