"""The GPU benchmark's parts: stand-ins, arrays, the client that keeps a pace, and what it may import."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.plain_server import REFUSED, SCORED, Reply, plain_server
from turnscore_bench.gpu import __main__ as program
from turnscore_bench.gpu import fed_race
from turnscore_bench.gpu.bare import encoder_feeds
from turnscore_bench.gpu.fed_race import PackedTurn
from turnscore_bench.gpu.findings import Findings
from turnscore_bench.gpu.paced_client import drive
from turnscore_bench.gpu.random_bundles import write_encoder_bundle, write_fed_bundle
from turnscore_bench.gpu.shapes import TINY, Shape
from turnscore_bench.gpu.stand_ins import WORDS, as_encoder, build_dialogue_tokenizer, build_encoder, encode_follow_ups
from turnscore_bench.gpu.tables import tables
from turnscore_bench.gpu.ways import PACKED
from turnscore_bench.harness.traffic import Traffic
from turnscore_core.inference.devices import CPU
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import Bundle, GraphVariant
from turnscore_wire import Turn

ROOT = Path(__file__).parents[3]
NOT_THERE = ("pydantic", "pydantic_settings", "typer", "bentoml", "fastapi", "starlette", "psutil", "prometheus_client")


def test_follow_ups_have_as_many_tokens_as_gpt_2_s_tokenizer_gives_them() -> None:
    tokenizer, eos_id = build_dialogue_tokenizer()
    # Counted once with GPT-2's own: 38 follow-ups of 242 tokens for 8 qualities, 73 of 485 for 18.
    counts = [(len(each), sum(map(len, each))) for each in (encode_follow_ups(tokenizer, size) for size in (8, 18))]
    assert counts == [(38, 242), (73, 484)]
    assert eos_id == tokenizer.get_vocab_size() - 1
    spoken = tokenizer.encode(" ".join(WORDS), add_special_tokens=False)
    assert len(spoken.ids) == len(WORDS)


def test_turns_of_the_encoder_s_traffic_are_made_of_words_that_are_one_token(tmp_path: Path) -> None:
    encoder = as_encoder(build_encoder(TINY.encoder), TINY.encoder)
    encoder.tokenizer.save(str(tmp_path / "tokenizer.json"))
    words = Traffic(tmp_path / "tokenizer.json", 128)._words
    assert len(words) == len(WORDS) ** 2
    assert [len(ids) for ids in encoder.tokenize_bare([words[0], " ".join(words)])] == [1, len(words)]
    assert [encoder.special(each) for each in ("[CLS]", "[SEP]")] == encoder.tokenize([words[0]])[0][::2]


@pytest.mark.parametrize(
    ("write", "shape", "inside"),
    [
        (write_encoder_bundle, TINY.encoder, "Attention"),
        (write_fed_bundle, TINY.language_models[0], "MultiHeadAttention"),
    ],
)
def test_a_bundle_for_a_gpu_is_fused_fp16_and_loads_as_served(
    write: Callable[[Shape, GraphVariant, Path], Bundle], shape: Shape, inside: str, tmp_path: Path
) -> None:
    bundle = write(shape, "cuda-fp16", tmp_path / "bundle")
    assert set(bundle.manifest.graphs) == {"cuda-fp16"}
    scorer = load_scorer(bundle, "cuda-fp16").scorer
    turns = [TurnToScore([Turn(speaker="user", text=f"{WORDS[0]}{word}")], WORDS[1]) for word in WORDS[:3]]
    assert len({score.value for score in scorer.score(scorer.encode(turns))}) == 3
    graph = onnx.load(bundle.path_of(bundle.manifest.graphs["cuda-fp16"].file)).graph
    assert inside in {node.op_type for node in graph.node}
    assert onnx.TensorProto.FLOAT16 in {tensor.data_type for tensor in graph.initializer}


def test_an_odd_row_is_its_own_pair() -> None:
    feeds = encoder_feeds(3, 8, 100)
    assert feeds["input_ids"].shape == (3, 8)
    assert list(zip(feeds["query_row"], feeds["reply_row"], strict=True)) == [(0, 1), (2, 2)]


def test_the_one_pass_holds_every_follow_up_of_the_published_way_once() -> None:
    turn = PackedTurn(18)
    assert len(turn.rows) == 73
    [branch] = turn.conversation.branches
    assert {len(row) - 100 for row in turn.rows} == set(branch.tree.lengths.astype(int))
    assert len(branch.tree.lengths) == len({tuple(row) for row in turn.rows}) == 63


def test_where_torch_cannot_use_the_device_the_graph_is_measured_alone_and_the_reason_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(fed_race, "TorchFed", fail)
    findings = Findings(peaks={"float16": 1e12})
    fed_race.race_fed(TINY, TINY.language_models[0], CPU, tmp_path, findings, with_compile=False)
    assert [(each.qualities, each.way) for each in findings.fed] == [(8, PACKED), (18, PACKED)]
    assert findings.not_run["torch, tiny-dialogpt"] == "AssertionError: Torch not compiled with CUDA enabled"
    [line] = [each for each in tables(findings).splitlines() if f"| 18 | {PACKED}" in each]
    assert line.split(" | ")[-2] == "-"


async def test_requests_leave_at_their_pace_while_earlier_ones_wait_and_count_from_when_they_were_due() -> None:
    gate, seen = asyncio.Event(), 0

    async def behave(path: str, body: bytes) -> Reply:
        nonlocal seen
        seen += 1
        if json.loads(body)["number"] == 0:
            await gate.wait()  # held until all the others have come
        if seen == 20:
            gate.set()
        return REFUSED if json.loads(body)["number"] == 19 else SCORED

    async with plain_server(behave) as port, asyncio.timeout(60):
        answer = await drive(port, "/v1/score", [json.dumps({"number": each}) for each in range(20)], 400)
    assert (answer["answered"], answer["refused"], answer["failed_requests"]) == (19, 1, 0)
    assert len(answer["latencies_ms"]) == 20
    assert max(answer["latencies_ms"]) < 1000 * answer["wall_seconds"]
    assert np.median(answer["latencies_ms"]) < max(answer["latencies_ms"])


async def test_a_server_that_hangs_up_is_counted_as_failing() -> None:
    async def behave(path: str, body: bytes) -> Reply:
        return None

    async with plain_server(behave) as port:
        answer = await drive(port, "/v1/score", ["{}"] * 3, 400)
    assert (answer["answered"], answer["failed_requests"]) == (0, 3)


def test_a_device_that_cannot_be_used_is_told_and_nothing_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert program.main(["--device", "cuda:63", "--output", str(tmp_path / "out")]) == 1
    assert "cuda:63 cannot be measured: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_the_service_it_needs_nothing_but_torch_transformers_onnx_and_the_runtime() -> None:
    program = (
        f"import sys\nfor name in {NOT_THERE!r}: sys.modules[name] = None\n"
        "import turnscore_bench.gpu.__main__\n"
        "assert not {'turnscore_models', 'turnscore_wire', 'turnscore_client'} & sys.modules.keys()"
    )
    path = os.pathsep.join(str(ROOT / each) for each in ("benchmarks", "exporters", "service"))
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
