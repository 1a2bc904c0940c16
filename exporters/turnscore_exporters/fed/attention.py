"""FED's attention for CUDA: one fused operator for the trunks, one for the branches.

ONNX Runtime's MultiHeadAttention (domain com.microsoft) computes trunks by causal attention without a mask, and
branches with the mask as an attention bias; scores never exist in memory, and softmax is fp32 inside. Its kernels need
widths that are multiples of 8, which packing makes. The optimizers do not find this shape: they fail on GPT-2.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.onnx.symbolic_helper import _optional_input_placeholder_tensor

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
    # The smallest fp16 number: its exp is 0 beside the score of any token that may be seen.
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
