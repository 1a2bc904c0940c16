"""FED's ways of computing a turn, in torch on any device, the clock that compares them, and their least arithmetic."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm
from transformers import GPT2LMHeadModel
from turnscore_core.scorers.fed.batch import Branch, Conversation
from turnscore_exporters.fed.model import FedModel

ROWS_AT_ONCE = 8  # chosen: logits of 8 rows of 112 tokens are 180 MB
CONTEXT_TURN_TOKENS = 25

Way = tuple[int, Callable[[], object]]
"""The tokens that a way computes, and what runs it; it has ended when the call returns."""


@dataclass(frozen=True, kw_only=True)
class WayTiming:
    """Median seconds over the rounds, the 99th percentile, and the tokens that the model computes."""

    name: str
    seconds: float
    tokens: int
    p99_seconds: float = 0.0


class TorchFed:
    """A language model in torch: the published way, that way in batches, and the one pass."""

    def __init__(self, model: GPT2LMHeadModel, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        """Takes the model over: it is moved to the device and type."""
        one_pass = FedModel(model, dtype).eval()  # before the model is moved, of its fp32 weights
        self._device = device
        self._model = model.to(device=device, dtype=dtype).eval()
        self._one_pass: Callable[..., Tensor] = one_pass.to(device)
        self._pad_id = int(model.config.vocab_size) - 1

    def compile(self) -> None:
        """Lets torch.compile make the one pass; the first run of a shape then takes long."""
        self._one_pass = torch.compile(self._one_pass)

    def run_published(self, rows: Sequence[list[int]]) -> list[float]:
        """A pass for each row, context and follow-up, and its loss brought here, as published code does it."""
        found = []
        for row in rows:
            ids = torch.tensor([row], device=self._device)
            found.append(float(self._model(input_ids=ids, labels=ids).loss))
        return found

    def run_batched(self, rows: Sequence[list[int]]) -> list[Tensor]:
        """The same in passes of several padded rows: each token's loss."""
        found = []
        for part in parts_of(rows):
            width = max(map(len, part))
            padded = [[*row, *[self._pad_id] * (width - len(row))] for row in part]
            ids = torch.tensor(padded, device=self._device)
            logits = self._model(input_ids=ids).logits[:, :-1]
            losses = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none"
            )
            found.append(losses.cpu())
        return found

    def run_one_pass(self, feeds: Mapping[str, NDArray[np.int64]]) -> Tensor:
        """The losses [targets] of the inputs that `fed_packing` makes."""
        tensors = {name: torch.from_numpy(values).to(self._device) for name, values in feeds.items()}
        return self._one_pass(**tensors).cpu()


def parts_of(rows: Sequence[list[int]]) -> list[list[list[int]]]:
    """The rows in passes of like length."""
    ordered = sorted(rows, key=len)
    return [ordered[start : start + ROWS_AT_ONCE] for start in range(0, len(ordered), ROWS_AT_ONCE)]


def draw_context(
    generator: np.random.Generator, tokens: int, eos_id: int, turn_tokens: int = CONTEXT_TURN_TOKENS
) -> list[int]:
    """Random tokens below the separator's id, a separator first, last and every `turn_tokens`."""
    drawn: list[int] = generator.integers(0, eos_id, tokens).tolist()
    drawn[::turn_tokens] = [eos_id] * len(drawn[::turn_tokens])
    drawn[-1] = eos_id
    return drawn


def time_alternating(ways: Mapping[str, Way], rounds: int, warm_up_rounds: int = 1) -> list[WayTiming]:
    """Each way's seconds; the ways take turns, so that a busy moment meets them all."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode(), tqdm(total=(rounds + warm_up_rounds) * len(ways), unit="run", desc="fed") as bar:
        for round_number in range(rounds + warm_up_rounds):
            for name, (_, run) in ways.items():
                started_at = time.perf_counter()
                run()
                if round_number >= warm_up_rounds:
                    seconds[name].append(time.perf_counter() - started_at)
                bar.update()
    return [
        WayTiming(name=name, seconds=median(took), tokens=ways[name][0], p99_seconds=float(np.percentile(took, 99)))
        for name, took in seconds.items()
    ]


# Specified by GPT-2: query, key and value take 3 width * width, attention's output 1, the MLP 4 and 4.
QUERY_KEY_VALUE, REST_OF_LAYER = 3, 9


@dataclass(frozen=True)
class ModelShape:
    """A GPT-2's."""

    layers: int
    width: int
    vocabulary: int


def count_operations(conversations: Iterable[Conversation], shape: ModelShape) -> int:
    """Floating point operations of one pass: matmuls alone, none of them for padding or for tokens out of sight.

    The tokens that nothing is predicted from leave the last layer after query, key and value.
    """
    return sum(_count(each, shape) for each in conversations)


def _count(conversation: Conversation, shape: ModelShape) -> int:
    trunk, branches = len(conversation.trunk), conversation.branches
    tokens = trunk + sum(len(each.ids) for each in branches)
    predictors = sum(1 + len(each.tree.ids) for each in branches)
    if conversation.with_context:
        predictors += trunk - 1 + sum(len(each.stem) for each in branches)
    pairs = trunk * (trunk + 1) // 2 + sum(map(_count_pairs, branches))
    square = shape.width * shape.width
    whole_layers = (shape.layers - 1) * tokens * (QUERY_KEY_VALUE + REST_OF_LAYER) * square
    last_layer = (tokens * QUERY_KEY_VALUE + predictors * REST_OF_LAYER) * square
    attention = shape.layers * pairs * 2 * shape.width  # a score and a share of the value
    head = predictors * shape.width * shape.vocabulary
    return 2 * (whole_layers + last_layer + attention + head)  # a multiplication and an addition


def _count_pairs(branch: Branch) -> int:
    """Which token sees which: the trunk's beginning, its own ancestors, itself."""
    stem = len(branch.stem)
    own = stem * (stem + 1) // 2 + sum(stem + int(depth) + 1 for depth in branch.tree.depths)
    return len(branch.ids) * branch.start + own
