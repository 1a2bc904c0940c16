"""Measures models on a GPU: the bare runtime, FED's one pass, its published way in torch, and the service.

Weights are random. Where no service is installed, `--serving ""` measures the models alone. `--tiny` on the CPU shows
that it works, and gives no figures. `--short` measures fewer sizes, each less often. What was found is written after
every part; one that is stopped by SIGTERM or Ctrl-C ends with what it has.
"""

import gc
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import distributions
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from transformers import GPT2LMHeadModel
from turnscore_core.inference.devices import Device, Machine, choose_devices
from turnscore_core.inference.onnx_backend import Backend, DeviceError
from turnscore_exporters.engagement.model import CONTRACT
from turnscore_exporters.fed.model import export_graph
from turnscore_exporters.graphs.export import export_fp32
from turnscore_exporters.graphs.fp16 import convert_fp16
from typer import Option

from turnscore_load import gpu_models
from turnscore_load.gpu_served import GpuServing
from turnscore_load.machine import describe, usable_cpus
from turnscore_load.processes import StartError
from turnscore_load.results import Check, not_run, number, table
from turnscore_load.scenario import Scenario

RUNTIME = "ONNX Runtime, fp16 graph"
PUBLISHED = "published, a pass a follow-up, torch fp32"
PUBLISHED_FP16 = "published, a pass a follow-up, torch fp16"
PACKED = "one pass, ONNX Runtime, fp16 graph"
STOPPED = "what is missing"
_PACKAGES = ("torch", "transformers", "onnx", "onnxruntime-gpu", "onnxruntime")
MODEL, LEAST_BATCH = "dialogpt-medium", 16
TURNS_PER_SECOND, FED_P99_MS, FED_RATIO, MOST_OVER_BARE = 10_000, 25.0, 20.0, 1.15


@dataclass(kw_only=True)
class Findings:
    """Everything that was found, as rows by the names of their columns, and what could not be run, with the reason."""

    device: str
    caption: str
    not_judged: str = ""  # the reason, where the aims are not
    starts: list[gpu_models.Row] = field(default_factory=list)
    encoder: list[gpu_models.Row] = field(default_factory=list)
    fed: list[gpu_models.Row] = field(default_factory=list)
    served: list[gpu_models.Row] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class GpuBench(Scenario[Findings]):
    """Measure everything that runs, and compare it with what is aimed at."""

    serving: Annotated[str, Option(help="Folder of the serving environment's programs; empty: no service.")] = ""  # type: ignore[assignment]
    device: Annotated[str, Option(help="cuda:N or cpu.")] = "cuda:0"
    tiny: Annotated[bool, Option(help="Small models and few runs: whether it works, no figures.")] = False
    short: Annotated[bool, Option(help="Fewer sizes, runs and clients: minutes instead of an hour.")] = False
    workers: Annotated[str, Option(help="Numbers of worker processes of the encoder's service.")] = "1,4"

    def measure(self) -> Findings:
        try:
            device = choose_devices(self.device, Machine()).devices[0]
        except DeviceError as error:
            raise StartError(f"{self.device} cannot be measured: {error}") from None
        graphs = self.folder / "graphs"
        for folder in (graphs, self.folder / "bundles"):
            shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
        graphs.mkdir(parents=True)
        scale = gpu_models.TINY if self.tiny else gpu_models.SHORT if self.short else gpu_models.FULL
        found = self._describe(device)
        if device.kind == "cpu":
            torch.set_num_threads(1 if self.tiny else usable_cpus())
        try:
            for shape in (scale.encoder, *scale.language_models):
                typer.echo(f"measuring {shape.name}", err=True)
                race = _Race(scale, device, graphs, found, shape)
                self._attempt(found, shape.name, race.encoder if shape is scale.encoder else race.fed)
                gc.collect()  # gives back the device memory of models that are gone, for the next and for the service
                if device.kind == "cuda":
                    torch.cuda.empty_cache()
            if self.serving:
                programs, workers = Path(self.serving).absolute(), [int(each) for each in self.workers.split(",")]
                serving = GpuServing(programs, device, self.folder, scale, workers, found.starts, found.served)
                # The aims are the medium one's; the large one's rate is its own matter.
                for shape in (scale.encoder, *scale.language_models[:2]):
                    typer.echo(f"measuring the service with {shape.name}", err=True)
                    serve = serving.serve_encoder if shape is scale.encoder else partial(serving.serve_fed, shape)
                    self._attempt(found, f"the service with {shape.name}", serve)
            else:
                found.not_run["the service"] = "--serving names no environment of it"
        except (KeyboardInterrupt, SystemExit):
            found.not_run[STOPPED] = "the run was stopped before its end"
        return found

    def _attempt(self, found: Findings, what: str, run: Callable[[], object]) -> None:
        """Runs one part, and writes what was found until then; what stops it is kept, and the next parts are run."""
        try:
            run()
        except Exception as error:  # a benchmark on an unknown machine: every reason is worth reporting
            found.not_run[what] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self.write(found)

    def _describe(self, device: Device) -> Findings:
        name = Machine().cuda_devices().gpus[device.index].name if device.kind == "cuda" else describe()
        known = {each.name: each.version for each in distributions()}
        versions = ", ".join(f"{package} {known[package]}" for package in _PACKAGES if package in known)
        caption = f"{name}; Python {platform.python_version()}, {versions}; random weights."
        reasons = ["tiny models"] * self.tiny + ["computed on the CPU"] * (device.kind == "cpu")
        return Findings(device=name, caption=caption, not_judged=" and ".join(reasons))

    def report(self, found: Findings) -> Iterator[str]:
        """What could not be run is there with the reason."""
        published = {
            (each["model"], each["qualities"]): each["p50_ms"] for each in found.fed if each["way"] == PUBLISHED
        }
        for row in found.fed:
            slow = published.get((row["model"], row["qualities"]))
            row["times_published"] = slow / row["p50_ms"] if slow else None
        yield found.caption
        yield _rows_table(
            "Served", found.served,
            "model load workers clients turns_per_request turns_per_second p50_ms:1 p95_ms:1 p99_ms:1 over_bare:2 "
            "refused failed",
        )  # fmt: skip
        columns = "model qualities way passes tokens p50_ms:2 p99_ms:2 times_published:1"
        yield _rows_table("FED, one turn with 100 context tokens", found.fed, columns)
        columns = "model way tokens rows batch_ms:2 rows_per_second"
        yield _rows_table("Encoder, rows", found.encoder, columns)
        columns = "model what graph_bytes export_seconds:1 ready_seconds:2 first_run_seconds:2 device_bytes"
        yield _rows_table("Start and memory", found.starts, columns)
        yield f"#### Not run\n\n{not_run(found.not_run)}"

    def checks(self, found: Findings) -> Iterator[Check]:
        """Every aim; only full sizes on CUDA are judged."""
        for each in judge(found):
            yield Check(each.claim, f"not judged: {found.not_judged}", None) if found.not_judged else each
        if STOPPED in found.not_run:
            yield Check("the run reached its end", "stopped", False)
        if not (found.encoder or found.fed):
            yield Check("anything was measured", "nothing", False)


