"""Measures models on a GPU: the bare runtime, torch eager and compiled, FED's ways, and the service under load.

Weights are random. Where no service is installed, `--serving ""` measures the models alone. `--tiny` on the CPU shows
that it works, and gives no figures.
"""

import gc
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from turnscore_core.inference.devices import Device, Machine, choose_devices
from turnscore_core.inference.onnx_backend import Backend, DeviceError
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree
from turnscore_exporters.engagement.model import CONTRACT
from turnscore_exporters.fed.model import export_graph
from turnscore_exporters.graphs.export import export_fp32
from turnscore_exporters.graphs.fp16 import convert_fp16

from turnscore_load.fed_ways import ModelShape, TorchFed, Way, count_operations, draw_context, time_alternating
from turnscore_load.gpu_models import (
    CONTEXT_TOKENS,
    FULL,
    MEASURED_QUALITIES,
    TINY,
    Feeds,
    Scale,
    TransformerShape,
    build_dialogue_tokenizer,
    build_encoder,
    build_language_model,
    encode_follow_ups,
    encoder_feeds,
    free_bytes,
    open_backend,
    time_runs,
)  # fmt: skip
from turnscore_load.machine import describe, usable_cpus
from turnscore_load.processes import StartError
from turnscore_load.results import Check, ScenarioResult, number, table

RUNTIME = "ONNX Runtime, fp16 graph"
EAGER, COMPILED = "torch eager, fp16", "torch.compile, fp16"
PUBLISHED = "published, a pass a follow-up, torch fp32"
PUBLISHED_FP16 = "published, a pass a follow-up, torch fp16"
BATCHED = "published, 8 follow-ups a pass, torch fp16"
PACKED = "one pass, ONNX Runtime, fp16 graph"
PACKED_EAGER = "one pass, torch eager, fp16"
PACKED_COMPILED = "one pass, torch.compile, fp16"
_PACKAGES = ("torch", "transformers", "onnx", "onnxruntime-gpu", "onnxruntime")
# Specified: NVIDIA's data sheets, dense fp16 and bf16 with tensor cores; the longest name that fits counts.
NOMINAL = {
    "H200": 989e12, "H100": 989e12, "H100 PCIe": 756e12, "H100 NVL": 835e12, "A100": 312e12, "A30": 165e12,
    "A10": 125e12, "L40S": 362e12, "L4": 121e12, "V100": 125e12, "T4": 65e12,
}  # fmt: skip
_MATMULS = 4
"""Between two looks at the clock."""
MODEL, LEAST_BATCH = "dialogpt-medium", 16
TURNS_PER_SECOND, FED_P99_MS, FED_RATIO, MOST_OVER_BARE = 10_000, 25.0, 20.0, 1.15

Row = dict[str, Any]


