"""The service under load on one device: the encoder with 1 to 512 clients, FED at a rate. Real processes, real HTTP."""

import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from turnscore_core.inference.devices import Device
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.scorer import TokenPack, TurnToScore
from turnscore_load.address import free_port
from turnscore_models import Bundle, GraphVariant
from turnscore_wire import Turn

from turnscore_bench.gpu.bare import Feeds, best_rows_per_second, free_bytes, open_backend
from turnscore_bench.gpu.findings import Findings, Served, ServiceStart
from turnscore_bench.gpu.random_bundles import write_encoder_bundle, write_fed_bundle
from turnscore_bench.gpu.shapes import CONTEXT_TOKENS, MEASURED_QUALITIES, Scale, Shape
from turnscore_bench.gpu.stand_ins import WORDS, read_follow_ups
from turnscore_bench.harness.processes import Server, run_quietly
from turnscore_bench.harness.traffic import BenchTurn, LengthMix, Traffic
from turnscore_bench.servers.contenders import turnscore_contenders

BARE_BATCHES = (16, 64, 256)
"""Turns a batch of which the bare runtime's best is taken."""
WARM_UP_REQUESTS = 40
ADMITTED = {
    "TURNSCORE_ADMISSION__MAX_ITEMS": "65536",
    "TURNSCORE_ADMISSION__MAX_TOKENS": "4194304",
    "TURNSCORE_DEFAULT_DEADLINE_MS": "120000",
}
"""512 clients with 64 turns each are all let in: what is measured is how they are computed, not how refused."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Where and how the service runs."""

    programs: Path
    """Folder of the serving environment's `bentoml`."""
    device: Device
    output: Path
    workers: Sequence[int]

    @property
    def variant(self) -> GraphVariant:
        return "cuda-fp16" if self.device.kind == "cuda" else "fp32"

    @contextmanager
    def run(self, bundle: Bundle, workers: int, findings: Findings) -> Iterator[Server]:
        """The service on one bundle. Raises StartError where it does not become ready."""
        spec = turnscore_contenders(self.programs / "bentoml", bundle.folder, self._environment(workers))[0].server
        before, started_at, port = free_bytes(self.device), time.perf_counter(), free_port()
        folder = self.output / "service" / f"{bundle.manifest.kind}-{workers}"
        server = Server(spec.command(port), folder, spec.environment, port)
        try:
            server.wait_until_ready(spec.ready_path)
            after = free_bytes(self.device)
            taken = None if before is None or after is None else before - after
            name = str(bundle.manifest.training["model"])
            findings.service_starts.append(
                ServiceStart(
                    model=name, workers=workers, ready_seconds=time.perf_counter() - started_at, device_bytes=taken
                )
            )
            yield server
        finally:
            server.stop()

    def _environment(self, workers: int) -> dict[str, str]:
        own = {"BENTOML_HOME": str(self.output / "bentoml"), "TURNSCORE_WORKERS": str(workers), **ADMITTED}
        return {**own, "TURNSCORE_RUNTIME__DEVICE": str(self.device)}

    def drive(self, module: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """What a load generator reports on one job."""
        file = self.output / "job.json"
        file.write_text(json.dumps(job))
        answer: dict[str, Any] = json.loads(run_quietly([sys.executable, "-m", module, str(file)]))
        return answer


def serve_encoder(scale: Scale, serving: Serving, findings: Findings) -> None:
    """Turns of fixed length, one or many a request, by ever more clients; the bare runtime first."""
    bundle = write_encoder_bundle(scale.encoder, serving.variant, serving.output / "bundles" / scale.encoder.name)
    traffic = Traffic(bundle.path_of(bundle.manifest.tokenizer), bundle.manifest.token_limit)
    mixes = [
        LengthMix(name=f"{tokens} tokens", least=tokens, most=tokens, turns_factor=1) for tokens in scale.turn_tokens
    ]
    bare = {mix.name: _bare_turns_per_second(bundle, serving, traffic, mix, scale.runs) for mix in mixes}
    for workers in serving.workers:
        with serving.run(bundle, workers, findings) as server:
            for mix, size in product(mixes, scale.turns_per_request):
                crowd = _Crowd(serving=serving, port=server.port, traffic=traffic, mix=mix, turns_per_request=size)
                crowd.call(8, WARM_UP_REQUESTS * workers)
                for clients in scale.clients:
                    answer = crowd.call(clients, min(scale.requests_per_client * clients, scale.most_turns // size))
                    load = f"closed loop, {mix.name}"
                    served = _summarise(scale.encoder, load, answer, clients, size, mix.least, workers)
                    findings.served.append(replace(served, bare_turns_per_second=bare[mix.name]))


@dataclass(frozen=True, kw_only=True)
class _Crowd:
    """Clients that each send the next request when the last is answered."""

    serving: Serving
    port: int
    traffic: Traffic
    mix: LengthMix
    turns_per_request: int

    def call(self, clients: int, requests: int) -> dict[str, Any]:
        """What became of that many requests, at least one a client."""
        turns = self.traffic.turns(self.mix, max(clients, requests) * self.turns_per_request)
        parts = [turns[at : at + self.turns_per_request] for at in range(0, len(turns), self.turns_per_request)]
        bodies = [json.dumps({"items": [_item(turn) for turn in part]}) for part in parts]
        job = {"port": self.port, "path": "/v1/score_batch", "keeps_replies": False}
        return self.serving.drive("turnscore_bench.harness.load_client", {**job, "bodies": bodies, "clients": clients})


def serve_fed(scale: Scale, shape: Shape, serving: Serving, findings: Findings) -> None:
    """One turn a request with a context of its own: arriving at random at a fixed rate, and by ever more clients."""
    bundle = write_fed_bundle(shape, serving.variant, serving.output / "bundles" / shape.name)
    chance = random.Random(0)
    with serving.run(bundle, 1, findings) as server:
        for qualities in MEASURED_QUALITIES:

            def drive(module: str, count: int, qualities: int = qualities, **rest: Any) -> dict[str, Any]:
                bodies = _fed_bodies(chance, qualities, count)
                return serving.drive(module, {"port": server.port, "path": "/v1/score", "bodies": bodies, **rest})

            count = max(10, round(scale.requests_per_second * scale.paced_seconds))
            for number in (count // 4, count):  # the first to warm up
                answer = drive("turnscore_bench.gpu.paced_client", number, per_second=scale.requests_per_second)
            load = f"{scale.requests_per_second:g} requests/s at random, {qualities} qualities"
            findings.served.append(_summarise(shape, load, answer, 0, 1, CONTEXT_TOKENS, 1))
            for clients in scale.clients:
                number = max(clients, min(scale.requests_per_client * clients, scale.fed_turns))
                answer = drive("turnscore_bench.harness.load_client", number, clients=clients, keeps_replies=False)
                load = f"closed loop, {qualities} qualities"
                findings.served.append(_summarise(shape, load, answer, clients, 1, CONTEXT_TOKENS, 1))


def _item(turn: BenchTurn) -> dict[str, Any]:
    return {"context": [{"speaker": "user", "text": turn.query}], "response": turn.reply}


def _fed_bodies(chance: random.Random, qualities: int, count: int) -> list[str]:
    """Four turns of 24 words, each a token, with their separators: about CONTEXT_TOKENS."""
    asked = {"qualities": list(read_follow_ups())[:qualities]}
    bodies = []
    for _ in range(count):
        *said, response = (" ".join(chance.choices(WORDS, k=CONTEXT_TOKENS // 4 - 1)) for _ in range(4))
        context = [
            {"speaker": speaker, "text": text} for speaker, text in zip(("user", "system", "user"), said, strict=True)
        ]
        bodies.append(json.dumps({"context": context, "response": response, "options": {"fed": asked}}))
    return bodies


def _bare_turns_per_second(bundle: Bundle, serving: Serving, traffic: Traffic, mix: LengthMix, runs: int) -> float:
    """Of the rows that the service's own scorer makes of such turns."""
    backend = open_backend(bundle.path_of(bundle.manifest.graphs[serving.variant].file), serving.device)
    scorer = EngagementScorer(bundle, backend)
    turns = traffic.turns(mix, max(BARE_BATCHES))
    packs = scorer.encode([TurnToScore([Turn(speaker="user", text=each.query)], each.reply) for each in turns])
    batches = [_feeds(packs[:size]) for size in BARE_BATCHES]
    return best_rows_per_second(backend, batches, runs, axis="query_row")


def _feeds(packs: Sequence[TokenPack]) -> Feeds:
    """Two rows per turn, padded to the longest."""
    rows = [row for pack in packs for row in pack.rows]
    ids = np.zeros((len(rows), -(-max(map(len, rows)) // 8) * 8), np.int64)
    mask = np.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
        mask[place, : len(row)] = 1
    first = np.arange(0, len(rows), 2)
    return {"input_ids": ids, "attention_mask": mask, "query_row": first, "reply_row": first + 1}


def _summarise(
    shape: Shape, load: str, answer: Mapping[str, Any], clients: int, size: int, turn_tokens: int, workers: int
) -> Served:
    p50, p95, p99 = np.percentile(answer["latencies_ms"], (50, 95, 99)).tolist()
    answered = answer["answered"] * size - answer["failed_items"]
    return Served(
        model=shape.name,
        load=load,
        clients=clients,
        turns_per_request=size,
        turn_tokens=turn_tokens,
        workers=workers,
        turns_per_second=answered / answer["wall_seconds"],
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        refused=answer["refused"],
        failed=answer["failed_requests"] + answer["failed_items"],
    )