@dataclass(frozen=True)
class _Race:
    """The ways to compute one model, measured in turn."""

    scale: gpu_models.Scale
    device: Device
    folder: Path
    found: Findings
    shape: gpu_models.TransformerShape

    def encoder(self) -> None:
        """Rows per second for every batch and length in the bare runtime."""
        shape, started_at = self.shape, time.perf_counter()
        fp32, fp16 = (self.folder / f"{shape.name}-{kind}.onnx" for kind in ("fp32", "fp16"))
        export_fp32(gpu_models.build_encoder(shape), CONTRACT, fp32)
        convert_fp16(fp32, fp16)
        fp32.unlink()
        first = gpu_models.encoder_feeds(16, 32, shape.vocabulary)
        backend = self._start_graph(fp16, time.perf_counter() - started_at, lambda _: first)
        for tokens, rows in product(self.scale.lengths, self.scale.batches):
            feeds = gpu_models.encoder_feeds(rows, tokens, shape.vocabulary)
            seconds = gpu_models.time_runs(partial(backend.run, feeds), self.scale.runs)
            row = {"model": shape.name, "way": RUNTIME, "rows": rows, "tokens": tokens}
            self.found.encoder.append({**row, "batch_ms": 1000 * seconds, "rows_per_second": rows / seconds})

    def _start_graph(self, graph: Path, export_seconds: float, feeds: Callable[[Backend], gpu_models.Feeds]) -> Backend:
        """Opens the graph and runs it once, with the clock and the memory watched."""
        before, started_at = gpu_models.free_bytes(self.device), time.perf_counter()
        backend = gpu_models.open_backend(graph, self.device)
        opened_at = time.perf_counter()
        backend.run(feeds(backend))
        ran_at, after = time.perf_counter(), gpu_models.free_bytes(self.device)
        self.found.starts.append(
            {
                "model": self.shape.name, "what": RUNTIME,
                "graph_bytes": sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*")),
                "export_seconds": export_seconds, "ready_seconds": opened_at - started_at,
                "first_run_seconds": ran_at - opened_at,
                "device_bytes": None if before is None or after is None else before - after,
            }
        )  # fmt: skip
        return backend

    def fed(self) -> None:
        """FED with 8 and with 18 qualities: the one pass in ONNX Runtime, and the published way in torch."""
        started_at, place = time.perf_counter(), str(self.device)
        graph = self.folder / f"{self.shape.name}-fp16.onnx"
        export_graph(gpu_models.build_language_model(self.shape), graph, torch.float16, is_fused=True)
        seconds = time.perf_counter() - started_at
        turns = {each: gpu_models.PackedTurn(each) for each in self.scale.qualities}
        backend = self._start_graph(graph, seconds, turns[self.scale.qualities[-1]].feeds)
        published: dict[str, GPT2LMHeadModel] = {}
        try:
            for way, dtype in ((PUBLISHED, torch.float32), (PUBLISHED_FP16, torch.float16)):
                published[way] = gpu_models.build_language_model(self.shape).to(place, dtype)
        except RuntimeError as error:  # without room for them the graph is measured by itself
            self.found.not_run[f"torch, {self.shape.name}"] = str(error)
        for turn in turns.values():
            apart = sum(map(len, turn.rows))
            ways = {
                name: (apart, partial(gpu_models.run_published, model, turn.rows)) for name, model in published.items()
            }
            self._time_ways({**ways, PACKED: (turn.tokens, partial(backend.run, turn.feeds(backend)))}, turn)

    def _time_ways(self, ways: Mapping[str, gpu_models.Way], turn: gpu_models.PackedTurn) -> None:
        rounds = self.scale.rounds
        for name, seconds in gpu_models.time_alternating(ways, rounds, warm_up_rounds=min(3, rounds)).items():
            p50, p99 = (1000 * each for each in np.percentile(seconds, (50, 99)).tolist())
            self.found.fed.append(
                {
                    "model": self.shape.name, "qualities": turn.qualities, "way": name,
                    "passes": 1 if name == PACKED else len(turn.rows), "tokens": ways[name][0],
                    "p50_ms": p50, "p99_ms": p99,
                }
            )  # fmt: skip


