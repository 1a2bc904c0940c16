"""Scorers, machines, clocks and clients that are made up."""

import asyncio
import json
import math
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import patch

import numpy as np
from prometheus_client import REGISTRY
from turnscore_core.engine import Engine
from turnscore_core.errors import InvalidRequestError
from turnscore_core.inference.devices import CudaDevices, CudaDriverError, Gpu
from turnscore_core.inference.onnx_backend import CUDA_PROVIDER, DeviceError, OnnxBuild, OutOfMemoryError
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.loaded_scorer import LoadedScorer, TokenizingPace
from turnscore_core.scorers.scorer import RawScore, Scorer, TokenPack
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import GraphSpec, Manifest, TensorSpec
from turnscore_service import metrics
from turnscore_service.scheduling.versions import CandidateVersion
from turnscore_wire import ConversationReply, TokenCount


def sample(name, **labels):
    """The number of one of this process's series; 0 for one that does not exist yet."""
    return REGISTRY.get_sample_value(f"turnscore_{name}", labels) or 0.0


class Since:
    """What this process's series grew by since this was made; `labels` are those that all of them have."""

    def __init__(self, prefix="", **labels):
        self._prefix, self._labels = prefix, labels
        metrics.write_out()
        samples = (each for family in REGISTRY.collect() for each in family.samples)
        self._before = {(each.name, frozenset(each.labels.items())): each.value for each in samples}

    def __call__(self, series, **labels):
        metrics.write_out()
        name, own = f"{self._prefix}{series}", {**self._labels, **labels}
        return sample(name, **own) - self._before.get((f"turnscore_{name}", frozenset(own.items())), 0.0)


POISON = "poison"
NOT_A_NUMBER = "not a number"


class FakeScorer(Scorer):
    """Scores a response by its length: `value` is its words / 100. Can be held, poisoned and watched."""

    KIND = "fake"
    option_limits: ClassVar[dict[str, int]] = {"known": 1}

    def __init__(self, tokenizing=None):
        self.tokenizing = tokenizing or TokenizingPace()
        self.batches = []
        self.encoded = []
        self.gate = threading.Event()
        self.gate.set()
        self.tokenizer_gate = threading.Event()
        self.tokenizer_gate.set()
        self.started = threading.Event()
        self.most_tokens = None  # padded tokens that the fake device has memory for
        self.threshold = None
        self.stand_in = False  # what its bundle says

    def read_options(self, options):
        for name in options:
            if name != "known":
                raise InvalidRequestError("no such option", field=name)
        return options

    def estimate_tokens(self, turn):
        return len(turn.response.split())

    def encode(self, turns):
        self.encoded.append(len(turns))
        assert self.tokenizer_gate.wait(120)
        if any(turn.response == "untokenizable" for turn in turns):
            raise ValueError("the tokenizer broke")
        return [
            encoded(len(turn.response.split()), mark=_mark(turn.response), place=place)
            for place, turn in enumerate(turns)
        ]

    def score(self, batch):
        self.batches.append([turn.width for turn in batch])
        self.started.set()
        assert self.gate.wait(120)
        padded = sum(len(turn.rows) for turn in batch) * max(turn.width for turn in batch)
        if self.most_tokens is not None and padded > self.most_tokens:
            raise OutOfMemoryError("the device has too little memory for this batch")
        if any(turn.rows[0][0] == 1 for turn in batch):
            raise RuntimeError("the runtime choked")
        return [RawScore(float("nan") if turn.rows[0][0] == 2 else turn.width / 100) for turn in batch]

    def counts_in_dialogue(self, turn):
        return any(each.speaker == "user" for each in turn.context)


class FakeReaction(FakeScorer):
    """A scorer of user turns: the longer a turn, the more it is `frustrated`; `pleased` is its opposite."""

    KIND = "reaction"
    speaker = "user"
    signal_thresholds: ClassVar[dict[str, float]] = {"frustrated": 0.03, "pleased": 0.97}

    def score(self, batch):
        values = [raw.value for raw in super().score(batch)]
        return [RawScore(1 - value, {"frustrated": value, "pleased": 1 - value}) for value in values]


class FakeEncoder(FakeScorer):
    """Texts of as many words have equal vectors; each word more turns a vector by half a radian."""

    KIND = "encoder"
    vector_width = 2

    def score(self, batch):
        angles = [pack.width / 2 for pack in batch]
        vectors = [np.array([math.cos(angle), math.sin(angle)], "<f4").tobytes() for angle in angles]
        scores = zip(super().score(batch), vectors, strict=True)
        return [RawScore(raw.value, vector=vector) for raw, vector in scores]


def _mark(text):
    return {POISON: 1, NOT_A_NUMBER: 2}.get(text, 0)


def encoded(width, rows=1, mark=0, place=0):
    """A pack of that many rows of that width; mark 1 makes the fake runtime fail, 2 gives NaN."""
    row = (mark, *range(10, 10 + width - 1))
    return TokenPack(rows=(row,) * rows, answers=(place,), tokens=(TokenCount(used=rows * width, dropped=0),))


