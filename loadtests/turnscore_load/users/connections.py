"""How the items of one of Locust's users reach the service: a kept connection over HTTP or gRPC. Sends and judges.

Locust's users are greenlets of one thread. gRPC's library waits in C, and the first call that waits there holds all of
them up for good (seen with grpcio 1.85); `make_grpc_cooperative` makes it wait by gevent. Threads are no way out:
Locust has made greenlets of them too.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Protocol

import gevent
import grpc
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError
from google.protobuf.message import Message
from grpc.experimental.gevent import init_gevent
from turnscore_wire.v1 import to_fields, turnscore_pb2

from turnscore_load.answers import EXPIRED_GRPC_STATUS, CallAnswer, judge_grpc, judge_http
from turnscore_load.machine import LOOPBACK, Ports
from turnscore_load.traffic import PATIENCE_SECONDS, Item, as_grpc

_SERVICE = "/turnscore.v1.TurnScorer"
_PUSHBACK = "grpc-retry-pushback-ms"
_DETAILS = "grpc-status-details-bin"


class UserConnection(Protocol):
    """One user's connection. Its calls raise nothing: what goes wrong is an answer too."""

    kind: str
    """The request type in Locust's statistics."""

    def score(self, item: Item) -> CallAnswer:
        """Asks for one turn."""
        ...

    def score_batch(self, items: Sequence[Item]) -> CallAnswer:
        """Asks for several turns in one call."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class HttpUserConnection:
    """Over HTTP."""

    kind = "HTTP"

    def __init__(self, ports: Ports) -> None:
        self._client = HTTPClient(
            LOOPBACK,
            ports.http,
            headers={"Content-Type": "application/json"},
            concurrency=1,
            connection_timeout=PATIENCE_SECONDS,
            network_timeout=PATIENCE_SECONDS,
            disable_ipv6=True,
        )

    def score(self, item: Item) -> CallAnswer:
        return self._post("/v1/score", item)

    def score_batch(self, items: Sequence[Item]) -> CallAnswer:
        return self._post("/v1/score_batch", {"items": items})

    def close(self) -> None:
        self._client.close()

    def _post(self, path: str, body: Mapping[str, Any]) -> CallAnswer:
        try:
            reply = self._client.post(path, json.dumps(body).encode())
            content = bytes(reply.read())
        except (OSError, HTTPParseError) as error:
            return judge_http(0, None, b"", f"no reply: {type(error).__name__}")
        retry_after = reply.get("retry-after")
        return judge_http(reply.status_code, retry_after if isinstance(retry_after, str) else None, content)


class NoReplyError(Exception):
    """A stream gave no answer in time."""


def make_grpc_cooperative() -> None:
    """Makes gRPC wait by gevent; after Locust has patched the process and before anything of gRPC is made."""
    init_gevent()


class GrpcUserConnection:
    """Over gRPC."""

    kind = "grpc"

    def __init__(self, ports: Ports) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]  # else all users would share a connection
        self._channel = grpc.insecure_channel(f"{LOOPBACK}:{ports.grpc}", options=options)
        self._score = self._unary("Score", turnscore_pb2.ScoreReply)
        self._score_batch = self._unary("ScoreBatch", turnscore_pb2.BatchReply)

    def score(self, item: Item) -> CallAnswer:
        return _call(self._score, turnscore_pb2.ScoreRequest(**as_grpc(item)))

    def score_batch(self, items: Sequence[Item]) -> CallAnswer:
        return _call(self._score_batch, turnscore_pb2.BatchRequest(items=[as_grpc(item) for item in items]))

    def open_stream(self, item: Item, context: Sequence[Mapping[str, str]]) -> "GrpcStream":
        """A live conversation that asks what the item asks, after the turns of `context`."""
        call = self._channel.stream_stream(
            f"{_SERVICE}/ScoreStream",
            request_serializer=turnscore_pb2.ConversationMessage.SerializeToString,
            response_deserializer=turnscore_pb2.ConversationReply.FromString,
        )
        choice = {name: value for name, value in item.items() if name not in ("context", "response")}
        return GrpcStream(call, as_grpc({**choice, "context": context}))

    def close(self) -> None:
        self._channel.close()

    def _unary(self, method: str, reply: type[Message]) -> Any:
        return self._channel.unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )


class GrpcStream:
    """One live conversation. What goes wrong with it is the answer to its next system turn, and the last."""

    def __init__(self, call: Any, opening: Mapping[str, Any]) -> None:
        self._messages: SimpleQueue[Message | None] = SimpleQueue()
        self._replies = call(iter(self._messages.get, None))
        self._problem: CallAnswer | None = None
        self._ask(turnscore_pb2.ConversationMessage(open=opening), "opened")

    @property
    def is_over(self) -> bool:
        return self._problem is not None

    def say(self, turn: Mapping[str, str]) -> None:
        """Says a user's turn."""
        self._ask(turnscore_pb2.ConversationMessage(turn=_turn(turn["speaker"], turn["text"])), "ack")

    def score(self, text: str) -> CallAnswer:
        """Says a system turn."""
        answer = self._ask(turnscore_pb2.ConversationMessage(turn=_turn("system", text)), "scored")
        if answer is None:
            return self._problem or CallAnswer(outcome="failed", why="no scores")
        return judge_grpc("OK", to_fields(answer), answer.ByteSize())

    def close(self) -> None:
        """Says that everything is said; where the service does not end the stream then, leaves."""
        self._messages.put(None)
        if not self.is_over:
            with gevent.Timeout(PATIENCE_SECONDS, False):
                _drain(self._replies)
        self._replies.cancel()

    def _ask(self, message: Message, kind: str) -> Any:
        """The answer of that kind; None where the stream is, or is now, over."""
        if self._problem is not None:
            return None
        self._messages.put(message)
        try:
            with gevent.Timeout(PATIENCE_SECONDS, NoReplyError):
                reply = next(self._replies)
        except grpc.RpcError as error:
            self._problem = _judge_error(error)
        except StopIteration:
            self._problem = CallAnswer(outcome="failed", why="the stream ended")
        except NoReplyError:
            self._problem = CallAnswer(outcome="failed", why="no reply in time")
        else:
            found = reply.WhichOneof("message")
            if found == kind:
                return getattr(reply, found)
            self._problem = CallAnswer(outcome="failed", size=reply.ByteSize(), why=f"{found} instead of {kind}")
        return None


def _drain(replies: Iterator[Any]) -> None:
    try:
        for _ in replies:
            pass
    except grpc.RpcError:
        return  # over, one way or the other


def _call(send: Any, message: Message) -> CallAnswer:
    try:
        reply = send(message, timeout=PATIENCE_SECONDS)
    except grpc.RpcError as error:
        return _judge_error(error)
    return judge_grpc("OK", to_fields(reply), reply.ByteSize())


def _judge_error(error: Any) -> CallAnswer:
    status, trailers = error.code().name, dict(error.trailing_metadata() or ())
    if status == EXPIRED_GRPC_STATUS and _DETAILS not in trailers:
        return CallAnswer(outcome="failed", why="no reply in time")
    return judge_grpc(status, {}, 0, trailers.get(_PUSHBACK))


def _turn(speaker: str, text: str) -> dict[str, str]:
    [turn] = as_grpc({"context": [{"speaker": speaker, "text": text}]})["context"]
    return dict(turn)


CONNECTIONS: Mapping[str, Callable[[Ports], UserConnection]] = MappingProxyType(
    {"http": HttpUserConnection, "grpc": GrpcUserConnection}
)
"""By the API's name on the command line."""
