"""The other servers: BentoML and LitServe on the same graph and tokenizer, infinity on the same encoder."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from turnscore_bench.harness import environments
from turnscore_bench.harness.environments import make_environment
from turnscore_bench.servers import infinity_model
from turnscore_bench.servers.contenders import Answers, Contender, ServerSpec
from turnscore_bench.servers.ideal_batches import Rows

_SERVERS = Path(__file__).parent / "foreign"
_MODEL = "encoder"
_WIDTH = 384
_CHECKPOINT_TOLERANCE = 0.3
"""The starter bundle's encoder was trained on from the checkpoint: for 144 texts the cosine of the two vectors was 0.79
to 0.98, for two unlike texts of a length at most 0.64 (measured)."""


def bentoml_contenders(output: Path, files: Mapping[str, str]) -> list[Contender]:
    """A plain BentoML service with a batchable endpoint, as it comes and without its access log and tracing."""
    folder = output / "environments" / "bentoml"
    environment = {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(output / "bentoml"), **files}
    spec = ServerSpec(
        key="bentoml",
        command=lambda port: [
            *(str(folder / "bin" / "bentoml"), "serve", "bentoml_service:Engagement"),
            *("--working-dir", str(_SERVERS), "--host", "127.0.0.1", "--port", str(port)),
        ],
        ready_path="/readyz",
        environment=environment,
        prepare=lambda: make_environment(folder, environments.BENTOML),
    )
    plain = Contender(
        key="bentoml",
        label="plain BentoML",
        server=spec,
        path="/score",
        body=lambda turns: {"turns": [{"query": turn.query, "reply": turn.reply} for turn in turns]},
        answers=Answers(read=lambda reply: [float(each) for each in reply], tolerance=1e-4),
    )
    quiet = replace(spec, key="bentoml-quiet", environment={**environment, "BENCH_QUIET": "1"})
    return [plain, replace(plain, key="bentoml-quiet", label="plain BentoML, no logs and tracing", server=quiet)]


def litserve_contender(output: Path, files: Mapping[str, str]) -> Contender:
    """LitServe with batching on."""
    folder = output / "environments" / "litserve"
    spec = ServerSpec(
        key="litserve",
        command=lambda port: [str(folder / "bin" / "python"), str(_SERVERS / "litserve_server.py"), str(port)],
        ready_path="/health",
        environment=files,
        prepare=lambda: make_environment(folder, environments.LITSERVE),
    )
    return Contender(
        key="litserve",
        label="LitServe",
        server=spec,
        path="/predict",
        body=lambda turns: {"query": turns[0].query, "reply": turns[0].reply},
        answers=Answers(read=lambda reply: [float(reply["value"])], tolerance=1e-4),
    )


def infinity_contenders(output: Path, graph: Path) -> list[Contender]:
    """infinity on the int8 encoder cut out of the same graph, and on the checkpoint in torch, its default engine."""
    int8 = output / "infinity-int8"
    # optimum looks for a graph relative to the model's folder, infinity names it relative to where it was started
    cut = _infinity(output, graph, ["--engine", "optimum", "--model-id", ".", "--pooling-method", "mean"])
    torch = _infinity(output, graph, ["--engine", "torch", "--model-id", str(infinity_model.FP32_FOLDER)])

    def expect(turns: list[Rows]) -> Sequence[float]:
        found: list[float] = infinity_model.mean_vectors(int8, turns).ravel().tolist()
        return found

    contender = Contender(
        key="infinity-int8",
        label="infinity, int8 encoder",
        server=replace(cut, key="infinity-int8", folder=int8),
        path="/embeddings",
        body=lambda turns: {
            "model": _MODEL,
            "input": [text for turn in turns for text in (turn.query, turn.reply)],
            "encoding_format": "base64",
        },
        answers=Answers(read=_read_vectors, tolerance=0.01, expect=expect),
    )
    fp32 = Answers(read=_read_vectors, tolerance=_CHECKPOINT_TOLERANCE, expect=expect, distance=least_cosine_distance)
    return [contender, replace(contender, key="infinity", label="infinity, torch fp32", server=torch, answers=fp32)]


def _infinity(output: Path, graph: Path, engine: Sequence[str]) -> ServerSpec:
    folder = output / "environments" / "infinity"

    def prepare() -> None:
        make_environment(folder, environments.INFINITY)
        infinity_model.write_int8_folder(graph, output / "infinity-int8")

    return ServerSpec(
        key="infinity",
        command=lambda port: [
            *(str(folder / "bin" / "infinity_emb"), "v2", *engine, "--served-model-name", _MODEL, "--device", "cpu"),
            *("--no-bettertransformer", "--no-vector-disk-cache", "--host", "127.0.0.1", "--port", str(port)),
        ],
        ready_path="/health",
        environment={
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(output / "huggingface"),
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        },
        prepare=prepare,
    )


def least_cosine_distance(found: Sequence[float], expected: Sequence[float]) -> float:
    """One less the least cosine of a vector with the expected one, both of length 1."""
    ours, theirs = (np.reshape(each, (-1, _WIDTH)) for each in (found, expected))
    return float(1 - (ours * theirs).sum(axis=1).min())


def _read_vectors(reply: Any) -> list[float]:
    vectors = [np.frombuffer(base64.b64decode(each["embedding"]), np.float32) for each in reply["data"]]
    found: list[float] = np.concatenate(vectors).tolist()
    return found
