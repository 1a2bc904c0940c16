"""Measures where a turn's CPU goes besides inference, by stage and line, over HTTP, gRPC and in live conversations."""

import linecache
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from turnscore_load.contenders import EngagementRows
from turnscore_load.generator import Api, Job, run_elsewhere
from turnscore_load.processes import Process, StartError, python_path, run_module
from turnscore_load.results import ScenarioResult, number, table
from turnscore_load.services import BENTOML, service_process
from turnscore_load.traffic import LENGTH_MIXES, ExactTraffic, as_grpc, pack

_K = TypeVar("_K")
_WARM_UP_TURNS = 200
_REAL_SHARE = 0.25
"""Of the turns are sent where each is computed, which takes so much longer. Chosen."""
LINES = 5
_WIDEST = 90
"""Characters of a line of code that are shown."""
_GRPC_PATH = "/turnscore.v1.TurnScorer/Score"


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to ask the service: a column of the page."""

    label: str
    api: Api = "http"
    path: str = "/v1/score"
    clients: int = 32
    turns_per_request: int = 1
    is_known: bool = False
    """Whether every turn is one that the cache in the process knows."""


WAYS = (
    Way(label="HTTP, 1 client", clients=1),
    Way(label="HTTP, 32 clients"),
    Way(label="HTTP, 16 turns per request", path="/v1/score_batch", turns_per_request=16),
    Way(label="HTTP, cached", is_known=True),
    Way(label="gRPC, 32 clients", api="grpc", path=_GRPC_PATH),
    Way(label="gRPC, cached", api="grpc", path=_GRPC_PATH, is_known=True),
    Way(label="conversations, 32", api="websocket", path="/v1/conversations"),
)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What one way of asking cost: CPU seconds of the process and of the event loop's thread, and the samples of it."""

    way: Way
    turns: int
    cpu_seconds: float
    loop_seconds: float
    samples: Sequence[tuple[str, str, int, int]]
    """Stage, file, line and count."""

    def us(self, seconds: float) -> float:
        """Microseconds per turn."""
        return 1e6 * seconds / self.turns

    def by(self, key: Callable[[tuple[str, str, int]], _K]) -> Mapping[_K, float]:
        """Microseconds per turn of the event loop's thread, by what `key` makes of stage, file and line."""
        counts: Counter[_K] = Counter()
        for stage, file, line, count in self.samples:
            counts[key((stage, file, line))] += count
        per_sample = self.us(self.loop_seconds) / max(1, sum(counts.values()))
        return {what: count * per_sample for what, count in counts.items()}


def main(
    serving: Annotated[Path, typer.Option(help="Folder of the serving environment's python.")] = BENTOML.parent,
    output: Annotated[Path, typer.Option(help="Folder for logs and jobs.")] = Path("build/profile"),
    turns: Annotated[int, typer.Option(min=100, help="Turns a measurement.")] = 4000,
    only: Annotated[str, typer.Option(help="A part of the ways' labels; all when empty.")] = "",
    real: Annotated[bool, typer.Option(help="With ONNX Runtime too.")] = True,
) -> ScenarioResult:
    """Profile a service in a process of its own."""
    rows = EngagementRows()
    parts = [f"{turns} turns a column, a quarter with ONNX Runtime."]
    for at_once in (True, False) if real else (True,):
        count = turns if at_once else int(turns * _REAL_SHARE)
        service = profiled_service(serving / "python", rows.bundle.folder, output.resolve(), at_once=at_once)
        try:
            if service.read_answer() != "ready":
                raise StartError("the profiled service did not start")
            profiles = [measure(service, way, rows.traffic, count) for way in WAYS if only in way.label]
        finally:
            service.stop()
        parts += [f"## With {'a runtime that answers at once' if at_once else 'ONNX Runtime'}", stage_table(profiles)]
        if at_once:
            parts += [part for each in profiles for part in (f"### {each.way.label}: lines", line_table(each))]
    return ScenarioResult(scenario="profile", parts=parts)


def profiled_service(python: Path, bundle: Path, folder: Path, *, at_once: bool) -> Process:
    """The started process; it writes a line once it is ready."""
    metrics = folder / "metrics"
    metrics.mkdir(parents=True, exist_ok=True)
    settings = {
        "ORT_DISABLE_TELEMETRY": "1",
        "TURNSCORE_MODELS": str(bundle),
        "PROMETHEUS_MULTIPROC_DIR": str(metrics),
        "TURNSCORE_DEFAULT_DEADLINE_MS": "600000",  # a busy machine takes its time, and is profiled all the same
        **python_path(),
    }
    like = service_process(python, folder, settings)
    words = [*run_module("turnscore_load.profiled_service", like.port)[1:], *(["--at-once"] if at_once else [])]
    process = Process([python, *words], folder, port=like.port, environment=like.environment, clean=True, talks=True)
    process.start()
    return process


def measure(service: Process, way: Way, traffic: ExactTraffic, turns: int) -> Profile:
    """Asks for fresh turns, or for the same few again and again, after a warm-up of the same kind."""

    def bodies(count: int) -> list[str]:
        items = traffic.items(LENGTH_MIXES["mixed"], -(-count // way.turns_per_request) * way.turns_per_request)
        return pack([as_grpc(item) for item in items] if way.api == "grpc" else items, way.turns_per_request)

    def send(sent: list[str]) -> None:
        port = service.grpc_port if way.api == "grpc" else service.port
        done: dict[str, Any] = run_elsewhere(
            Job(port=port, path=way.path, bodies=sent, api=way.api, clients=way.clients), service.folder
        )
        if done["answered"] != len(sent):
            raise StartError(f"{way.label}: {done['answered']} of {len(sent)} were answered: {done['first_error']}")

    warm_up = bodies(_WARM_UP_TURNS)
    send(warm_up)
    wanted = -(-turns // way.turns_per_request)
    sent = (warm_up * -(-wanted // len(warm_up)))[:wanted] if way.is_known else bodies(turns)
    service.ask("start")
    send(sent)
    return Profile(way=way, turns=len(sent) * way.turns_per_request, **service.ask("stop"))


def stage_table(profiles: Sequence[Profile]) -> str:
    """Microseconds of CPU per turn by stage, and the process's other threads."""
    from turnscore_load.profiled_service import STAGES

    by_stage = [profile.by(lambda place: place[0]) for profile in profiles]
    rows = [
        [stage, *(number(each.get(stage)) for each in by_stage)]
        for stage in STAGES
        if any(stage in each for each in by_stage)
    ]
    rows.append(["**the event loop's thread**", *(number(each.us(each.loop_seconds)) for each in profiles)])
    others = [each.us(each.cpu_seconds - each.loop_seconds) for each in profiles]
    rows.append(["**other threads**", *map(number, others)])
    return table(["CPU, us per turn", *(each.way.label for each in profiles)], rows, texts=1)


def line_table(profile: Profile) -> str:
    """The lines of ours, or of a library where none of ours called it, that took most."""
    longest = sorted(profile.by(lambda place: place).items(), key=lambda item: -item[1])[:LINES]
    rows = []
    for (stage, file, line), us in longest:
        code = linecache.getline(file, line).strip()[:_WIDEST]
        rows.append([f"`{Path(*Path(file).parts[-2:])}:{line}`", stage, f"`{code}`", number(us, 1)])
    return table(["line", "stage", "code", "us per turn"], rows, texts=3)
