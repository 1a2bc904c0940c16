"""Locust's users: who asks, and how often. Each draws its own traffic and reports every call to Locust's statistics."""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, ClassVar

import gevent
import grpc
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPParseError
from google.protobuf.message import Message
from locust import User, task
from locust.env import Environment
from turnscore_wire.v1 import to_fields, turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

from turnscore_load.answers import EXPIRED_GRPC_STATUS, CallAnswer, judge_grpc, judge_http
from turnscore_load.machine import LOOPBACK, port_of
from turnscore_load.traffic import PATIENCE_SECONDS, TYPICAL_PAUSE_SECONDS, Item, Traffic, as_grpc, pause_seconds
from turnscore_load.users.budgets import statistics_name

_PUSHBACK = "grpc-retry-pushback-ms"
_DETAILS = "grpc-status-details-bin"


class HttpUserConnection:
    """One user's connection over HTTP. Its calls raise nothing: what goes wrong is an answer too."""

    kind = "HTTP"  # the request type in Locust's statistics

    def __init__(self, port: int) -> None:
        patience: Any = {"connection_timeout": PATIENCE_SECONDS, "network_timeout": PATIENCE_SECONDS}
        head = {"Content-Type": "application/json"}
        self._client = HTTPClient(LOOPBACK, port, headers=head, concurrency=1, disable_ipv6=True, **patience)

    def ask(self, items: Sequence[Item], *, is_batch: bool = False) -> CallAnswer:
        """For one turn, or for several in one call."""
        path, body = ("/v1/score_batch", {"items": items}) if is_batch else ("/v1/score", items[0])
        try:
            reply = self._client.post(path, json.dumps(body).encode())
            content = bytes(reply.read())
        except (OSError, HTTPParseError) as error:
            return judge_http(0, None, b"", f"no reply: {type(error).__name__}")
        retry_after = reply.get("retry-after")
        return judge_http(reply.status_code, retry_after if isinstance(retry_after, str) else None, content)

    def close(self) -> None:
        self._client.close()


class NoReplyError(Exception):
    """A stream gave no answer in time."""


class GrpcUserConnection:
    """The same over gRPC."""

    kind = "grpc"

    def __init__(self, port: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]  # else all users would share a connection
        self._channel = grpc.insecure_channel(f"{LOOPBACK}:{port}", options=options)
        self._stub = TurnScorerStub(self._channel)  # type: ignore[no-untyped-call]

    def ask(self, items: Sequence[Item], *, is_batch: bool = False) -> CallAnswer:
        given = [as_grpc(item) for item in items]
        try:
            if is_batch:
                reply = self._stub.ScoreBatch(turnscore_pb2.BatchRequest(items=given), timeout=PATIENCE_SECONDS)
            else:
                reply = self._stub.Score(turnscore_pb2.ScoreRequest(**given[0]), timeout=PATIENCE_SECONDS)
        except grpc.RpcError as error:
            return _judge_error(error)
        return judge_grpc("OK", to_fields(reply), reply.ByteSize())

    def open_stream(self, item: Item, context: Sequence[Mapping[str, str]]) -> "GrpcStream":
        """A live conversation that asks what the item asks, after the turns of `context`."""
        choice = {name: value for name, value in item.items() if name not in ("context", "response")}
        return GrpcStream(self._stub.ScoreStream, as_grpc({**choice, "context": context}))

    def close(self) -> None:
        self._channel.close()


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
            with gevent.Timeout(PATIENCE_SECONDS, False), suppress(grpc.RpcError):
                list(self._replies)  # over, one way or the other
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


def _judge_error(error: Any) -> CallAnswer:
    status, trailers = error.code().name, dict(error.trailing_metadata() or ())
    if status == EXPIRED_GRPC_STATUS and _DETAILS not in trailers:
        return CallAnswer(outcome="failed", why="no reply in time")
    return judge_grpc(status, {}, 0, trailers.get(_PUSHBACK))


def _turn(speaker: str, text: str) -> dict[str, str]:
    [turn] = as_grpc({"context": [{"speaker": speaker, "text": text}]})["context"]
    return dict(turn)


UserConnection = HttpUserConnection | GrpcUserConnection
CONNECTIONS: Mapping[str, type[UserConnection]] = {"http": HttpUserConnection, "grpc": GrpcUserConnection}

BATCH_ITEMS = 16
# Chosen: about a third of two cores with the three starter scorers, so that it is felt and leaves capacity.
BATCH_EVERY_SECONDS = 5.0
_MOST_OBEDIENT_SECONDS = 5.0  # a longer advice is cut to this, so that a short run goes on; chosen
_AFTER_FAILURE_SECONDS = 0.1  # so that users of a dead service do not spin; chosen


