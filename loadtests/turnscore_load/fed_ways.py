"""FED's published way of computing a turn, in torch on any device, a clock that compares ways, and a turn for them."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
import torch
from tqdm import tqdm
from transformers import GPT2LMHeadModel
from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree

from turnscore_load.gpu_models import (
    CONTEXT_TOKENS,
    Feeds,
    build_dialogue_tokenizer,
    encode_follow_ups,
)  # fmt: skip

CONTEXT_TURN_TOKENS = 25

Way = tuple[int, Callable[[], object]]  # the tokens that a way computes, and what runs it to its end


class PublishedWay:
    """FED as published: a pass for each row, context and follow-up, and its loss brought here."""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        self._model = model.eval()

    def run(self, rows: Sequence[list[int]]) -> list[float]:
        """Each row's loss."""
        found = []
        for row in rows:
            ids = torch.tensor([row], device=self._model.device)
            found.append(float(self._model(input_ids=ids, labels=ids).loss))
        return found


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
