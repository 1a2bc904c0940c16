"""The servers that `bench` compares, and how each is started, asked and checked: turnscore's APIs, and plain BentoML.

BentoML serves the same graph and tokenizer, in a virtual environment of its own, made below the output folder.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_models.manifest import GraphVariant
from turnscore_wire import Turn

from turnscore_load.bare_runtime import Rows
from turnscore_load.generator import Api
from turnscore_load.machine import LOOPBACK, free_port
from turnscore_load.processes import Process, python_path, run_module, run_quietly
from turnscore_load.traffic import ExactTraffic, Item, as_grpc, pack

VARIANT: GraphVariant = "cpu-int8"
_BENTOML = ("bentoml==1.4.39", *(f"{name}=={version(name)}" for name in ("onnxruntime", "tokenizers")))
VERSIONS = ", ".join(each.replace("==", " ") for each in _BENTOML)
_SERVERS = Path(__file__).parent / "foreign"


class EngagementRows:
    """Makes of turns the rows that the service's scorer makes of them."""

    def __init__(self) -> None:
        """Of the starter bundle. Raises BundleError where it is refused."""
        self.bundle = read_bundle(next(folder for folder in starter_bundles() if folder.name == "engagement"))
        scorer = load_scorer(self.bundle, VARIANT, threads=1).scorer
        assert isinstance(scorer, EngagementScorer)
        self._scorer = scorer
        self.graph = self.bundle.path_of(self.bundle.manifest.graphs[VARIANT].file)
        self.tokenizer = self.bundle.path_of(self.bundle.manifest.tokenizer)
        self.traffic = ExactTraffic(self.tokenizer, self.bundle.manifest.token_limit)
        # No text comes twice: switching the cache off removes any doubt.
        self.settings = {"TURNSCORE_MODELS": str(self.bundle.folder), "TURNSCORE_CACHE__TTL_SECONDS": "0"}

    def of(self, items: Sequence[Item]) -> list[Rows]:
        """The rows of each turn, special tokens included."""
        asked = [TurnToScore([Turn(**turn) for turn in item["context"]], item["response"]) for item in items]
        return [pack.rows for pack in self._scorer.encode(asked)]


class BareProcess:
    """The process of `bare_runtime`, in the service's environment, so that it has the service's ONNX Runtime."""

    def __init__(self, python: Path, rows: EngagementRows, cpus: int, folder: Path) -> None:
        self._rows, self._turns_file = rows, folder / "turns.json"
        command = [python, *run_module("turnscore_load.bare_runtime", rows.graph, cpus)[1:]]
        self.process = Process(command, folder, environment=python_path(), talks=True)
        self.process.start()

    def order(self, job: str, mix: str, items: Sequence[Item]) -> dict[str, Any]:
        """What `bare_runtime` answers to the job. Raises StartError where it has ended."""
        self._turns_file.write_text(json.dumps(self._rows.of(items)))
        answer: dict[str, Any] = self.process.ask({"job": job, "mix": mix, "turns": str(self._turns_file)})
        return answer


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to ask a server; several may share one. To add a server, make one of these for it."""

    key: str
    label: str
    server: Process
    path: str
    body: Callable[[Sequence[Item]], str]  # what is sent as JSON for the turns of one request
    read: Callable[[Any], Sequence[float]]  # the numbers in one reply, parsed from JSON
    turns_per_request: int = 1
    api: Api = "foreign"
    # Makes the server's environment and its model; raises StartError where it cannot.
    prepare: Callable[[], None] = field(default=lambda: None)

    @property
    def port(self) -> int:
        return self.server.grpc_port if self.api == "grpc" else self.server.port


def turnscore_contenders(server: Process) -> list[Contender]:
    """turnscore as it comes but for the cache: turn by turn, in batches of 16, and over gRPC."""
    single = Contender(
        key="turnscore",
        label="turnscore",
        server=server,
        path="/v1/score",
        body=lambda items: pack(items, 1)[0],
        read=lambda reply: [float(reply["scores"]["engagement"]["value"])],
        api="http",
    )
    batch = replace(
        single,
        key="turnscore-16",
        label="turnscore, 16 turns per request",
        path="/v1/score_batch",
        body=lambda items: json.dumps({"items": list(items)}),
        read=lambda reply: [float(each["scores"]["engagement"]["value"]) for each in reply["results"]],
        turns_per_request=16,
    )
    over_grpc = replace(
        single,
        key="turnscore-grpc",
        label="turnscore, gRPC",
        path="/turnscore.v1.TurnScorer/Score",
        body=lambda items: json.dumps(as_grpc(items[0])),
        api="grpc",
    )
    return [single, batch, over_grpc]


def bentoml_contenders(output: Path, rows: EngagementRows) -> list[Contender]:
    """A plain BentoML service as it comes, and without its access log and tracing."""
    folder = output / "environments" / "bentoml"
    files = {"BENCH_GRAPH": str(rows.graph), "BENCH_TOKENIZER": str(rows.tokenizer)}
    own = {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(output / "bentoml"), **files}
    words = [folder / "bin" / "bentoml", "serve", "bentoml_service:Engagement", "--working-dir", _SERVERS]

    def server(key: str, **more: str) -> Process:
        port, environment = free_port(), {**own, **more}
        command = [*words, "--host", LOOPBACK, "--port", port]
        at = output / "servers" / key
        return Process(command, at, port=port, environment=environment, ready="/readyz", clean=True)

    plain = Contender(
        key="bentoml",
        label="plain BentoML",
        server=server("bentoml"),
        path="/score",
        body=lambda items: json.dumps({"turns": [_texts_of(item) for item in items]}),
        read=lambda reply: [float(each) for each in reply],
        prepare=lambda: _make_environment(folder),
    )
    label = "plain BentoML, no logs and tracing"
    return [plain, replace(plain, key="bentoml-quiet", label=label, server=server("bentoml-quiet", BENCH_QUIET="1"))]


def _texts_of(item: Item) -> dict[str, str]:
    return {"query": item["context"][-1]["text"], "reply": item["response"]}


def _make_environment(folder: Path) -> None:
    """Makes BentoML's, unless the one there was made of the same requirements. Raises StartError."""
    wanted, stamp = "\n".join(_BENTOML), folder / "requirements-met.txt"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    run_quietly([sys.executable, "-m", "venv", "--clear", folder])
    run_quietly([folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *_BENTOML])
    stamp.write_text(wanted)
