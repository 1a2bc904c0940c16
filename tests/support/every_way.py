"""Requests asked in every way that a service can be asked, and the committed scores of the two hundred among them.

`make generate WHAT=scores` writes the scores; `tests/contract/test_every_way_in.py` compares them with what every
transport answers: what a change that means to change no score must leave as they are.
"""

import asyncio
import functools
import json
import platform
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grpc
import httpx
import jsonschema_rs
import onnxruntime
import schemathesis
from generated_docs import openapi_document
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from turnscore_client import (
    AsyncTurnScoreClient,
    AsyncTurnScoreGrpcClient,
    ServiceError,
    TurnScoreClient,
    TurnScoreGrpcClient,
)
from turnscore_core.model_loader import load_scorers
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_service.api.grpc.server import GrpcServer
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_wire import BatchReply, DialogueReply, ErrorReply, Limits, RankReply, ScoreReply
from turnscore_wire.v1 import to_fields
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

from support.conditions import in_a_thread
from support.fakes import loader_of
from support.transports import METHODS, error_of, listening, message_of, settings_with

# Small ones, so that requests beyond them are small too.
LIMITS = Limits(max_text_chars=2000, max_turns=30, max_items=6, max_candidates=5, max_body_bytes=60_000)

FILE = Path(__file__).parents[1] / "contract" / "scores.json"
REQUESTS = FILE.with_name("requests.json")


@dataclass(frozen=True)
class Request:
    """One call by its name, and its fields; `protobuf` says whether a message can say the same."""

    name: str
    kind: Literal["good", "odd", "broken"]
    call: Literal["score", "score_batch", "score_dialogue", "rank"]
    fields: dict[str, Any]
    protobuf: bool = True


@functools.cache
def requests():
    """The two hundred of contract/requests.json, in its order."""
    return [Request(**{**row, "fields": _in_full(row["fields"])}) for row in json.loads(REQUESTS.read_text())]


def _in_full(value):
    """The value with `{"repeat": [what, times]}` written out."""
    if isinstance(value, dict):
        if value.keys() == {"repeat"}:
            what, times = value["repeat"]
            return _in_full(what) * times
        return {name: _in_full(each) for name, each in value.items()}
    return [_in_full(each) for each in value] if isinstance(value, list) else value


REPLIES = {"score": ScoreReply, "score_batch": BatchReply, "score_dialogue": DialogueReply, "rank": RankReply}
_SECONDS = 60


class UnsayableError(Exception):
    """No protobuf message can hold this request."""


class EveryWay:
    """The ways by name: each takes a request and returns its reply, or what it was refused with."""

    def __init__(self, loop, runtime, url, target):
        self._loop, self.url = loop, url
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
        self.ways = {
            "http": self._over_http,
            "grpc": self._over_grpc,
            "http client": lambda request: self._called(self._threads[0], request),
            "grpc client": lambda request: self._called(self._threads[1], request),
            "async http client": lambda request: self._wait(self._awaited(self._tasks[0], request)),
            "async grpc client": lambda request: self._wait(self._awaited(self._tasks[1], request)),
        }

    @property
    def loaded(self):
        """The scorers that all ways share."""
        return self._runtime.pipeline().model_set.loaded

    def all_at_once(self, asked):
        """The answers to requests that are in flight together, every other one over gRPC."""

        async def ask_all():
            return await asyncio.gather(
                *(self._awaited(self._tasks[place % 2], each) for place, each in enumerate(asked))
            )

        return self._wait(ask_all())

    def close(self):
        """Closes every connection."""
        self._http.close()
        self._channel.close()
        for client in self._threads:
            client.close()
        for task in self._tasks:
            self._wait(task.aclose())

    def _wait(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_SECONDS)

    def _over_http(self, request):
        body = json.dumps(request.fields)  # escapes what is not ASCII, a lone surrogate too
        response = self._http.post(f"/v1/{request.call}", content=body, headers={"content-type": "application/json"})
        if response.status_code == 200:
            return REPLIES[request.call].model_validate_json(response.content)
        return _refusal(ErrorReply.model_validate_json(response.content))

    def _over_grpc(self, request):
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

    def _called(self, client, request):
        try:
            return getattr(client, request.call)(**request.fields)
        except ServiceError as error:
            return str(error.code), error.field

    async def _awaited(self, client, request):
        try:
            return await getattr(client, request.call)(**request.fields)
        except ServiceError as error:
            return str(error.code), error.field


