"""The service under load on one device: the encoder with 1 to 512 clients, FED at a rate. Real processes, real HTTP."""

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from turnscore_core.inference.devices import Device
from turnscore_core.loaded_scorer import score_in_one_batch
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.fed.questions import FedBundleOptions
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_exporters.bundles import writer
from turnscore_exporters.bundles.checkpoint import write_graphs, write_rest
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import GraphChoice
from turnscore_exporters.engagement.model import CONTRACT, score_pairs
from turnscore_exporters.fed.bundle import PRECISIONS, REFERENCE_FILE, TOLERANCES, read_qualities
from turnscore_exporters.fed.model import export_graph
from turnscore_exporters.json_files import write_json
from turnscore_models.bundle import Bundle, write_bundle
from turnscore_models.manifest import GraphVariant
from turnscore_wire import Turn

from turnscore_load import gpu_models
from turnscore_load.bare_runtime import pad
from turnscore_load.generator import Job, run_elsewhere
from turnscore_load.processes import Process, started
from turnscore_load.services import service_process, wait_for_workers
from turnscore_load.traffic import ExactTraffic, LengthMix, pack

BARE_BATCHES = (16, 64, 256)  # turns a batch of which the bare runtime's best is taken
WARM_UP_REQUESTS = 40
# 512 clients with 64 turns each are all let in: what is measured is how they are computed, not how refused.
ADMITTED = {
    "TURNSCORE_ADMISSION__MAX_ITEMS": "65536",
    "TURNSCORE_ADMISSION__MAX_TOKENS": "4194304",
    "TURNSCORE_DEFAULT_DEADLINE_MS": "120000",
}
VERSION, LICENCE = "0.0.0", "none: random weights"
SOURCE = "made-up turns"


def write_encoder_bundle(shape: gpu_models.TransformerShape, variant: GraphVariant, output: Path) -> Bundle:
    """An engagement bundle; loading checks the graph against the model's values of a dozen turns."""
    model = gpu_models.build_encoder(shape)
    encoder = gpu_models.as_encoder(model, shape)
    tested = self_test_turns("engagement")
    pairs = [(turn.context[-1].text if turn.context else "", turn.response) for turn in tested]
    values = score_pairs(model, encoder, pairs)
    self_test = build_self_test(tested, values)
    choice = GraphChoice((variant,), 0.15)
    output.mkdir(parents=True)
    write_graphs(model, CONTRACT, choice, output)
    write_rest(encoder.tokenizer, values, SOURCE, self_test, output)
    if variant != "fp32":
        (output / writer.GRAPH_FILES["fp32"]).unlink()
    rest = {
        "token_limit": gpu_models.TOKEN_LIMIT,
        "training": {"model": shape.name},
        "agreement": {},
        "licence": LICENCE,
    }
    return writer.start_bundle(output, "engagement", VERSION, {variant: choice.promises()[variant]}, **rest)


def write_fed_bundle(shape: gpu_models.TransformerShape, variant: GraphVariant, output: Path, device: Device) -> Bundle:
    """A FED bundle; its self-test has the values that the device computes of the same graph."""
    graph = output / writer.GRAPH_FILES[variant]
    on_gpu = variant == "cuda-fp16"
    export_graph(
        gpu_models.build_language_model(shape), graph, torch.float16 if on_gpu else torch.float32, is_fused=on_gpu
    )
    tokenizer, eos_id = gpu_models.build_dialogue_tokenizer()
    tokenizer.save(str(output / writer.TOKENIZER_FILE), pretty=False)
    write_json(output / writer.CALIBRATION_FILE, writer.calibrate([0.0], SOURCE))
    tested, known = self_test_turns("fed")[:4], read_qualities()
    write_json(output / writer.SELF_TEST_FILE, build_self_test(tested, [None] * len(tested)))
    options = FedBundleOptions(
        qualities=known.qualities, default_qualities=tuple(known.default), eos_id=eos_id, reference=REFERENCE_FILE
    )
    zeros = np.zeros((1, len(options.qualities)))
    np.savez(output / REFERENCE_FILE, response_only=zeros, whole_sequence=zeros)
    bundle = writer.start_bundle(
        output,
        "fed",
        VERSION,
        {variant: (PRECISIONS[variant], TOLERANCES[variant])},
        token_limit=shape.positions,
        options=options.model_dump(mode="json", exclude={"own_qualities"}),
        training={"model": shape.name},
        agreement={},
        licence=LICENCE,
    )
    scorer = FedScorer(bundle, gpu_models.open_backend(graph, device))
    values = [each.value for each in score_in_one_batch(scorer, tested)]
    write_json(output / writer.SELF_TEST_FILE, build_self_test(tested, values))
    return write_bundle(output, bundle.manifest)


