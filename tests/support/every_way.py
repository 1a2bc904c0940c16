"""Every way of asking one service in this process: the core, both transports by hand, and every client."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
import httpx
from pydantic import BaseModel
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
from turnscore_service.api.calls import validate, validate_batch
from turnscore_service.api.grpc.server import GrpcServer
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings
from turnscore_wire import (
    BatchReply,
    DialogueReply,
    DialogueRequest,
    ErrorReply,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
)
from turnscore_wire.v1 import to_fields
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

from support.grpc_messages import METHODS, message_of
from support.grpc_serving import error_of
from support.listening import listening
from support.request_table import Request

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
                slices = self._runtime.cooperative.slices(is_large=False)
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