@contextmanager
def every_way(settings):
    """A ready service on the bundles of the settings, in a thread of its own, and the ways to it."""

    @asynccontextmanager
    async def serve():
        runtime = Runtime(settings, loader_of(load_scorers(settings.loading())))  # with no memory taken ahead
        server = GrpcServer(runtime)
        runtime.start()
        await server.start()
        await runtime.wait_until_loaded()
        async with listening(create_app(runtime)) as address:
            yield EveryWay(asyncio.get_running_loop(), runtime, f"http://{address}", f"127.0.0.1:{server.port}")
        await server.stop()
        await runtime.stop()

    with in_a_thread(serve()) as ways:
        try:
            yield ways
        finally:
            ways.close()


def _refusal(reply):
    return str(reply.error.code), reply.error.field


DOCUMENT = json.loads(openapi_document())
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


def assert_documented(case, url):
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


def _is_wrong_in_messages_alone(case):
    """Whether every message is an object, and the body would be right if they were others."""
    messages = case.body.get("messages") if isinstance(case.body, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return False
    return _body_validator(case.path).is_valid(case.body | {"messages": [{"role": "user", "content": "hi"}]})


@functools.cache
def _body_validator(path):
    (body,) = DOCUMENT["paths"][path]["post"]["requestBody"]["content"].values()
    return jsonschema_rs.Draft202012Validator({**body["schema"], "components": DOCUMENT["components"]})


def ask_what_is_loaded(case):
    """Makes a request that the document allows name no scorers and no options, so that it is scored."""
    items = case.body.get("items", [case.body]) if isinstance(case.body, dict) else []
    if case.meta is not None and case.meta.generation.mode.is_positive:
        for item in items:
            for name in ("scorers", "options", "weights"):
                item.pop(name, None)


_VECTOR_FLAGS = ("amx", "avx", "fma", "sse4")  # by these ONNX Runtime chooses its kernels on x86


def table_settings():
    """Every score computed for itself, by one thread."""
    every = ("engagement", "fed", "sentiment_stop")
    runtime = {"device": "cpu", "threads": 1, "concurrent_batches": 1}
    return settings_with(limits=LIMITS, cache={"ttl_seconds": 0}, runtime=runtime, default_scorers=every)


def scores_of(reply):
    """Every turn's scores, in the order asked for."""
    if isinstance(reply, ScoreReply):
        return [reply.scores]
    if isinstance(reply, BatchReply):
        return [each.scores if isinstance(each, ScoreReply) else {} for each in reply.results]
    if isinstance(reply, RankReply):
        return [each.scores for each in sorted(reply.candidates, key=lambda each: each.index)]
    assert isinstance(reply, DialogueReply)
    return [each.scores for each in reply.turns]


def row_of(answered):
    """One request's row: what it was refused with, or for every turn its scores as [value, percentile, details]."""
    if isinstance(answered, tuple):
        return list(answered)
    return [
        {name: [score.value, score.percentile, score.details] for name, score in turn.items()}
        for turn in scores_of(answered)
    ]


def instruction_set():
    """What decides the last digits: the architecture, the runtime's version and the vector units of this machine."""
    flags = set()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="ascii", errors="replace").splitlines()
        line = next((each for each in lines if each.startswith("flags")), "")
        flags = {each for each in line.split() if each.startswith(_VECTOR_FLAGS)}
    return [platform.machine(), f"onnxruntime {onnxruntime.__version__}", *sorted(flags)]


def tolerances():
    """How far a value may be off on another instruction set, by scorer: as each starter bundle states it."""
    manifests = [read_bundle(folder).manifest for folder in starter_bundles()]
    return {each.kind: each.graphs["cpu-int8"].parity_tolerance for each in manifests}


def is_alike(row, wanted, allowed):
    """Whether two rows are the same: in every bit, or by what is `allowed` of each scorer, if anything."""
    if not allowed or not all(isinstance(turn, dict) for turn in (*row, *wanted)):
        return list(row) == list(wanted)
    return len(row) == len(wanted) and all(
        here.keys() == there.keys() and all(abs(here[name][0] - there[name][0]) <= allowed[name] for name in here)
        for here, there in zip(row, wanted, strict=True)
    )


def read_table():
    """The committed table: `instruction_set` and `scores`."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def write_table(file=FILE):
    """Asks this machine's service over HTTP, and writes a line a request: floats with every digit."""
    with every_way(table_settings()) as ways:
        rows = {each.name: row_of(ways.ways["http"](each)) for each in requests()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    file.write_text(
        f'{{"instruction_set": {json.dumps(instruction_set())},\n"scores": {{\n{lines}\n}}}}\n', encoding="utf-8"
    )


if __name__ == "__main__":
    write_table(*map(Path, sys.argv[1:]))