@dataclass(frozen=True)
class GpuServing:
    """Where and how the service runs, and what was measured. `programs` is the serving environment's folder of them."""

    programs: Path
    device: Device
    output: Path
    scale: gpu_models.Scale
    workers: Sequence[int]
    starts: list[gpu_models.Row]
    served: list[gpu_models.Row]

    @property
    def variant(self) -> GraphVariant:
        return "cuda-fp16" if self.device.kind == "cuda" else "fp32"

    @contextmanager
    def _run(self, bundle: Bundle, workers: int) -> Iterator[Process]:
        """The service on one bundle. Raises StartError where it does not become ready."""
        settings = {
            "TURNSCORE_MODELS": str(bundle.folder), "TURNSCORE_CACHE__TTL_SECONDS": "0",
            "TURNSCORE_WORKERS": str(workers), "TURNSCORE_RUNTIME__DEVICE": str(self.device), **ADMITTED,
        }  # fmt: skip
        folder = self.output / "service" / f"{bundle.manifest.kind}-{workers}"
        before, started_at = gpu_models.free_bytes(self.device), time.perf_counter()
        with started(service_process(self.programs / "bentoml", folder, settings, clean=True)) as process:
            wait_for_workers(process, workers)
            seconds, after = time.perf_counter() - started_at, gpu_models.free_bytes(self.device)
            taken = None if before is None or after is None else before - after
            model, what = str(bundle.manifest.training["model"]), f"the service, {workers} workers"
            self.starts.append({"model": model, "what": what, "ready_seconds": seconds, "device_bytes": taken})
            yield process

    def _send(self, port: int, path: str, bodies: list[str], **job: Any) -> dict[str, Any]:
        """What a load generator reports on one job."""
        return run_elsewhere(Job(port=port, path=path, bodies=bodies, **job), self.output)

    def _keep(self, model: str, load: str, done: Mapping[str, Any], size: int = 1, **more: Any) -> None:
        """Keeps one measurement."""
        p50, p95, p99 = np.percentile(done["latencies_ms"], (50, 95, 99)).tolist()
        rate, bare = done["answered"] * size / done["wall_seconds"], more.pop("bare_rate", None)
        self.served.append(
            {
                "model": model, "load": load, "turns_per_request": size, "turns_per_second": rate,
                "over_bare": bare / rate if bare and rate else None, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99,
                "refused": done["refused"], "failed": done["failed"], **more,
            }
        )  # fmt: skip

    def serve_encoder(self) -> None:
        """Turns of fixed length, one or many a request, by ever more clients; the bare runtime first."""
        scale, name = self.scale, self.scale.encoder.name
        bundle = write_encoder_bundle(scale.encoder, self.variant, self.output / "bundles" / name)
        traffic = ExactTraffic(bundle.path_of(bundle.manifest.tokenizer), bundle.manifest.token_limit)
        mixes = [LengthMix(name=f"{tokens} tokens", least=tokens, most=tokens) for tokens in scale.turn_tokens]
        bare = {mix.name: self._bare_turns_per_second(bundle, traffic, mix) for mix in mixes}
        requests = max(*scale.clients, WARM_UP_REQUESTS * max(self.workers))
        most = max(scale.most_turns, requests * max(scale.turns_per_request))
        turns = {mix.name: traffic.items(mix, most) for mix in mixes}  # no load repeats one, and nothing is cached
        for workers in self.workers:
            with self._run(bundle, workers) as server:
                for mix, size in product(mixes, scale.turns_per_request):

                    def send(clients: int, requests: int, mix: LengthMix = mix, size: int = size) -> dict[str, Any]:
                        items = turns[mix.name][: max(clients, requests) * size]
                        bodies = [json.dumps({"items": items[at : at + size]}) for at in range(0, len(items), size)]
                        return self._send(server.port, "/v1/score_batch", bodies, clients=clients)

                    send(8, WARM_UP_REQUESTS * workers)
                    for clients in scale.clients:
                        done = send(clients, min(scale.requests_per_client * clients, scale.most_turns // size))
                        self._keep(
                            name, f"closed loop, {mix.name}", done, size, clients=clients, turn_tokens=mix.least,
                            workers=workers, bare_rate=bare[mix.name],
                        )  # fmt: skip

    def serve_fed(self, shape: gpu_models.TransformerShape) -> None:
        """One turn a request, with its own context: arriving at random at a fixed rate, and by ever more clients."""
        scale, chance = self.scale, random.Random(0)
        bundle = write_fed_bundle(shape, self.variant, self.output / "bundles" / shape.name, self.device)
        common: dict[str, Any] = {"turn_tokens": gpu_models.CONTEXT_TOKENS, "workers": 1}
        with self._run(bundle, 1) as server:
            for qualities in scale.qualities:

                def send(count: int, qualities: int = qualities, **job: Any) -> dict[str, Any]:
                    return self._send(server.port, "/v1/score", _fed_bodies(chance, qualities, count), **job)

                count = max(10, round(scale.requests_per_second * scale.paced_seconds))
                send(count // 4, per_second=scale.requests_per_second)  # warms up
                done = send(count, per_second=scale.requests_per_second)
                load = f"{scale.requests_per_second:g} requests/s at random, {qualities} qualities"
                self._keep(shape.name, load, done, clients=0, **common)
                for clients in scale.clients:
                    number = max(clients, min(scale.requests_per_client * clients, scale.fed_turns))
                    done = send(number, clients=clients)
                    self._keep(shape.name, f"closed loop, {qualities} qualities", done, clients=clients, **common)

    def _bare_turns_per_second(self, bundle: Bundle, traffic: ExactTraffic, mix: LengthMix) -> float:
        """Of the rows that the service's own scorer makes of such turns."""
        backend = gpu_models.open_backend(bundle.path_of(bundle.manifest.graphs[self.variant].file), self.device)
        items = traffic.items(mix, max(BARE_BATCHES))
        asked = [TurnToScore([Turn(**turn) for turn in item["context"]], item["response"]) for item in items]
        rows = [pack.rows for pack in EngagementScorer(bundle, backend).encode(asked)]
        width = -(-max(len(row) for turn in rows for row in turn) // 8) * 8
        return gpu_models.best_turns_per_second(
            backend, [pad(rows[:size], width) for size in BARE_BATCHES], self.scale.runs
        )


def _fed_bodies(chance: random.Random, qualities: int, count: int) -> list[str]:
    """Four turns of 24 words, each a token, with their separators: about CONTEXT_TOKENS."""
    asked = {"qualities": list(gpu_models.read_follow_ups())[:qualities]}
    items = []
    for _ in range(count):
        *said, response = (
            " ".join(chance.choices(gpu_models.WORDS, k=gpu_models.CONTEXT_TOKENS // 4 - 1)) for _ in range(4)
        )
        speakers = ("user", "system", "user")
        context = [{"speaker": speaker, "text": text} for speaker, text in zip(speakers, said, strict=True)]
        items.append({"context": context, "response": response})
    return pack(items, 1, options={"fed": asked})