@dataclass(kw_only=True)
class Findings:
    """Everything that was found, as rows by the names of their columns, and what could not be run, with the reason."""

    conditions: dict[str, Any] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    """Operations per second of matmuls: measured by type, and `nominal` where the device is known."""
    starts: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    fed: list[Row] = field(default_factory=list)
    service_starts: list[Row] = field(default_factory=list)
    served: list[Row] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)

    def attempt(self, what: str, run: Callable[[], object]) -> None:
        """Runs one part; what stops it is kept as the reason, and the parts that follow are run."""
        try:
            run()
        except Exception as error:  # a benchmark on an unknown machine: every reason is worth reporting
            self.not_run[what] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main(
    device: Annotated[str, typer.Option(help="cuda:N or cpu.")] = "cuda:0",
    tiny: Annotated[bool, typer.Option(help="Small models and few runs: whether it works, no figures.")] = False,
    output: Annotated[Path, typer.Option(help="Folder for graphs, bundles and logs.")] = Path("build/bench-gpu"),
    models: Annotated[str, typer.Option(help="Of the models, by commas; all when empty.")] = "",
    serving: Annotated[str, typer.Option(help="Folder of the serving environment's bentoml; empty: no service.")] = "",
    workers: Annotated[str, typer.Option(help="Numbers of worker processes of the encoder's service.")] = "1,4",
    compiles: Annotated[bool, typer.Option("--compile/--no-compile", help="With torch.compile.")] = True,
) -> ScenarioResult:
    """Measure everything that runs, and compare it with what is aimed at."""
    try:
        chosen = choose_devices(device, Machine()).devices[0]
    except DeviceError as error:
        raise StartError(f"{device} cannot be measured: {error}") from None
    output = output.resolve()
    graphs = output / "graphs"
    for folder in (graphs, output / "bundles"):
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run
    graphs.mkdir(parents=True)
    scale, found = TINY if tiny else FULL, Findings(conditions=_conditions(chosen, is_tiny=tiny))
    if chosen.kind == "cpu":
        torch.set_num_threads(1 if tiny else usable_cpus())
    wanted = [each for each in (scale.encoder, *scale.language_models) if not models or each.name in models.split(",")]
    find_peaks(found, chosen, scale.matmul)
    for shape in wanted:
        typer.echo(f"measuring {shape.name}", err=True)
        race = race_encoder if shape is scale.encoder else partial(race_fed, shape=shape)
        found.attempt(shape.name, partial(race, scale, chosen, graphs, found, compiles=compiles))
        gc.collect()  # gives back the device memory of models that are gone, for the next one and for the service
        if chosen.kind == "cuda":
            torch.cuda.empty_cache()
    if serving:
        numbers = [int(each) for each in workers.split(",")]
        _serve(scale, wanted, chosen, Path(serving).absolute(), output, numbers, found)
    else:
        found.not_run["the service"] = "--serving names no environment of it"
    checks = judge(found)
    if not (found.rows or found.fed):
        checks.append(Check("anything was measured", "nothing", False))
    return ScenarioResult(scenario="gpu", parts=report(found), checks=checks, data=found)


def _conditions(device: Device, *, is_tiny: bool) -> dict[str, Any]:
    host = describe()
    name = Machine().cuda_devices().gpus[device.index].name if device.kind == "cuda" else host
    versions = ", ".join(f"{package} {found}" for package in _PACKAGES if (found := _version(package)))
    caption = f"{name}; Python {platform.python_version()}, {versions}; random weights."
    reasons = ["tiny models"] * is_tiny + ["computed on the CPU"] * (device.kind == "cpu")
    not_judged = {"not_judged": " and ".join(reasons)} if reasons else {}
    return {"device": name, "versions": versions, "caption": caption, **not_judged}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def find_peaks(found: Findings, device: Device, size: int) -> None:
    """How many operations per second the device reaches in one large matmul, and what its maker promises."""

    def measure(dtype: torch.dtype) -> None:
        left, right = (torch.randn(size, size, device=str(device)).to(dtype) for _ in range(2))

        def run() -> None:
            for _ in range(_MATMULS):
                torch.matmul(left, right)
            if device.kind == "cuda":
                torch.cuda.synchronize(device.index)

        found.peaks[str(dtype).removeprefix("torch.")] = _MATMULS * 2 * size**3 / time_runs(run, runs=10)

    for dtype in (torch.float16, torch.bfloat16):
        found.attempt(f"matmul in {dtype}", partial(measure, dtype))
    name = str(found.conditions["device"])
    if (nominal := nominal_peak(name)) is None:
        found.not_run["nominal peak"] = f"no data sheet is known for {name}"
    else:
        found.peaks["nominal"] = nominal


def nominal_peak(name: str) -> float | None:
    """Operations per second by the maker's data sheet; None for a device that is not known."""
    words = f" {name} ".replace("-", " ")
    known = [each for each in NOMINAL if f" {each} " in words]
    return NOMINAL[max(known, key=len)] if known else None