class FailedAnswerError(Exception):
    """What Locust counts as a failure."""


class ScoringUser(User):
    """A user with a connection and endless seeded dialogues. Refused, it comes back when the service asks it to."""

    abstract = True
    kind: ClassVar[str]  # the name in the statistics, the mix and the budgets
    api: ClassVar[str | None] = None  # the API that this kind uses, whatever the options name
    _numbers: ClassVar[Counter[str]] = Counter()

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        options: Any = environment.parsed_options
        self.pace: float = options.pace
        self._numbers[self.kind] += 1
        self.label = f"{self.kind} {self._numbers[self.kind]}"
        self.traffic = Traffic(options.traffic, self.label)
        api = self.api or options.api
        port = options.grpc_port if api == "grpc" else port_of(environment.host or "")
        self.connection: UserConnection = CONNECTIONS[api](port)

    def on_stop(self) -> None:
        self.connection.close()

    def call(self, send: Callable[[], CallAnswer]) -> None:
        """Makes one call, reports it, and waits as long as a refusal advises."""
        started_at = time.perf_counter()
        answer = send()
        self.environment.events.request.fire(
            request_type=self.connection.kind,
            name=statistics_name(self.kind, answer.outcome),
            response_time=1000 * (time.perf_counter() - started_at),
            response_length=answer.size,
            exception=FailedAnswerError(answer.why) if answer.outcome == "failed" else None,
            context={},
        )
        if answer.outcome == "failed":
            gevent.sleep(_AFTER_FAILURE_SECONDS)
        elif answer.retry_after_seconds is not None:
            gevent.sleep(min(answer.retry_after_seconds, _MOST_OBEDIENT_SECONDS))


class ConversationUser(ScoringUser):
    """A chatbot with one person in front of it: scores each of its turns as soon as the person has typed theirs."""

    kind = "conversation"
    _words_to_read = 0

    def on_start(self) -> None:
        """Comes somewhere within a pause, so that users who start together do not speak together."""
        gevent.sleep(TYPICAL_PAUSE_SECONDS / self.pace * random.Random(self.label).random())

    @task
    def converse(self) -> None:
        """One turn of the dialogue: the person reads the last answer, types, and is answered."""
        ask = self.traffic.next_ask()
        gevent.sleep(pause_seconds(self._words_to_read, ask.user_words, self.pace))
        self.ask_for(ask.item)
        self._words_to_read = ask.system_words

    def ask_for(self, item: Item) -> None:
        """Has the chatbot's turn scored."""
        self.call(lambda: self.connection.ask([item]))


class GrpcUser(ConversationUser):
    """The same chatbot, scoring over gRPC."""

    kind = "grpc"
    api = "grpc"


class StreamUser(ConversationUser):
    """A chatbot that holds a live conversation open over gRPC for every dialogue, and says each turn once.

    What is timed is each of its system turns, from being said to its scores.
    """

    kind = "stream"
    api = "grpc"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._stream: GrpcStream | None = None
        self._said: list[dict[str, str]] = []

    def ask_for(self, item: Item) -> None:
        """Says the person's turn and the chatbot's; opens another stream where another dialogue begins."""
        *before, typed = item["context"]
        if self._stream is None or self._stream.is_over or before != self._said:
            self.leave()
            assert isinstance(self.connection, GrpcUserConnection)
            self._stream = self.connection.open_stream(item, before)
        stream = self._stream
        stream.say(typed)
        self.call(lambda: stream.score(item["response"]))
        self._said = [*item["context"], {"speaker": "system", "text": item["response"]}]

    def leave(self) -> None:
        """Ends the stream, if one is open."""
        if self._stream is not None:
            self._stream.close()

    def on_stop(self) -> None:
        self.leave()
        super().on_stop()


class FloodUser(ScoringUser):
    """Somebody who scores turn after turn without a pause."""

    kind = "flood"

    @task
    def flood(self) -> None:
        items = [self.traffic.next_ask().item]
        self.call(lambda: self.connection.ask(items))


class BatchUser(ScoringUser):
    """Somebody who scores 16 turns every few seconds, as a dashboard does."""

    kind = "batch"

    @task
    def score_batch(self) -> None:
        """One batch, and a pause until the next is due."""
        due_at = time.monotonic() + BATCH_EVERY_SECONDS / self.pace
        items = [self.traffic.next_ask().item for _ in range(BATCH_ITEMS)]
        self.call(lambda: self.connection.ask(items, is_batch=True))
        gevent.sleep(max(0.0, due_at - time.monotonic()))


USERS: dict[str, type[ScoringUser]] = {
    each.kind: each for each in (ConversationUser, FloodUser, BatchUser, GrpcUser, StreamUser)
}
