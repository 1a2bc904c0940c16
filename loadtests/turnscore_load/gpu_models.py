"""Models of random weights in the published shapes, their tokenizers, and bundles of them for the service under load.

Only time is measured with them: their scores mean nothing, and no parity is claimed. The tokenizers give a common word
one token, as the published ones do.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import turnscore_exporters
from pydantic import BaseModel, TypeAdapter
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions
from turnscore_core.inference.devices import CudaDriverError, Device, Machine
from turnscore_core.inference.onnx_backend import Array, Backend, OnnxBackend
from turnscore_core.scorers.fed.batch import Branch, BranchedTrunk, FedBatch, build_tree
from turnscore_exporters.engagement.model import EngagementModel, EngagementSettings
from turnscore_exporters.fed.language_model import find_end_of_text, train_tokenizer
from turnscore_exporters.training.encoders import Encoder

from turnscore_load.machine import usable_cpus
from turnscore_load.results import in_turn, seconds_of

CONTEXT_TOKENS, CONTEXT_TURN_TOKENS = 100, 25

Row = dict[str, Any]  # one measurement, by the names of its columns


class TransformerShape(BaseModel, frozen=True):
    """A transformer's. The MLP is four times as wide as the states."""

    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int


class Scale(BaseModel, frozen=True):
    """How much is measured."""

    encoder: TransformerShape
    language_models: tuple[TransformerShape, ...]
    batches: Sequence[int]
    lengths: Sequence[int]
    runs: int  # timed, of each batch
    rounds: int  # times that FED's ways take turns
    qualities: Sequence[int]  # FED's eight for turns, and all of its eighteen
    clients: Sequence[int]
    turn_tokens: Sequence[int]  # of a served turn, both rows together
    turns_per_request: Sequence[int]
    requests_per_client: int
    most_turns: int  # of one measurement, unless the clients are more
    fed_turns: int  # the same of FED, whose turns take longer
    requests_per_second: float  # of FED, arriving at random
    paced_seconds: float


# Specified: BERT-base (Devlin et al. 2019); DialoGPT's three sizes are GPT-2's (Zhang et al. 2020).
FULL, SHORT, TINY = (
    TypeAdapter(dict[str, Scale]).validate_json(Path(__file__).with_name("gpu_scales.json").read_bytes()).values()
)


SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Twenty words that stand for all others; two of them in a row make 400.
WORDS = tuple(first + second for first, second in product(("ba", "ce", "di", "fo", "gu"), ("lan", "mer", "nis", "tor")))
TOKEN_LIMIT = 128
QUALITIES_FILE = Path(turnscore_exporters.__file__).parent / "fed" / "qualities.json"


def build_encoder(shape: TransformerShape) -> EngagementModel:
    """The engagement classifier on a BERT of that shape; fused graphs are made of eager attention."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, intermediate_size=4 * shape.width, max_position_embeddings=shape.positions,
        attn_implementation="eager",
    )  # fmt: skip
    return EngagementModel(BertModel(config, add_pooling_layer=False), EngagementSettings(encoder=shape.name)).eval()


def build_language_model(shape: TransformerShape) -> GPT2LMHeadModel:
    """A GPT-2 of that shape."""
    torch.manual_seed(0)
    eos_id = shape.vocabulary - 1
    config = GPT2Config(
        vocab_size=shape.vocabulary, n_positions=shape.positions, n_embd=shape.width, n_layer=shape.layers,
        n_head=shape.heads, bos_token_id=eos_id, eos_token_id=eos_id,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def as_encoder(model: EngagementModel, shape: TransformerShape) -> Encoder:
    """With a WordPiece of made-up words, every one of them a token."""
    words = [*SPECIAL, *("".join(pair) for pair in product(WORDS, WORDS))]
    known = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(known, unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(each, known[each]) for each in ("[CLS]", "[SEP]")]
    )
    return Encoder(name=shape.name, model=model.encoder, tokenizer=tokenizer, token_limit=TOKEN_LIMIT)


def build_dialogue_tokenizer() -> tuple[Tokenizer, int]:
    """A byte-level BPE that knows every word of the follow-ups and the made-up ones; and its separator's id."""
    texts = [text for each in read_follow_ups().values() for text in each]
    made_up = [f"{word} {' '.join(WORDS)}" for word in WORDS]
    tokenizer = train_tokenizer([*texts, *made_up] * 2, 2000)
    return tokenizer, find_end_of_text(tokenizer)


