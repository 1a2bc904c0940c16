"""Quality beside engagement in the real path: every call, both transports and every client, and the doctor."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from support.bundles import make_quality_bundle
from support.every_way import EveryWay, Request, every_way
from support.transports import settings_with
from turnscore_client._command.registry import app
from turnscore_core.scorers.quality import HEADS
from turnscore_models import Threshold, starter_bundles, write_bundle
from typer.testing import CliRunner

CONTEXT = [{"speaker": "user", "text": "a b c"}]
LONG = "good fine nice a " * 3 + "bad wrong ugly"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    made = make_quality_bundle(tmp_path_factory.mktemp("served") / "quality")
    threshold = Threshold(value=0.8, source="made up")
    write_bundle(made.folder, made.manifest.model_copy(update={"threshold": threshold}))
    [engagement] = [folder for folder in starter_bundles() if folder.name == "engagement"]
    return f"{made.folder}/", f"{engagement}/"


@pytest.fixture(scope="module")
def ways(models: tuple[str, ...]) -> Iterator[EveryWay]:
    runtime = {"device": "cpu", "threads": 1, "concurrent_batches": 1}
    with every_way(settings_with(models=models, cache={"ttl_seconds": 0}, runtime=runtime)) as opened:
        yield opened


def shown(reply: Any) -> Any:
    """A reply without what no two calls share."""
    if isinstance(reply, list):
        return [shown(each) for each in reply]
    if not isinstance(reply, dict):
        return shown(reply.model_dump(mode="json")) if isinstance(reply, BaseModel) else reply
    return {name: shown(each) for name, each in reply.items() if name not in ("request_id", "timing_ms")}


CALLS = [
    Request("score", "good", "score", {"context": CONTEXT, "response": LONG}),
    Request(
        "batch", "good", "score_batch", {"items": [{"response": "good a"}, {"response": "a b c", "context": CONTEXT}]}
    ),
    Request("dialogue", "good", "score_dialogue", {"turns": [*CONTEXT, {"speaker": "system", "text": "bad d e"}]}),
    Request("rank", "good", "rank", {"context": CONTEXT, "candidates": ["bad d", "good nice", LONG]}),
]


def test_a_score_says_why_how_it_compares_and_whether_it_is_low(ways: EveryWay):
    scores = shown(ways.ways["http client"](CALLS[0]))["scores"]
    assert set(scores) == {"quality", "engagement"}
    quality = scores["quality"]
    assert set(quality["details"]) == {*HEADS, *(f"{name}_percentile" for name in HEADS)}
    assert (quality["label"], scores["engagement"]["label"]) == ("low", None)
    assert quality["percentile"] == pytest.approx(100 * quality["value"])


def test_a_ranking_asks_quality_alone_and_finds_the_fault_at_the_end(ways: EveryWay):
    ranked = shown(ways.ways["grpc client"](CALLS[3]))
    assert ranked["candidates"][0]["index"] == 1
    assert ranked["weights"] == {"quality": 1.0}


def test_the_doctor_loads_it(models: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNSCORE_MODELS", models[0])
    result = CliRunner().invoke(app, ["doctor", "--device", "cpu", "--load", "--json"])
    assert result.exit_code == 0, result.output
    assert "quality:0.0.1" in result.output
