"""FED on one device: the one pass in ONNX Runtime and in torch, against the published way; all take turns."""

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from turnscore_core.inference.devices import Device
from turnscore_core.inference.onnx_backend import Backend
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree
from turnscore_exporters.fed.model import export_graph

from turnscore_bench.fed.ways import TorchFed, Way, draw_context, time_alternating
from turnscore_bench.fed.work import ModelShape, count_operations
from turnscore_bench.gpu.bare import start_graph
from turnscore_bench.gpu.findings import FedSpeed, Findings
from turnscore_bench.gpu.shapes import CONTEXT_TOKENS, MEASURED_QUALITIES, Scale, Shape
from turnscore_bench.gpu.stand_ins import build_dialogue_tokenizer, build_language_model, encode_follow_ups
from turnscore_bench.gpu.ways import (
    BATCHED,
    PACKED,
    PACKED_COMPILED,
    PACKED_EAGER,
    PUBLISHED,
    PUBLISHED_FP16,
)

Arrays = Mapping[str, NDArray[np.int64]]


class PackedTurn:
    """One turn of CONTEXT_TOKENS tokens, and the follow-ups of so many qualities after it."""

    def __init__(self, qualities: int) -> None:
        tokenizer, self._eos_id = build_dialogue_tokenizer()
        self.context = draw_context(np.random.default_rng(0), CONTEXT_TOKENS, self._eos_id)
        follow_ups = encode_follow_ups(tokenizer, qualities)
        self.rows = [[*self.context, *each] for each in follow_ups]
        tree = build_tree([list(each) for each in dict.fromkeys(map(tuple, follow_ups))])
        # The published way computes the losses of the context too.
        branch = Branch(len(self.context), (), tree)
        self.conversation = Conversation(tuple(self.context), (branch,), with_context=True)

    def feeds(self, backend: Backend) -> Arrays:
        """The inputs of the one pass, as wide as the runtime wants them."""
        return FedBatch([self.conversation], self._eos_id, backend.round_width).feeds()

    @property
    def tokens(self) -> int:
        """Of the one pass."""
        return FedBatch([self.conversation], self._eos_id).fed_tokens


def race_fed(
    scale: Scale, shape: Shape, device: Device, folder: Path, findings: Findings, *, with_compile: bool
) -> None:
    """Exports one model's graph and measures every way with 8 and with 18 qualities."""
    started_at = time.perf_counter()
    graph = folder / f"{shape.name}-fp16.onnx"
    export_graph(build_language_model(shape), graph, torch.float16, is_fused=True)
    turns = {each: PackedTurn(each) for each in MEASURED_QUALITIES}
    backend, start = start_graph(
        shape.name, graph, time.perf_counter() - started_at, device, turns[MEASURED_QUALITIES[-1]].feeds
    )
    findings.starts.append(start)
    models: dict[str, TorchFed] = {}  # without them the graph is measured alone
    findings.attempt(f"torch, {shape.name}", lambda: models.update(_load_torch(shape, str(device))))
    for qualities, turn in turns.items():
        ways = _ways(turn, backend, models)
        findings.fed += _time(ways, turn, shape, qualities, scale.rounds)
    if not with_compile:
        findings.not_run[f"torch.compile, {shape.name}"] = "left out by --no-compile"
    else:
        findings.attempt(
            f"torch.compile, {shape.name}", lambda: _run_compiled(scale, shape, device, turns, backend, findings)
        )


def _load_torch(shape: Shape, place: str) -> dict[str, TorchFed]:
    """The model as published code runs it, and in fp16."""
    types = {PUBLISHED: torch.float32, PUBLISHED_FP16: torch.float16}
    return {way: TorchFed(build_language_model(shape), place, dtype) for way, dtype in types.items()}


def _run_compiled(
    scale: Scale, shape: Shape, device: Device, turns: Mapping[int, PackedTurn], backend: Backend, findings: Findings
) -> None:
    """Apart from the others, so that a compiler that fails leaves their figures."""
    model = TorchFed(build_language_model(shape), str(device), torch.float16)
    model.compile()
    for qualities, turn in turns.items():
        feeds = turn.feeds(backend)
        way: dict[str, Way] = {PACKED_COMPILED: (turn.tokens, lambda feeds=feeds: model.run_one_pass(feeds))}  # type: ignore[misc]
        findings.fed += _time(way, turn, shape, qualities, scale.rounds)


def _ways(turn: PackedTurn, backend: Backend, models: Mapping[str, TorchFed]) -> dict[str, Way]:
    feeds, apart = turn.feeds(backend), sum(map(len, turn.rows))
    own: dict[str, Way] = {PACKED: (turn.tokens, lambda: backend.run(feeds))}
    if not models:
        return own
    published, halved = models[PUBLISHED], models[PUBLISHED_FP16]
    return {
        PUBLISHED: (apart, lambda: published.run_published(turn.rows)),
        PUBLISHED_FP16: (apart, lambda: halved.run_published(turn.rows)),
        BATCHED: (apart, lambda: halved.run_batched(turn.rows)),
        PACKED_EAGER: (turn.tokens, lambda: halved.run_one_pass(feeds)),
        **own,
    }


def _time(ways: Mapping[str, Way], turn: PackedTurn, shape: Shape, qualities: int, rounds: int) -> list[FedSpeed]:
    work = count_operations([turn.conversation], ModelShape(shape.layers, shape.width, shape.vocabulary))
    passes = {PUBLISHED: len(turn.rows), PUBLISHED_FP16: len(turn.rows), BATCHED: -(-len(turn.rows) // 8)}
    return [
        FedSpeed(
            model=shape.name,
            qualities=qualities,
            way=each.name,
            passes=passes.get(each.name, 1),
            tokens=each.tokens,
            p50_ms=1000 * each.seconds,
            p99_ms=1000 * each.p99_seconds,
            operations_per_second=work / each.seconds if each.name not in passes else None,
        )
        for each in time_alternating(ways, rounds, warm_up_rounds=min(3, rounds))
    ]
