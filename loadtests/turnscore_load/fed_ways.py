"""FED's ways of computing a turn, in torch on any device, the clock that compares them, and their least arithmetic."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import GPT2LMHeadModel
from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree
from turnscore_exporters.fed.model import FedModel

from turnscore_load.gpu_models import (
    CONTEXT_TOKENS,
    Feeds,
    TransformerShape,
    build_dialogue_tokenizer,
    encode_follow_ups,
)  # fmt: skip

ROWS_AT_ONCE = 8  # chosen: logits of 8 rows of 112 tokens are 180 MB
CONTEXT_TURN_TOKENS = 25

Way = tuple[int, Callable[[], object]]  # the tokens that a way computes, and what runs it to its end


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
        """The same in passes of several padded rows of like length: each token's loss."""
        found, ordered = [], sorted(rows, key=len)
        for start in range(0, len(ordered), ROWS_AT_ONCE):
            part = ordered[start : start + ROWS_AT_ONCE]
            width = max(map(len, part))
            padded = [[*row, *[self._pad_id] * (width - len(row))] for row in part]
            ids = torch.tensor(padded, device=self._device)
            logits = self._model(input_ids=ids).logits[:, :-1]
            losses = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none"
            )
            found.append(losses.cpu())
        return found

    def run_one_pass(self, feeds: Feeds) -> Tensor:
        """The losses [targets] of the inputs that a FedBatch makes."""
        tensors = {name: torch.from_numpy(values).to(self._device) for name, values in feeds.items()}
        return self._one_pass(**tensors).cpu()


def time_alternating(ways: Mapping[str, Way], rounds: int, warm_up_rounds: int) -> dict[str, tuple[float, float]]:
    """Each way's median seconds and their 99th percentile; the ways take turns, so that a busy moment meets all."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode(), tqdm(total=(rounds + warm_up_rounds) * len(ways), unit="run", desc="fed") as bar:
        for round_number in range(rounds + warm_up_rounds):
            for name, (_, run) in ways.items():
                started_at = time.perf_counter()
                run()
                if round_number >= warm_up_rounds:
                    seconds[name].append(time.perf_counter() - started_at)
                bar.update()
    return {name: (median(took), float(np.percentile(took, 99))) for name, took in seconds.items()}


class PackedTurn:
    """One turn of CONTEXT_TOKENS tokens, and the follow-ups of so many qualities after it."""

    def __init__(self, qualities: int) -> None:
        self.qualities = qualities
        tokenizer, self._eos_id = build_dialogue_tokenizer()
        context: list[int] = np.random.default_rng(0).integers(0, self._eos_id, CONTEXT_TOKENS).tolist()
        for place in (*range(0, CONTEXT_TOKENS, CONTEXT_TURN_TOKENS), -1):
            context[place] = self._eos_id
        follow_ups = encode_follow_ups(tokenizer, qualities)
        self.rows = [[*context, *each] for each in follow_ups]
        self._tree = build_tree([list(each) for each in dict.fromkeys(map(tuple, follow_ups))])
        # The published way computes the losses of the context too.
        branch = Branch(len(context), (), self._tree)
        self._conversation = Conversation(tuple(context), (branch,), with_context=True)
        self.tokens = FedBatch([self._conversation], self._eos_id).fed_tokens

    def feeds(self, backend: Backend) -> Feeds:
        """The inputs of the one pass, as wide as the runtime wants them."""
        return FedBatch([self._conversation], self._eos_id, backend.round_width).feeds()

    def count_operations(self, shape: TransformerShape) -> int:
        """Floating point operations of the one pass: matmuls alone, none for padding or for tokens out of sight.

        By GPT-2 query, key and value take 3 width * width, attention's output 1, the MLP 4 and 4. No token leaves the
        last layer early, as the context's losses are computed too.
        """
        asked, square = len(self._tree.ids), shape.width * shape.width
        tokens = CONTEXT_TOKENS + asked
        # Which token sees which: the context's beginning, its own ancestors, itself.
        pairs = CONTEXT_TOKENS * (CONTEXT_TOKENS + 1) // 2 + asked * CONTEXT_TOKENS
        pairs += sum(int(depth) + 1 for depth in self._tree.depths)
        attention = shape.layers * pairs * 2 * shape.width  # a score and a share of the value
        head = tokens * shape.width * shape.vocabulary
        return 2 * (shape.layers * tokens * 12 * square + attention + head)  # a multiplication and an addition
