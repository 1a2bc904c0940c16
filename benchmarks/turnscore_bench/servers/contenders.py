"""Contenders: how a server is started, asked and read. To add one, make a `ServerSpec` and a `Contender` of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnscore_load.address import free_port

from turnscore_bench.harness.traffic import BenchTurn
from turnscore_bench.servers.ideal_batches import Rows


def furthest(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest difference of two numbers."""
    return max(abs(one - other) for one, other in zip(found, expected, strict=True))


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How to check that a server answers rightly: its values for some turns, compared with the expected ones."""

    read: Callable[[Any], Sequence[float]]
    """The numbers in one reply, parsed from JSON."""
    tolerance: float
    expect: Callable[[list[Rows]], Sequence[float]] | None = None
    """The right numbers for turns; None where they are the bare runtime's probabilities."""
    distance: Callable[[Sequence[float], Sequence[float]], float] = furthest
    """How far the numbers are from the right ones: at most `tolerance`."""


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """A server: several contenders may ask the same one."""

    key: str
    command: Callable[[int], Sequence[str]]
    """Its command line, given the port."""
    ready_path: str
    """Answers 200 to GET when the model is loaded."""
    environment: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] = lambda: None
    """Makes its environment and its model; raises StartError where it cannot."""
    folder: Path | None = None
    """Where it has to be started; a folder of its own when None."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to ask a server."""

    key: str
    label: str
    server: ServerSpec
    path: str
    body: Callable[[Sequence[BenchTurn]], Any]
    """What is sent as JSON for the turns of one request."""
    answers: Answers
    turns_per_request: int = 1
    client: str = "turnscore_bench.harness.load_client"
    """The module that drives it: takes a job's file, prints what it measured; for another protocol, another module."""
    port: int | None = None
    """Of another door than the one the server was started on."""


def turnscore_contenders(bentoml: Path, bundle: Path, environment: Mapping[str, str]) -> list[Contender]:
    """turnscore on one bundle, as it comes but for the cache: turn by turn, in batches of 16, and over gRPC."""
    grpc_port = free_port()
    spec = ServerSpec(
        key="turnscore",
        command=lambda port: [
            *(str(bentoml), "serve", "turnscore_service.bento:TurnScore"),
            *("--host", "127.0.0.1", "--port", str(port)),
        ],
        ready_path="/readyz",
        environment={
            "BENTOML_DO_NOT_TRACK": "True",
            "TURNSCORE_MODELS": str(bundle),
            "TURNSCORE_GRPC__PORT": str(grpc_port),
            "TURNSCORE_CACHE__TTL_SECONDS": "0",  # no text comes twice: this takes the doubt away
            **environment,
        },
    )
    single = Contender(
        key="turnscore",
        label="turnscore",
        server=spec,
        path="/v1/score",
        body=lambda turns: _score_request(turns[0]),
        answers=Answers(read=lambda reply: [_value(reply)], tolerance=1e-4),
    )
    batch = Contender(
        key="turnscore-16",
        label="turnscore, 16 turns per request",
        server=spec,
        path="/v1/score_batch",
        body=lambda turns: {"items": [_score_request(turn) for turn in turns]},
        answers=Answers(read=lambda reply: [_value(each) for each in reply["results"]], tolerance=1e-4),
        turns_per_request=16,
    )
    over_grpc = replace(
        single,
        key="turnscore-grpc",
        label="turnscore, gRPC",
        path="/turnscore.v1.TurnScorer/Score",
        body=lambda turns: _score_request(turns[0], speaker="SPEAKER_USER"),
        client="turnscore_bench.harness.grpc_load_client",
        port=grpc_port,
    )
    return [single, batch, over_grpc]


def _score_request(turn: BenchTurn, speaker: str = "user") -> dict[str, Any]:
    return {"context": [{"speaker": speaker, "text": turn.query}], "response": turn.reply}


def _value(reply: Any) -> float:
    return float(reply["scores"]["engagement"]["value"])