def _start_graph(
    model: str, graph: Path, export_seconds: float, device: Device, feeds: Callable[[Backend], Feeds], found: Findings
) -> Backend:
    """Opens the graph and runs it once, with the clock and the memory watched."""
    before, started_at = free_bytes(device), time.perf_counter()
    backend = open_backend(graph, device)
    opened_at = time.perf_counter()
    backend.run(feeds(backend))
    ran_at, after = time.perf_counter(), free_bytes(device)
    found.starts.append(
        {
            "model": model, "graph_bytes": sum(path.stat().st_size for path in graph.parent.glob(f"{graph.name}*")),
            "export_seconds": export_seconds, "open_seconds": opened_at - started_at,
            "first_run_seconds": ran_at - opened_at,
            "device_bytes": None if before is None or after is None else before - after,
        }
    )  # fmt: skip
    return backend


def race_encoder(scale: Scale, device: Device, folder: Path, found: Findings, *, compiles: bool) -> None:
    """The encoder's rows per second for every batch and length: the bare runtime, torch eager and compiled."""
    shape, place = scale.encoder, str(device)

    def keep(way: str, rows: int, tokens: int, run: Callable[[], object]) -> None:
        seconds = time_runs(run, scale.runs)
        rate = rows / seconds
        found.rows.append(
            {
                "model": shape.name, "way": way, "rows": rows, "tokens": tokens, "batch_ms": 1000 * seconds,
                "rows_per_second": rate, "operations_per_second": rate * shape.row_operations(tokens),
            }
        )  # fmt: skip

    def run_bare() -> None:
        started_at = time.perf_counter()
        fp32, fp16 = folder / f"{shape.name}-fp32.onnx", folder / f"{shape.name}-fp16.onnx"
        export_fp32(build_encoder(shape), CONTRACT, fp32)
        convert_fp16(fp32, fp16)
        fp32.unlink()
        seconds = time.perf_counter() - started_at
        first = encoder_feeds(16, 32, shape.vocabulary)
        backend = _start_graph(shape.name, fp16, seconds, device, lambda _: first, found)
        for tokens in scale.lengths:
            for rows in scale.batches:
                keep(RUNTIME, rows, tokens, partial(backend.run, encoder_feeds(rows, tokens, shape.vocabulary)))

    def run_torch(way: str) -> None:
        """The compiled model is measured for each length at the largest batch alone: every shape is compiled again."""
        model = build_encoder(shape, attention="sdpa").to(place)
        model.encoder.half()
        run = torch.compile(model, dynamic=False) if way == COMPILED else model
        with torch.inference_mode():
            for tokens in scale.lengths:
                for rows in scale.batches[-1:] if way == COMPILED else scale.batches:
                    feeds = encoder_feeds(rows, tokens, shape.vocabulary)
                    keep(way, rows, tokens, partial(_run_model, run, feeds, place))

    found.attempt("bare runtime of the encoder", run_bare)
    found.attempt("torch eager, encoder", partial(run_torch, EAGER))
    if compiles:
        found.attempt("torch.compile, encoder", partial(run_torch, COMPILED))
    else:
        found.not_run["torch.compile, encoder"] = "left out by --no-compile"


def _run_model(model: Callable[..., torch.Tensor], feeds: Mapping[str, object], place: str) -> torch.Tensor:
    return model(**{name: torch.as_tensor(values).to(place) for name, values in feeds.items()}).cpu()


class PackedTurn:
    """One turn of CONTEXT_TOKENS tokens, and the follow-ups of so many qualities after it."""

    def __init__(self, qualities: int) -> None:
        tokenizer, self._eos_id = build_dialogue_tokenizer()
        context = draw_context(np.random.default_rng(0), CONTEXT_TOKENS, self._eos_id)
        follow_ups = encode_follow_ups(tokenizer, qualities)
        self.rows = [[*context, *each] for each in follow_ups]
        tree = build_tree([list(each) for each in dict.fromkeys(map(tuple, follow_ups))])
        # The published way computes the losses of the context too.
        self.conversation = Conversation(tuple(context), (Branch(len(context), (), tree),), with_context=True)
        self.tokens = FedBatch([self.conversation], self._eos_id).fed_tokens

    def feeds(self, backend: Backend) -> Feeds:
        """The inputs of the one pass, as wide as the runtime wants them."""
        return FedBatch([self.conversation], self._eos_id, backend.round_width).feeds()


