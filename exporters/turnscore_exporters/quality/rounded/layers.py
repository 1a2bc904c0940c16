"""The int8 rounding of `graphs/quantization.py` in torch, so that a training can go through it.

Forward is what the graph computes: int8 weights with a scale per output column, uint8 inputs with a scale per token,
inputs of layer norms divided by a factor per channel first. Backward takes the rounding for the identity (Bengio et al.
2013, "straight-through"). Scales and factors get no gradient.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel

from turnscore_exporters.graphs.quantization import (
    GELU_MINIMUM,
    GELU_ZERO_POINT,
    INT8_LIMIT,
    PROBE_ROWS,
    PROBE_TOKENS,
    TINY,
    smoothing_factors,
)
from turnscore_exporters.training.checkpoint_files import Factors


def _round(values: Tensor) -> Tensor:
    """Whole numbers, with the gradient of the values themselves."""
    return values + (values.round() - values).detach()


class Int8Linear(nn.Module):
    """A linear layer as the int8 graph computes it. Shares weight and bias with the layer that it stands for."""

    def __init__(self, linear: nn.Linear, factors: Factors | None, *, after_gelu: bool) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.linear = (linear,)
        """In a tuple: no module of this one, so that no weight has two names."""
        self.factors = None if factors is None else torch.from_numpy(factors)
        self.after_gelu = after_gelu

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.float()
        if self.factors is not None:
            inputs = inputs / self.factors
        weight, column_scales = self._round_weight()
        token_scales = self._scales(inputs.detach())
        lowest, highest = (-GELU_ZERO_POINT, 255 - GELU_ZERO_POINT) if self.after_gelu else (-INT8_LIMIT, INT8_LIMIT)
        rounded = _round(inputs / token_scales).clamp(lowest, highest)
        product = functional.linear(rounded, weight)
        return product.float() * (token_scales * column_scales) + self.bias

    def _round_weight(self) -> tuple[Tensor, Tensor]:
        """Whole numbers [outputs, inputs], and the step of each output."""
        weight = self.weight if self.factors is None else self.weight * self.factors
        scales = weight.detach().abs().amax(1).clamp_min(TINY) / INT8_LIMIT
        return _round(weight / scales[:, None]), scales

    def keep_rounded(self) -> nn.Linear:
        """The layer that this one stood for, with the rounded weights: rounding them again changes nothing."""
        [linear] = self.linear
        with torch.no_grad():
            whole, scales = self._round_weight()
            weight = whole * scales[:, None]
            linear.weight.copy_(weight if self.factors is None else weight / self.factors)
        return linear

    def _scales(self, inputs: Tensor) -> Tensor:
        """The step of each token, [.., tokens, 1]."""
        if self.after_gelu:
            largest = inputs.amax(-1, keepdim=True) / (255 - GELU_ZERO_POINT)
            return largest.clamp_min(-GELU_MINIMUM / GELU_ZERO_POINT)
        return inputs.abs().amax(-1, keepdim=True).clamp_min(TINY) / INT8_LIMIT


@dataclass(frozen=True)
class _Place:
    """Linear layers of one input."""

    parent: nn.Module
    names: tuple[str, ...]
    smoothed: bool = False
    after_gelu: bool = False

    @property
    def layers(self) -> list[nn.Linear]:
        return [self.parent.get_submodule(name) for name in self.names]  # type: ignore[misc]


def _places(encoder: BertModel) -> Iterator[_Place]:
    """In the order in which the graph has them."""
    for layer in encoder.encoder.layer:
        yield _Place(layer.attention.self, ("query", "key", "value"), smoothed=True)
        yield _Place(layer.attention.output, ("dense",))
        yield _Place(layer.intermediate, ("dense",), smoothed=True)
        yield _Place(layer.output, ("dense",), after_gelu=encoder.config.hidden_act.startswith("gelu"))


def find_smoothing(encoder: BertModel) -> Factors:
    """Factors [smoothed inputs, width] for these weights, found as exporting does; two inputs for each layer."""
    ids = np.random.default_rng(0).integers(0, encoder.config.vocab_size, (PROBE_ROWS, PROBE_TOKENS))
    smoothed = [place for place in _places(encoder) if place.smoothed]
    ranges: list[NDArray[np.float32]] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        ranges.append(inputs[0].abs().flatten(0, 1).amax(0).numpy())

    hooks = [place.layers[0].register_forward_pre_hook(note) for place in smoothed]
    asked = torch.from_numpy(ids)
    with torch.inference_mode():
        encoder(input_ids=asked, attention_mask=torch.ones_like(asked), token_type_ids=torch.zeros_like(asked))
    for hook in hooks:
        hook.remove()
    return np.stack(
        [
            smoothing_factors(found, [layer.weight.detach().numpy().T for layer in place.layers])
            for found, place in zip(ranges, smoothed, strict=True)
        ]
    )


def put_rounding_in(encoder: BertModel, smoothing: Factors) -> None:
    """Lets the encoder's layers compute as the int8 graph does, with these factors."""
    factors = iter(smoothing)
    for place in _places(encoder):
        shared = next(factors) if place.smoothed else None
        for name, linear in zip(place.names, place.layers, strict=True):
            setattr(place.parent, name, Int8Linear(linear, shared, after_gelu=place.after_gelu))


def take_rounding_out(encoder: BertModel) -> None:
    """The layers as they were, with their weights of now, rounded."""
    for place in _places(encoder):
        for name in place.names:
            rounded = place.parent.get_submodule(name)
            assert isinstance(rounded, Int8Linear)
            setattr(place.parent, name, rounded.keep_rounded())