def read_follow_ups() -> dict[str, list[str]]:
    """FED's eighteen qualities, in order, with their follow-ups."""
    stored = json.loads(QUALITIES_FILE.read_text(encoding="utf-8"))
    chosen = {name: stored["qualities"][name] for name in stored["sets"]["fed"]}
    return {name: [*each.get("positive", ()), *each.get("negative", ())] for name, each in chosen.items()}


Feeds = Mapping[str, Array]
Way = tuple[int, Callable[[], object]]  # the tokens that a way computes, and what runs it to its end


def run_published(model: GPT2LMHeadModel, rows: Sequence[list[int]]) -> list[float]:
    """FED as published: a pass for each row, context and follow-up, and its loss brought here."""
    ids = (torch.tensor([row], device=model.device) for row in rows)
    return [float(model(input_ids=each, labels=each).loss) for each in ids]


def time_alternating(ways: Mapping[str, Way], rounds: int, warm_up_rounds: int) -> dict[str, list[float]]:
    """Each way's seconds; the ways take turns, so that a busy moment meets all."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode():
        for round_, name in in_turn(ways, rounds + warm_up_rounds):
            took = seconds_of(ways[name][1])
            if round_ >= warm_up_rounds:
                seconds[name].append(took)
    return seconds


class PackedTurn:
    """One turn of CONTEXT_TOKENS tokens, and the follow-ups of so many qualities after it, repeated ones included."""

    def __init__(self, qualities: int) -> None:
        self.qualities = qualities
        tokenizer, self._eos_id = build_dialogue_tokenizer()
        context: list[int] = np.random.default_rng(0).integers(0, self._eos_id, CONTEXT_TOKENS).tolist()
        for place in (*range(0, CONTEXT_TOKENS, CONTEXT_TURN_TOKENS), -1):
            context[place] = self._eos_id
        texts = [text for each in list(read_follow_ups().values())[:qualities] for text in each]
        follow_ups = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        self.rows = [[*context, *each] for each in follow_ups]
        self._tree = build_tree([list(each) for each in dict.fromkeys(map(tuple, follow_ups))])
        # The published way computes the losses of the context too.
        branch = Branch(len(context), (), self._tree)
        self._conversation = BranchedTrunk(tuple(context), (branch,), with_context=True)
        self.tokens = FedBatch([self._conversation], self._eos_id).fed_tokens

    def feeds(self, backend: Backend) -> Feeds:
        """The inputs of the one pass, as wide as the runtime wants them."""
        return FedBatch([self._conversation], self._eos_id, backend.round_width).feeds()


def open_backend(graph: Path, device: Device) -> Backend:
    """The graph as the service opens it there."""
    if device.kind == "cpu":
        return OnnxBackend(graph, threads=usable_cpus())
    return CudaBackend(graph, device, CudaOptions())


def free_bytes(device: Device) -> int | None:
    """Device memory that is not taken; None where it is not reported."""
    if device.kind == "cuda":
        with suppress(CudaDriverError):
            return Machine().free_bytes(device.index)
    return None


def time_runs(run: Callable[[], object], runs: int, warm_up_runs: int = 3) -> float:
    """Median seconds of a run; it has ended when the call returns."""
    return median([seconds_of(run) for _ in range(runs + warm_up_runs)][warm_up_runs:])


def best_turns_per_second(backend: Backend, batches: Sequence[Feeds], runs: int) -> float:
    """The most turns per second over the batches, one at a time or two at once."""
    best = 0.0
    for feeds in batches:
        for at_once in (1, 2):  # one alone, or one computing while another is copied, as the service does
            count = max(runs, 2 * at_once)
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(lambda _: backend.run(feeds), range(4 * at_once)))  # noqa: B023 every thread has its buffers
                started_at = time.perf_counter()
                list(pool.map(lambda _: backend.run(feeds), range(count)))  # noqa: B023
                best = max(best, len(feeds["query_row"]) * count / (time.perf_counter() - started_at))
    return best


def encoder_feeds(rows: int, tokens: int, vocabulary: int) -> dict[str, Array]:
    """A full batch of the engagement graph: rows of one length, every two of them a pair."""
    ids = np.random.default_rng(0).integers(5, vocabulary, (rows, tokens))
    first = np.arange(0, rows, 2)
    last = np.minimum(first + 1, rows - 1)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "query_row": first, "reply_row": last}
