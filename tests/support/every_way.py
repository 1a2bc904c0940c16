"""Requests asked in every way that a service can be asked, and the committed scores of the two hundred among them.

`make generate WHAT=scores` writes the scores; `tests/contract/test_every_way_in.py` compares them with what every
transport answers: what a change that means to change no score must leave as they are.
"""

import asyncio
import functools
import json
import platform
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import grpc
import httpx
import jsonschema_rs
import onnxruntime
import schemathesis
from pydantic import BaseModel
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from turnscore_client import (
    AsyncTurnScoreClient,
    AsyncTurnScoreGrpcClient,
    ServiceError,
    TurnScoreClient,
    TurnScoreGrpcClient,
)
from turnscore_core.deadline import Deadline
from turnscore_core.errors import ScoringError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_models import read_bundle, starter_bundles
from turnscore_service.api.calls import validate, validate_batch
from turnscore_service.api.grpc.server import GrpcServer
from turnscore_service.api.http.app import create_app
from turnscore_service.generated_docs import openapi_document
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.fairness import TimeSlice
from turnscore_service.settings.service import Settings
from turnscore_wire import (
    BatchReply,
    DialogueReply,
    DialogueRequest,
    ErrorReply,
    Limits,
    RankReply,
    RankRequest,
    Score,
    ScoreReply,
    ScoreRequest,
)
from turnscore_wire.v1 import to_fields
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

from support.transports import METHODS, error_of, listening, message_of, settings_with

LIMITS = Limits(max_text_chars=2000, max_turns=30, max_items=6, max_candidates=5, max_body_bytes=60_000)
"""Small ones, so that requests beyond them are small too."""

Kind = Literal["good", "odd", "broken"]