def manifest_of(kind, inputs=(), outputs=(), **fields):
    """Of one graph, `graph.onnx`; `fields` stand in place of the usual ones."""
    tensor = TensorSpec(name="x", dtype="tensor(float)", shape=["rows"])
    graph = GraphSpec(
        file="graph.onnx", precision="fp32", opset=17, inputs=list(inputs) or [tensor],
        outputs=list(outputs) or [tensor], parity_tolerance=1e-4, parity_measured={},
    )  # fmt: skip
    usual = {
        "name": kind, "version": "0.0.1", "kind": kind, "graphs": {"fp32": graph}, "tokenizer": "tokenizer.json",
        "calibration": "calibration.json", "self_test": "self_test.json", "token_limit": 128, "training": {},
        "agreement": {}, "licence": "Apache-2.0",
    }  # fmt: skip
    return Manifest(**{**usual, **fields})


def loader_of(loaded):
    """A runtime's loader, which has loaded these."""
    return SimpleNamespace(load_all=lambda: loaded, kept=VectorStore(0))


def candidates_are(versions):
    """Runtimes that start in its `with` load these versions, whatever their settings name."""
    return patch("turnscore_service.lifecycle.runtime.load_versions", lambda *_: versions)


def loaded_fake(scorer, name="fake", version="1.0.0"):
    """The scorer as if it had been loaded from a bundle, with percentile = 100 x value; a loaded one as it is."""
    if isinstance(scorer, LoadedScorer):
        return scorer
    manifest = manifest_of(name, version=version, stand_in=getattr(scorer, "stand_in", False))
    bundle = Bundle(folder=Path("nowhere"), manifest=manifest)
    tokenizing = getattr(scorer, "tokenizing", TokenizingPace())
    threshold = getattr(scorer, "threshold", None)
    percentiles = tuple(index / 100 for index in range(101))
    return LoadedScorer(
        scorer=scorer, bundle=bundle, variant="fp32", percentiles=percentiles, tokenizing=tokenizing,
        threshold=threshold,
    )  # fmt: skip


def engine_of(loaded):
    """What answers requests in this process with these scorers."""
    return Engine((), load=lambda _: loaded)


def candidate_version(scorer, share=1.0, name="fake", version="1.1.0"):
    """The scorer as another version of that kind, for a shadow or a split."""
    loaded = loaded_fake(scorer, name, version)
    return CandidateVersion(replace(loaded, alias=loaded.bundle.manifest.reference), share)


def say(socket, speaker, text):
    """Says a turn and returns the service's next message."""
    socket.send(json.dumps({"turn": {"speaker": speaker, "text": text}}))
    return hear(socket)


def hear(socket):
    """The service's next message."""
    return ConversationReply.model_validate_json(socket.recv(60))


class Threaded:
    """Says its turns in a thread, so that the transport's event loop goes on."""

    def __init__(self, client, given):
        self._client = client
        self._conversation = client.conversation(**given)

    async def __aenter__(self):
        await asyncio.to_thread(self._conversation.__enter__)
        return self

    async def __aexit__(self, *_):
        await asyncio.to_thread(self._conversation.close)
        self._client.close()

    async def say(self, *args, **kwargs):
        return await asyncio.to_thread(self._conversation.say, *args, **kwargs)

    async def say_messages(self, *args, **kwargs):
        return await asyncio.to_thread(self._conversation.say_messages, *args, **kwargs)

    def __getattr__(self, name):
        return getattr(self._conversation, name)


class ManualClock:
    """Seconds since nothing in particular."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


CPU_BUILD = OnnxBuild(
    version="1.31.1", packages=("onnxruntime",), providers=("CPUExecutionProvider",), cuda_version=None
)
GPU_BUILD = OnnxBuild(
    version="1.31.1", packages=("onnxruntime-gpu",),
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"), cuda_version=(13, 0),
)  # fmt: skip


@dataclass
class FakeMachine:
    """By default a machine with two devices on which everything works."""

    installed: OnnxBuild | DeviceError = GPU_BUILD
    driver: str | None = None  # what the driver's library says when it cannot be used; None where it can.
    driver_cuda: tuple[int, int] = (13, 1)
    devices: int = 2
    missing: str | None = None  # the library that CUDA needs and that cannot be loaded
    opening: str | None = None  # what the runtime raises when a session is opened
    falls_back: bool = False
    free: int | None = 20 << 30
    opened: list[int] = field(default_factory=list)

    @property
    def build(self):
        if isinstance(self.installed, DeviceError):
            raise self.installed
        return self.installed

    def cuda_devices(self):
        if self.driver is not None:
            raise CudaDriverError(self.driver)
        gpus = tuple(
            Gpu(index=index, name="Made-Up 9000", memory_bytes=24 << 30, compute=(9, 0))
            for index in range(self.devices)
        )
        return CudaDevices(self.driver_cuda, gpus)

    def free_bytes(self, index):
        if self.free is None:
            raise CudaDriverError("the driver does not say")
        return self.free

    def missing_library(self):
        return self.missing

    def open_providers(self, index):
        self.opened.append(index)
        if self.opening is not None:
            raise RuntimeError(self.opening)
        own = () if self.falls_back else (CUDA_PROVIDER,)
        return (*own, "CPUExecutionProvider")