def judge(found: Findings) -> Iterator[Check]:
    """Every aim, for turns of 32 tokens in all and for turns of two rows of 32."""
    for tokens in (32, 64):
        batched = [
            each
            for each in found.served
            if each.get("over_bare") and each["turns_per_request"] >= LEAST_BATCH
            if each["turn_tokens"] == tokens and not each["failed"]
        ]
        best = max(batched, key=lambda each: float(each["turns_per_second"]), default={})
        rate, over = best.get("turns_per_second"), best.get("over_bare")
        where = " ({clients} clients, {turns_per_request} a request, {workers} workers)".format(**best) if best else ""
        kind = f"BERT-base, turns of {tokens} tokens (two rows of {tokens // 2}), {LEAST_BATCH} and more a request"
        yield _aim(f"{kind}: {TURNS_PER_SECOND:,} turns/s and more", rate, lambda each: each >= TURNS_PER_SECOND, where)
        claim = f"the same, time over the bare runtime's: {MOST_OVER_BARE}"
        yield _aim(claim, over, lambda each: each <= MOST_OVER_BARE, where, digits=2)
    most = gpu_models.FULL.qualities[-1]
    load = f"requests/s at random, {most} qualities"
    paced: gpu_models.Row = next((e for e in found.served if e["model"] == MODEL and e["load"].endswith(load)), {})
    lost = paced.get("failed", 0) + paced.get("refused", 0)
    claim = f"{MODEL}, {most} qualities, 100 context tokens, 50 requests/s: p99 under {FED_P99_MS:g} ms"
    where = " ms" + (f", {lost} not answered" if lost else "")
    yield _aim(claim, paced.get("p99_ms"), lambda each: each < FED_P99_MS and not lost, where, digits=1)
    p50_ms = {each["way"]: each["p50_ms"] for each in found.fed if (each["model"], each["qualities"]) == (MODEL, most)}
    for published in (PUBLISHED, PUBLISHED_FP16):
        ratio = p50_ms[published] / p50_ms[PACKED] if {published, PACKED} <= p50_ms.keys() else None
        claim = f"{MODEL}, {most} qualities: {FED_RATIO:g} times the way `{published}` and more"
        yield _aim(claim, ratio, lambda each: each >= FED_RATIO, digits=1)


def _aim(claim: str, value: float | None, holds: Callable[[float], bool], where: str = "", digits: int = 0) -> Check:
    if value is None:
        return Check(claim, "not measured", None)
    return Check(claim, f"{number(value, digits)}{where}", holds(value))


def _rows_table(title: str, rows: Iterable[gpu_models.Row], columns: str) -> str:
    """With a heading. A column is `name:digits`, of texts, numbers or nothing; bytes are shown in MB."""

    def cell(value: Any, name: str, digits: int) -> str:
        if isinstance(value, str):
            return value
        return f"{value / 1e6:,.1f} MB" if value is not None and name.endswith("bytes") else number(value, digits)

    pairs = [(name, int(digits or 0)) for name, _, digits in (each.partition(":") for each in columns.split())]
    cells = [[cell(row.get(name), name, digits) for name, digits in pairs] for row in rows]
    return f"#### {title}\n\n{table([name.replace('_', ' ') for name, _ in pairs], cells)}"
