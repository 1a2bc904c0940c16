"""What FED costs: the published way against the one pass, in one run, alternating; and how the cost grows.

Random weights, since only time is measured. Medians and ratios; absolute times belong to one machine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import GPT2Config, GPT2LMHeadModel
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.scorers.fed.batch import Conversation, FedBatch, FedTurn, FollowUpTree, build_tree, share_turns
from turnscore_exporters.fed.bundle import QualityFile
from turnscore_exporters.fed.model import export_graph, export_int8

from turnscore_bench.fed.ways import (
    CONTEXT_TURN_TOKENS,
    ROWS_AT_ONCE,
    Timing,
    TorchFed,
    Way,
    draw_context,
    parts_of,
    time_alternating,
)
from turnscore_bench.fed.work import ModelShape

EOS_ID, VOCABULARY = 50256, 50257  # specified: GPT-2's
CONTEXT_TOKENS = 100
WIDEST_DIALOGUE_TOKENS = 1_000_000  # a dialogue's row is measured whole
CONTEXTS = (25, 50, 100, 200, 400, 800)
QUALITY_COUNTS = (1, 2, 4, 8, 18)

Graph = Literal["fp32", "int8"]


class FedBench:
    """One model of DialoGPT-small's shape, as torch and as graphs."""

    def __init__(self, tokenizer: Tokenizer, qualities: QualityFile, folder: Path, threads: int, layers: int) -> None:
        """Writes the graphs into `folder`."""
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        config = GPT2Config(n_layer=layers)
        self.shape = ModelShape(config.n_layer, config.n_embd, config.vocab_size)
        model = GPT2LMHeadModel(config).eval()
        self._torch = TorchFed(model)
        export_graph(model, folder / "fp32.onnx")
        export_int8(folder / "fp32.onnx", folder / "int8.onnx", VOCABULARY)
        self.graphs: dict[Graph, OnnxBackend] = {
            name: OnnxBackend(folder / f"{name}.onnx", threads=threads) for name in get_args(Graph)
        }
        self._follow_ups = {
            name: [
                tokenizer.encode(text, add_special_tokens=False).ids
                for text in (*qualities.qualities[name].positive, *qualities.qualities[name].negative)
            ]
            for name in qualities.default
        }
        self._generator = np.random.default_rng(0)

    def compare_ways(self, rounds: int) -> list[Timing]:
        """The published way and ours, on one turn with 100 context tokens and all qualities, by the published loss."""
        context = self.draw_context(CONTEXT_TOKENS)
        rows = [[*context, *follow_up] for each in self._follow_ups.values() for follow_up in each]
        tree = self.tree(len(self._follow_ups))
        batch = share([FedTurn(tuple(context), 1)], tree, with_context=True)
        published, ours = sum(map(len, rows)), len(context) + len(tree.ids)
        widths = [max(map(len, part)) * len(part) for part in parts_of(rows)]
        ways: dict[str, Way] = {
            "published: a pass a follow-up, torch": (published, lambda: self._torch.run_published(rows)),
            f"published, {ROWS_AT_ONCE} follow-ups a pass, torch": (sum(widths), lambda: self._torch.run_batched(rows)),
            "one pass, torch": (ours, lambda: self._torch.run_one_pass(batch.feeds())),
            "one pass, ONNX Runtime fp32": (ours, lambda: self.graphs["fp32"].run(batch.feeds())),
            "one pass, ONNX Runtime int8": (ours, lambda: self.graphs["int8"].run(batch.feeds())),
        }
        return time_alternating(ways, rounds)

    def measure_contexts(self, rounds: int) -> list[Timing]:
        """One turn, all qualities, contexts of 25 to 800 tokens."""
        tree = self.tree(len(self._follow_ups))
        return self._time_turns({str(each): ([self.draw_context(each)], tree) for each in CONTEXTS}, rounds)

    def measure_qualities(self, rounds: int) -> list[Timing]:
        """One turn, 100 context tokens, 1 to 18 qualities."""
        context = self.draw_context(CONTEXT_TOKENS)
        return self._time_turns({str(each): ([context], self.tree(each)) for each in QUALITY_COUNTS}, rounds)

    def draw_context(self, tokens: int, turn_tokens: int = CONTEXT_TURN_TOKENS) -> list[int]:
        """Random tokens, a separator first, last and every `turn_tokens`."""
        return draw_context(self._generator, tokens, EOS_ID, turn_tokens)

    def tree(self, count: int) -> FollowUpTree:
        """The tree of the first `count` qualities."""
        chosen = [tuple(each) for name in list(self._follow_ups)[:count] for each in self._follow_ups[name]]
        return build_tree(list(dict.fromkeys(chosen)))

    def _job(self, groups: Sequence[Sequence[list[int]]], tree: FollowUpTree) -> Way:
        """Contexts that share a pass, group after group; with the tokens of all passes."""
        batches = [share([FedTurn(tuple(each), 1) for each in group], tree, with_context=False) for group in groups]
        tokens = sum(batch.fed_tokens for batch in batches)
        return tokens, lambda: [self.graphs["fp32"].run(batch.feeds()) for batch in batches]

    def _time_turns(self, turns: Mapping[str, tuple[list[list[int]], FollowUpTree]], rounds: int) -> list[Timing]:
        return time_alternating({name: self._job([contexts], tree) for name, (contexts, tree) in turns.items()}, rounds)


def share(turns: Sequence[FedTurn], tree: FollowUpTree, *, with_context: bool) -> FedBatch:
    """The turns packed as the service packs them, but never divided."""
    shared = share_turns(turns, tree, with_context=with_context, max_tokens=WIDEST_DIALOGUE_TOKENS)
    conversations: list[Conversation] = [each.conversation for each in shared]
    return FedBatch(conversations, EOS_ID)