_SUBJECTS = ("i", "my sister", "the neighbour's dog", "nobody here", "that old song")
_VERBS = ("hiked up", "wrote about", "could not stand", "dreams of", "was asked about")
_OBJECTS = ("a volcano", "the river at night", "my job", "three kinds of bread", "what you said")
_ENDS = (".", "!", "... have you?", ", and you?", "?")
_ODD_TEXTS = (
    "🙂", "👩‍👩‍👧‍👦 und 🇪🇺!", "ok", "?", "...", "  hello \t there\n\nagain ",
    "a\u200bb\u00adc", "e\u0301cole d\u2019e\u0301te\u0301", "שלום, מה שלומך?",
    "今日は何をしましたか。", "ＦＵＬＬ　ＷＩＤＴＨ", "x" * 300, "why " * 450,
    "\u2028line\u2029ends", "<b>&amp;</b> \\n \"q\"", "[SEP] [CLS] <|endoftext|>", "\ufeffmarked",
    "𝕦𝕟𝕚𝕔𝕠𝕕𝕖",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One call by its name, and its fields; `protobuf` says whether a message can say the same."""

    name: str
    kind: Kind
    call: Literal["score", "score_batch", "score_dialogue", "rank"]
    fields: dict[str, Any]
    protobuf: bool = True
    beyond_body: bool = False
    """Refused for its size by the transports, of which the core knows nothing."""


def requests() -> list[Request]:
    """All of them, in an order that never changes."""
    draw = random.Random(20261121)
    made = [*_good(draw), *_odd(draw), *_broken()]
    names = [each.name for each in made]
    assert len(set(names)) == len(names) == 200, len(names)
    return made


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choice(words) for words in (_SUBJECTS, _VERBS, _OBJECTS)) + draw.choice(_ENDS)


def _turns(draw: random.Random, count: int) -> list[dict[str, str]]:
    """Turns that alternate; the last one is the user's."""
    speakers = ["user" if place % 2 == 0 else "system" for place in range(count)][::-1]
    return [{"speaker": speaker, "text": _sentence(draw)} for speaker in speakers]


def _scorers(draw: random.Random) -> list[str]:
    return draw.choice([["engagement"], ["sentiment_stop"], ["engagement", "sentiment_stop"], ["sentiment_stop"]])


def _good(draw: random.Random) -> Iterator[Request]:
    for place in range(26):
        fields: dict[str, Any] = {"response": _sentence(draw), "scorers": _scorers(draw)}
        if place % 3:
            fields["context"] = _turns(draw, draw.randint(1, 6))
        if place % 7 == 0:
            fields.update(deadline_ms=60_000, cache=draw.choice(["use", "bypass", "refresh"]), cache_namespace="t-1")
        yield Request(f"score-{place}", "good", "score", fields)
    for place in range(12):
        items = [
            {"response": _sentence(draw), "context": _turns(draw, 2), "scorers": _scorers(draw)}
            for _ in range(draw.randint(1, 6))
        ]
        yield Request(f"batch-{place}", "good", "score_batch", {"items": items})
    for place in range(10):
        turns = [*_turns(draw, draw.randint(1, 6)), {"speaker": "system", "text": _sentence(draw)}]
        yield Request(f"dialogue-{place}", "good", "score_dialogue", {"turns": turns, "scorers": _scorers(draw)})
    for place in range(12):
        ranked: dict[str, Any] = {"candidates": [_sentence(draw) for _ in range(draw.randint(1, 5))]}
        ranked.update(context=_turns(draw, place % 4), scorers=["engagement", "sentiment_stop"])
        if place % 2:
            ranked["weights"] = {"engagement": draw.uniform(0.1, 3), "sentiment_stop": draw.choice([0.0, 1.5])}
        yield Request(f"rank-{place}", "good", "rank", ranked)
    turn, qualities = _turns(draw, 2), ["interesting", "fluent"]
    yield Request("all-scorers", "good", "score", {"context": turn, "response": _sentence(draw)})
    for place, own in enumerate(
        [{"qualities": qualities}, {"qualities": qualities, "loss": "whole_sequence"}, {"loss": "response_only"}]
    ):
        fed = {"context": turn, "response": _sentence(draw), "scorers": ["fed"], "options": {"fed": own}}
        yield Request(f"fed-{place}", "good", "score", fed)
    both = {"scorers": ["fed", "engagement"], "options": {"fed": {"qualities": qualities}}}
    yield Request("fed-rank", "good", "rank", {"context": turn, "candidates": ["ok.", _sentence(draw)], **both})


def _odd(draw: random.Random) -> Iterator[Request]:
    for place, text in enumerate(_ODD_TEXTS):
        asked = {"scorers": ["engagement", "sentiment_stop"]}
        yield Request(f"odd-response-{place}", "odd", "score", {"response": text, **asked})
        context = [{"speaker": "user", "text": text}]
        yield Request(f"odd-context-{place}", "odd", "score", {"context": context, "response": "i see.", **asked})
    asked = {"scorers": ["engagement"]}
    empty = [{"speaker": "user", "text": ""}, {"speaker": "system", "text": " "}]
    yield Request("empty-context-turns", "odd", "score", {"context": empty, "response": "ok", **asked})
    yield Request("no-context", "odd", "score", {"context": [], "response": "ok", **asked})
    yield Request("most-turns", "odd", "score", {"context": _turns(draw, 30), "response": "ok", **asked})
    yield Request("longest-text", "odd", "score", {"response": "word " * 400, **asked})
    yield Request("only-the-system", "odd", "score_dialogue", {"turns": [{"speaker": "system", "text": "hi"}], **asked})
    twice = [{"response": "the same", **asked}] * 2
    yield Request("twice-in-a-batch", "odd", "score_batch", {"items": twice})
    yield Request("candidates-alike", "odd", "rank", {"candidates": ["same", "same", "same"], **asked})
    yield Request("empty-options", "odd", "score", {"response": "ok", "options": {}, **asked})
    mixed = [{"response": "ok", **asked}, {"response": "ok", "scorers": ["mood"]}, {"response": "a" * 2001, **asked}]
    yield Request("items-that-fail-alone", "odd", "score_batch", {"items": mixed})
    ill = [{"response": "ok", **asked}, {"response": " ", **asked}, {"response": "ok", "deadline_ms": 0}]
    yield Request("items-that-are-not-well-formed", "odd", "score_batch", {"items": ill})


def _broken() -> Iterator[Request]:
    yield from _broken_scores()
    yield from _broken_others()


def _broken_scores() -> Iterator[Request]:
    """A score request around each field that is wrong; the last of a row says whether protobuf can say it."""
    user, fed = {"speaker": "user", "text": "hi"}, {"scorers": ["fed"]}
    rows: list[tuple[dict[str, Any], bool]] = [
        ({"response": ""}, True), ({"response": " \t\n"}, True), ({"response": "a\0b"}, True),
        ({"response": "a\ud800b"}, False), ({"response": 7}, False), ({"response": None}, True),
        ({"response": ["a"]}, False), ({"response": "a" * 2001}, True), ({"response": "🙂" * 2001}, True),
        ({"context": [{**user, "speaker": "bot"}]}, False), ({"context": [{**user, "text": 7}]}, False),
        ({"context": [user, {}]}, True), ({"context": [{**user, "mood": "good"}]}, False),
        ({"context": [{"text": "hi"}]}, True), ({"context": 7}, False), ({"context": "hi"}, False),
        ({"context": [{**user, "text": "a\0b"}]}, True), ({"context": [user, {**user, "text": "a" * 2001}]}, True),
        ({"context": [user] * 31}, True), ({"context": ["hi"]}, False), ({"context": [None]}, False),
        ({"scorers": ["mood"]}, True), ({"scorers": ["engagement", "mood"]}, True), ({"scorers": [""]}, True),
        ({"scorers": ["a" * 65]}, True), ({"scorers": ["engagement"] * 65}, True), ({"scorers": []}, False),
        ({"scorers": [7]}, False), ({"scorers": "engagement"}, False), ({"scorers": {"engagement": 1}}, False),
        ({"scorers": ["Engagement"]}, True),
        ({"options": {"mood": {}}}, True), ({"options": {"engagement": {"x": 1}}}, True),
        ({"options": {"sentiment_stop": {"x": None}}}, True), ({"options": {"": {}}}, True),
        ({"options": {"engagement": 7}}, False), ({"options": [1]}, False), ({"options": "x"}, False),
        ({**fed, "options": {"fed": {"qualities": []}}}, True), ({**fed, "options": {"fed": {"qualities": 7}}}, True),
        ({**fed, "options": {"fed": {"qualities": ["charming"]}}}, True),
        ({**fed, "options": {"fed": {"loss": "least"}}}, True), ({**fed, "options": {"fed": {"loss": 1.5}}}, True),
        ({**fed, "options": {"fed": {"own_qualities": {"a": 1}}}}, True),
        ({**fed, "options": {"fed": {"speed": {"deep": [1, {"a": None}]}}}}, True),
        ({"deadline_ms": 0}, True), ({"deadline_ms": -1}, True), ({"deadline_ms": 600_001}, True),
        ({"deadline_ms": 2**40}, False), ({"deadline_ms": 1.5}, False), ({"deadline_ms": "10"}, False),
        ({"cache": "sometimes"}, False), ({"cache": 1}, False), ({"cache_namespace": ""}, True),
        ({"cache_namespace": "two words"}, True), ({"cache_namespace": "a" * 65}, True),
        ({"cache_namespace": 7}, False),
    ]  # fmt: skip
    for place, (wrong, protobuf) in enumerate(rows):
        fields = {"response": "ok", **wrong}
        yield Request(f"score-with-{next(iter(wrong))}-{place}", "broken", "score", fields, protobuf)
    big = {"response": "ok", "context": [{**user, "text": "é" * 1990}] * 30}
    yield Request("body-too-large", "broken", "score", big, beyond_body=True)


def _broken_others() -> Iterator[Request]:
    user, system = {"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}
    ok = {"response": "ok"}
    rows: list[tuple[Literal["score_batch", "score_dialogue", "rank"], dict[str, Any], bool]] = [
        ("score_batch", {"items": []}, True), ("score_batch", {"items": [ok] * 7}, True),
        ("score_batch", {"items": 7}, False), ("score_batch", {"items": "ok"}, False),
        ("score_dialogue", {"turns": []}, True), ("score_dialogue", {"turns": [user]}, True),
        ("score_dialogue", {"turns": [user, {**system, "text": " "}]}, True),
        ("score_dialogue", {"turns": [system] * 31}, True), ("score_dialogue", {"turns": 7}, False),
        ("score_dialogue", {"turns": [{**user, "speaker": "me"}]}, False),
        ("score_dialogue", {"turns": [system], "scorers": ["mood"]}, True),
        ("score_dialogue", {"turns": [{**system, "text": "a" * 2001}]}, True),
        ("score_dialogue", {"turns": [system], "options": {"fed": {"qualities": ["charming"]}}}, True),
        ("score_dialogue", {"turns": [user, {**system, "text": "a\0"}]}, True),
        ("score_dialogue", {"turns": [system], "deadline_ms": 0}, True),
        ("rank", {"candidates": []}, True), ("rank", {"candidates": ["a"] * 6}, True),
        ("rank", {"candidates": ["a", ""]}, True), ("rank", {"candidates": ["a", "b\0"]}, True),
        ("rank", {"candidates": ["a", 7]}, False), ("rank", {"candidates": "abc"}, False),
        ("rank", {"candidates": ["a", "b" * 2001]}, True), ("rank", {"candidates": ["a"], "scorers": ["mood"]}, True),
        ("rank", {"candidates": ["a"], "weights": {"mood": 1.0}}, True),
        ("rank", {"candidates": ["a"], "weights": {"engagement": -1.0}}, True),
        ("rank", {"candidates": ["a"], "weights": {"engagement": 1e7}}, True),
        ("rank", {"candidates": ["a"], "weights": {"engagement": "1"}}, False),
        ("rank", {"candidates": ["a"], "scorers": ["engagement"], "weights": {"engagement": 0.0}}, True),
        ("rank", {"candidates": ["a"], "weights": [1.0]}, False),
        ("rank", {"candidates": ["a"], "context": [{**user, "text": "a\0"}]}, True),
        ("rank", {"candidates": ["a"], "context": [user] * 31}, True),
    ]  # fmt: skip
    for place, (call, fields, protobuf) in enumerate(rows):
        yield Request(f"{call}-refused-{place}", "broken", call, fields, protobuf)


R = TypeVar("R")
Refusal = tuple[str, str | None]
"""The code, and the field at fault."""

REPLIES: dict[str, type[BaseModel]] = {
    "score": ScoreReply,
    "score_batch": BatchReply,
    "score_dialogue": DialogueReply,
    "rank": RankReply,
}
_SECONDS = 60


class UnsayableError(Exception):
    """No protobuf message can hold this request."""


class EveryWay:
    """The ways by name: each takes a request and returns its reply, or what it was refused with."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runtime: Runtime, url: str, target: str) -> None:
        self._loop = loop
        self._runtime = runtime
        self._http = httpx.Client(base_url=url, timeout=_SECONDS)
        self._channel = grpc.insecure_channel(target)
        self._threads = [
            TurnScoreClient(url, timeout_seconds=_SECONDS),
            TurnScoreGrpcClient(target, timeout_seconds=_SECONDS),
        ]
        self._tasks = [
            AsyncTurnScoreClient(url, timeout_seconds=_SECONDS),
            AsyncTurnScoreGrpcClient(target, timeout_seconds=_SECONDS),
        ]
        self.ways: dict[str, Callable[[Request], BaseModel | Refusal]] = {
            "core": lambda request: self._wait(self._core(request)),
            "http": self._over_http,
            "grpc": self._over_grpc,
            "http client": lambda request: self._called(self._threads[0], request),
            "grpc client": lambda request: self._called(self._threads[1], request),
            "async http client": lambda request: self._wait(self._awaited(self._tasks[0], request)),
            "async grpc client": lambda request: self._wait(self._awaited(self._tasks[1], request)),
        }

    @property
    def loaded(self) -> Mapping[str, LoadedScorer]:
        """The scorers that all ways share."""
        return self._runtime.pipeline().model_set.loaded

    def all_at_once(self, asked: Sequence[Request]) -> list[BaseModel | Refusal]:
        """The answers to requests that are in flight together, every other one over gRPC."""

        async def ask_all() -> list[BaseModel | Refusal]:
            return await asyncio.gather(
                *(self._awaited(self._tasks[place % 2], each) for place, each in enumerate(asked))
            )

        return self._wait(ask_all())

    def close(self) -> None:
        """Closes every connection."""
        self._http.close()
        self._channel.close()
        for client in self._threads:
            client.close()
        for task in self._tasks:
            self._wait(task.aclose())

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    async def _core(self, request: Request) -> BaseModel | Refusal:
        pipeline, deadline = self._runtime.pipeline(), Deadline.after_ms(1000 * _SECONDS)
        try:
            if request.call == "score_batch":
                slices = TimeSlice(self._runtime.cooperative, is_large=False)
                items = await validate_batch(request.fields, self._runtime.settings.limits, slices)
                return await pipeline.score_batch(items, "r", deadline)
            if request.call == "score":
                return await pipeline.score(validate(ScoreRequest, request.fields), "r", deadline)
            if request.call == "rank":
                return await pipeline.rank(validate(RankRequest, request.fields), "r", deadline)
            return await pipeline.score_dialogue(validate(DialogueRequest, request.fields), "r", deadline)
        except ScoringError as error:
            return str(error.code), error.field

    def _over_http(self, request: Request) -> BaseModel | Refusal:
        body = json.dumps(request.fields)  # escapes what is not ASCII, a lone surrogate too
        response = self._http.post(f"/v1/{request.call}", content=body, headers={"content-type": "application/json"})
        if response.status_code == 200:
            return REPLIES[request.call].model_validate_json(response.content)
        return _refusal(ErrorReply.model_validate_json(response.content))

    def _over_grpc(self, request: Request) -> BaseModel | Refusal:
        try:
            message = message_of(request.call, request.fields)
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise UnsayableError from error
        if not request.protobuf and to_fields(message) != request.fields:
            raise UnsayableError  # generated code takes it for something else, such as a string for its letters
        try:
            reply = getattr(TurnScorerStub(self._channel), METHODS[request.call])(message, timeout=_SECONDS)
        except grpc.RpcError as error:
            return _refusal(error_of(error))
        return REPLIES[request.call].model_validate(to_fields(reply))

    def _called(self, client: Any, request: Request) -> BaseModel | Refusal:
        try:
            reply: BaseModel = getattr(client, request.call)(**request.fields)
            return reply
        except ServiceError as error:
            return str(error.code), error.field

    async def _awaited(self, client: Any, request: Request) -> BaseModel | Refusal:
        try:
            reply: BaseModel = await getattr(client, request.call)(**request.fields)
            return reply
        except ServiceError as error:
            return str(error.code), error.field


@contextmanager
def every_way(settings: Settings) -> Iterator[EveryWay]:
    """A ready service on the bundles of the settings, in a thread of its own, and the ways to it."""
    ready: list[EveryWay] = []
    is_up, may_end = threading.Event(), asyncio.Event()

    async def serve() -> None:
        runtime = Runtime(settings)
        server = GrpcServer(runtime)
        runtime.start()
        await server.start()
        await runtime.wait_until_loaded()
        async with listening(create_app(runtime)) as address:
            ready.append(EveryWay(asyncio.get_running_loop(), runtime, f"http://{address}", f"127.0.0.1:{server.port}"))
            is_up.set()
            await may_end.wait()
        await server.stop()
        await runtime.stop()

    def run() -> None:
        try:
            asyncio.run(serve())
        finally:
            is_up.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert is_up.wait(_SECONDS)
    [ways] = ready
    try:
        yield ways
    finally:
        ways.close()
        ways._loop.call_soon_threadsafe(may_end.set)
        thread.join()


def _refusal(reply: ErrorReply) -> Refusal:
    return str(reply.error.code), reply.error.field


DOCUMENT = json.loads(openapi_document())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


def assert_documented(case: schemathesis.Case, url: str) -> None:
    """The answer's status, headers and body are those of the document; no request makes the service fail."""
    excluded = [
        positive_data_acceptance,  # a schema cannot say which scorers are loaded, nor what their options are
        not_a_server_error,  # counts 504, which is the right answer to a deadline of 1 ms; stricter below
    ]
    if case.path == "/v1/score_batch":
        excluded.append(negative_data_rejection)  # a wrong item is answered with its own error, within a 200
    elif _is_wrong_in_messages_alone(case):
        excluded.append(negative_data_rejection)  # what nobody reads of a message is not checked (messages.md)
    response = case.call_and_validate(base_url=url, excluded_checks=excluded)
    assert response.status_code < 500 or response.status_code == httpx.codes.GATEWAY_TIMEOUT


def _is_wrong_in_messages_alone(case: schemathesis.Case) -> bool:
    """Whether every message is an object, and the body would be right if they were others."""
    messages = case.body.get("messages") if isinstance(case.body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return False
    return _body_validator(case.path).is_valid(case.body | {"messages": [{"role": "user", "content": "hi"}]})


@functools.cache
def _body_validator(path: str) -> jsonschema_rs.Draft202012Validator:
    (body,) = DOCUMENT["paths"][path]["post"]["requestBody"]["content"].values()
    return jsonschema_rs.Draft202012Validator({**body["schema"], "components": DOCUMENT["components"]})


def ask_what_is_loaded(case: schemathesis.Case) -> None:
    """Makes a request that the document allows name no scorers and no options, so that it is scored."""
    items = case.body.get("items", [case.body]) if isinstance(case.body, dict) else []
    if case.meta is not None and case.meta.generation.mode.is_positive:
        for item in items:
            for name in ("scorers", "options", "weights"):
                item.pop(name, None)


FILE = Path(__file__).parents[1] / "contract" / "scores.json"
_VECTOR_FLAGS = ("amx", "avx", "fma", "sse4")
"""By these ONNX Runtime chooses its kernels on x86."""


def table_settings() -> Settings:
    """Every score computed for itself, by one thread."""
    every = ("engagement", "fed", "sentiment_stop")
    runtime = {"device": "cpu", "threads": 1, "concurrent_batches": 1}
    return settings_with(limits=LIMITS, cache={"ttl_seconds": 0}, runtime=runtime, default_scorers=every)


def scores_of(reply: BaseModel) -> list[dict[str, Score]]:
    """Every turn's scores, in the order asked for."""
    if isinstance(reply, ScoreReply):
        return [reply.scores]
    if isinstance(reply, BatchReply):
        return [each.scores if isinstance(each, ScoreReply) else {} for each in reply.results]
    if isinstance(reply, RankReply):
        return [each.scores for each in sorted(reply.candidates, key=lambda each: each.index)]
    assert isinstance(reply, DialogueReply)
    return [each.scores for each in reply.turns]


def row_of(answered: BaseModel | Refusal) -> list[Any]:
    """One request's row: what it was refused with, or for every turn its scores as [value, percentile, details]."""
    if isinstance(answered, tuple):
        return list(answered)
    return [
        {name: [score.value, score.percentile, score.details] for name, score in turn.items()}
        for turn in scores_of(answered)
    ]


def instruction_set() -> list[str]:
    """What decides the last digits: the architecture, the runtime's version and the vector units of this machine."""
    flags: set[str] = set()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="ascii", errors="replace").splitlines()
        line = next((each for each in lines if each.startswith("flags")), "")
        flags = {each for each in line.split() if each.startswith(_VECTOR_FLAGS)}
    return [platform.machine(), f"onnxruntime {onnxruntime.__version__}", *sorted(flags)]


def tolerances() -> dict[str, float]:
    """How far a value may be off on another instruction set, by scorer: as each starter bundle states it."""
    manifests = [read_bundle(folder).manifest for folder in starter_bundles()]
    return {each.kind: each.graphs["cpu-int8"].parity_tolerance for each in manifests}


def is_alike(row: Sequence[Any], wanted: Sequence[Any], allowed: Mapping[str, float]) -> bool:
    """Whether two rows are the same: in every bit, or by what is `allowed` of each scorer, if anything."""
    if not allowed or not all(isinstance(turn, dict) for turn in (*row, *wanted)):
        return list(row) == list(wanted)
    return len(row) == len(wanted) and all(
        here.keys() == there.keys() and all(abs(here[name][0] - there[name][0]) <= allowed[name] for name in here)
        for here, there in zip(row, wanted, strict=True)
    )


def read_table() -> Mapping[str, Any]:
    """The committed table: `instruction_set` and `scores`."""
    table: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def write_table(file: Path = FILE) -> None:
    """Asks this machine's service over HTTP, and writes a line a request: floats with every digit."""
    with every_way(table_settings()) as ways:
        rows = {each.name: row_of(ways.ways["http"](each)) for each in requests()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    file.write_text(
        f'{{"instruction_set": {json.dumps(instruction_set())},\n"scores": {{\n{lines}\n}}}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    write_table(*map(Path, sys.argv[1:]))