def race_fed(
    scale: Scale, device: Device, folder: Path, found: Findings, *, shape: TransformerShape, compiles: bool
) -> None:
    """FED with 8 and with 18 qualities: the one pass in ONNX Runtime and in torch, and the published way."""
    started_at, place = time.perf_counter(), str(device)
    graph = folder / f"{shape.name}-fp16.onnx"
    export_graph(build_language_model(shape), graph, torch.float16, is_fused=True)
    seconds = time.perf_counter() - started_at
    turns = {each: PackedTurn(each) for each in MEASURED_QUALITIES}
    backend = _start_graph(shape.name, graph, seconds, device, turns[MEASURED_QUALITIES[-1]].feeds, found)
    models: dict[str, TorchFed] = {}  # without them the graph is measured alone

    def load_torch() -> None:
        for way, dtype in ((PUBLISHED, torch.float32), (PUBLISHED_FP16, torch.float16)):
            models[way] = TorchFed(build_language_model(shape), place, dtype)

    def run_compiled() -> None:
        """Apart from the others, so that a compiler that fails leaves their figures."""
        model = TorchFed(build_language_model(shape), place, torch.float16)
        model.compile()
        for qualities, turn in turns.items():
            way: Way = (turn.tokens, partial(model.run_one_pass, turn.feeds(backend)))
            found.fed += _time({PACKED_COMPILED: way}, turn, shape, qualities, scale.rounds)

    found.attempt(f"torch, {shape.name}", load_torch)
    for qualities, turn in turns.items():
        feeds, apart = turn.feeds(backend), sum(map(len, turn.rows))
        ways: dict[str, Way] = {PACKED: (turn.tokens, partial(backend.run, feeds))}
        if len(models) == 2:
            halved = models[PUBLISHED_FP16]
            ways = {
                PUBLISHED: (apart, partial(models[PUBLISHED].run_published, turn.rows)),
                PUBLISHED_FP16: (apart, partial(halved.run_published, turn.rows)),
                BATCHED: (apart, partial(halved.run_batched, turn.rows)),
                PACKED_EAGER: (turn.tokens, partial(halved.run_one_pass, feeds)),
                **ways,
            }
        found.fed += _time(ways, turn, shape, qualities, scale.rounds)
    if compiles:
        found.attempt(f"torch.compile, {shape.name}", run_compiled)
    else:
        found.not_run[f"torch.compile, {shape.name}"] = "left out by --no-compile"


def _time(ways: Mapping[str, Way], turn: PackedTurn, shape: TransformerShape, qualities: int, rounds: int) -> list[Row]:
    work = count_operations([turn.conversation], ModelShape(shape.layers, shape.width, shape.vocabulary))
    passes = {PUBLISHED: len(turn.rows), PUBLISHED_FP16: len(turn.rows), BATCHED: -(-len(turn.rows) // 8)}
    return [
        {
            "model": shape.name, "qualities": qualities, "way": each.name, "passes": passes.get(each.name, 1),
            "tokens": each.tokens, "p50_ms": 1000 * each.seconds, "p99_ms": 1000 * each.p99_seconds,
            "operations_per_second": None if each.name in passes else work / each.seconds,
        }
        for each in time_alternating(ways, rounds, warm_up_rounds=min(3, rounds))
    ]  # fmt: skip


def _serve(
    scale: Scale, wanted: Sequence[TransformerShape], device: Device, programs: Path, output: Path,
    workers: Sequence[int], found: Findings,
) -> None:  # fmt: skip
    try:
        from turnscore_load.gpu_served import GpuServing, serve_encoder, serve_fed
    except ImportError as error:
        found.not_run["the service"] = f"turnscore is not installed: {error}"
        return
    serving = GpuServing(
        programs=programs, device=device, output=output, workers=workers, starts=found.service_starts,
        served=found.served,
    )  # fmt: skip
    runs: dict[str, Callable[[], object]] = {scale.encoder.name: partial(serve_encoder, scale, serving)}
    for shape in scale.language_models[:2]:  # the aims are the medium one's; the large one's rate is its own matter
        runs[shape.name] = partial(serve_fed, scale, shape, serving)
    for name, run in runs.items():
        if name in [shape.name for shape in wanted]:
            typer.echo(f"measuring the service with {name}", err=True)
            found.attempt(f"the service with {name}", run)


def judge(found: Findings) -> list[Check]:
    """Every aim, for turns of 32 tokens in all and for turns of two rows of 32; only full sizes on CUDA are judged."""
    reason = found.conditions.get("not_judged")
    of = Findings() if reason else found
    checks = [check for tokens in (32, 64) for check in _encoder_checks(of.served, tokens)]
    checks += [_latency_check(of.served), *(_ratio_check(of.fed, way) for way in (PUBLISHED, PUBLISHED_FP16))]
    return [Check(each.claim, f"not judged: {reason}", None) for each in checks] if reason else checks


def _encoder_checks(served: Iterable[Row], tokens: int) -> list[Check]:
    batched = [
        each
        for each in served
        if each.get("over_bare") and each["turns_per_request"] >= LEAST_BATCH
        if each["turn_tokens"] == tokens and not each["failed"]
    ]
    best = max(batched, key=lambda each: float(each["turns_per_second"]), default=None)
    kind = f"BERT-base, turns of {tokens} tokens (two rows of {tokens // 2}), {LEAST_BATCH} and more a request"
    claims = (
        f"{kind}: {TURNS_PER_SECOND:,} turns/s and more",
        f"the same, time over the bare runtime's: {MOST_OVER_BARE}",
    )
    if best is None:
        return [_missing(claim) for claim in claims]
    where = f"{best['clients']} clients, {best['turns_per_request']} a request, {best['workers']} workers"
    rate, over = best["turns_per_second"], best["over_bare"]
    return [
        Check(claims[0], f"{rate:,.0f} ({where})", rate >= TURNS_PER_SECOND),
        Check(claims[1], f"{over:.2f} ({where})", over <= MOST_OVER_BARE),
    ]


def _latency_check(served: Iterable[Row]) -> Check:
    wanted = f"requests/s at random, {MEASURED_QUALITIES[-1]} qualities"
    found = next((each for each in served if each["model"] == MODEL and each["load"].endswith(wanted)), None)
    asked = f"{MEASURED_QUALITIES[-1]} qualities, 100 context tokens, 50 requests/s"
    claim = f"{MODEL}, {asked}: p99 under {FED_P99_MS:g} ms"
    if found is None:
        return _missing(claim)
    count = found["failed"] + found["refused"]
    lost = f", {count} not answered" if count else ""
    return Check(claim, f"{found['p99_ms']:.1f} ms{lost}", found["p99_ms"] < FED_P99_MS and not lost)


def _ratio_check(fed: Iterable[Row], published: str) -> Check:
    most = MEASURED_QUALITIES[-1]
    claim = f"{MODEL}, {most} qualities: {FED_RATIO:g} times the way `{published}` and more"
    found = {each["way"]: each["p50_ms"] for each in fed if (each["model"], each["qualities"]) == (MODEL, most)}
    if published not in found or PACKED not in found:
        return _missing(claim)
    ratio = found[published] / found[PACKED]
    return Check(claim, f"{ratio:.1f}", ratio >= FED_RATIO)


def _missing(claim: str) -> Check:
    return Check(claim, "not measured", None)


Column = tuple[str, int, float] | Callable[[Row], str]
"""The name in a row, digits after the point, and by what it is divided."""
_MODEL: Mapping[str, Column] = {"model": ("model", 0, 1)}
_SERVED: Mapping[str, Column] = {
    **_MODEL, "load": ("load", 0, 1), "workers": ("workers", 0, 1), "clients": ("clients", 0, 1),
    "turns per request": ("turns_per_request", 0, 1), "turns/s": ("turns_per_second", 0, 1), "p50 ms": ("p50_ms", 1, 1),
    "p95 ms": ("p95_ms", 1, 1), "p99 ms": ("p99_ms", 1, 1), "over bare": ("over_bare", 2, 1),
    "refused": ("refused", 0, 1), "failed": ("failed", 0, 1),
}  # fmt: skip
_FED: Mapping[str, Column] = {
    **_MODEL, "qualities": ("qualities", 0, 1), "way": ("way", 0, 1), "passes": ("passes", 0, 1),
    "tokens": ("tokens", 0, 1), "p50 ms": ("p50_ms", 2, 1), "p99 ms": ("p99_ms", 2, 1),
    "times the published way": ("times", 1, 1),
}  # fmt: skip
_ENCODER: Mapping[str, Column] = {
    **_MODEL, "way": ("way", 0, 1), "tokens": ("tokens", 0, 1), "rows per batch": ("rows", 0, 1),
    "ms": ("batch_ms", 2, 1), "rows/s": ("rows_per_second", 0, 1),
}  # fmt: skip
_START: Mapping[str, Column] = {
    **_MODEL, "what": ("what", 0, 1), "graph MB": ("graph_bytes", 1, 1e6), "export s": ("export_seconds", 1, 1),
    "until ready s": ("open_seconds", 2, 1), "first run s": ("first_run_seconds", 2, 1),
    "device memory MB": ("device_bytes", 1, 1e6),
}  # fmt: skip


def report(found: Findings) -> list[str]:
    """The parts of the page; what could not be run is there with the reason."""

    def of_peak(row: Row) -> str:
        peak, rate = found.peaks.get("float16"), row["operations_per_second"]
        return "-" if rate is None or not peak else f"{100 * rate / peak:.1f} %"

    published = {(each["model"], each["qualities"]): each["p50_ms"] for each in found.fed if each["way"] == PUBLISHED}
    fed = [
        {
            **each,
            "times": slow / each["p50_ms"] if (slow := published.get((each["model"], each["qualities"]))) else None,
        }
        for each in found.fed
    ]
    starts = [{**each, "what": PACKED.partition(", ")[2]} for each in found.starts]
    starts += [
        {**each, "what": f"the service, {each['workers']} workers", "open_seconds": each["ready_seconds"]}
        for each in found.service_starts
    ]
    peaks = [[name, f"{each / 1e12:,.1f}"] for name, each in found.peaks.items()]
    not_run = [f"- {what}: `{why.replace('`', chr(39))}`" for what, why in found.not_run.items()]
    return [
        str(found.conditions.get("caption", "")),
        "#### Served", _rows_table(_SERVED, found.served),
        "#### FED, one turn with 100 context tokens", _rows_table({**_FED, "of peak": of_peak}, fed),
        "#### Encoder, rows", _rows_table({**_ENCODER, "of peak": of_peak}, found.rows),
        "#### Start and memory", _rows_table(_START, starts),
        "#### Peak", table(["matmul", "TFLOP/s"], peaks, texts=1),
        "*Of peak* is a share of the measured fp16 matmul.",
        "#### Not run", "\n".join(not_run) or "Everything was run.",
    ]  # fmt: skip


def _rows_table(columns: Mapping[str, Column], rows: Iterable[Row]) -> str:
    """A column of texts, numbers or what a function makes of the row, by its head."""

    def cell(row: Row, column: Column) -> str:
        if callable(column):
            return column(row)
        name, digits, scale = column
        value = row.get(name)
        return value if isinstance(value, str) else number(None if value is None else value / scale, digits)

    return table(list(columns), [[cell(row, column) for column in columns.values()] for row in rows])
