"""Locust's users: who asks, and how often. Each draws its own traffic and reports every call to Locust's statistics."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gevent
import grpc
import turnscore_client as client
from locust import User, task
from locust.env import Environment
from pydantic import BaseModel

from turnscore_load.answers import CallAnswer, judge_fields
from turnscore_load.machine import LOOPBACK, port_of
from turnscore_load.traffic import PATIENCE_SECONDS, TYPICAL_PAUSE_SECONDS, Item, Traffic, pause_seconds
from turnscore_load.users.budgets import statistics_name

Client = client.TurnScoreClient | client.TurnScoreGrpcClient
_PATIENT: Any = {"timeout_seconds": PATIENCE_SECONDS, "max_retries": 0}


def _over_grpc(port: int) -> client.TurnScoreGrpcClient:
    options = [("grpc.use_local_subchannel_pool", 1)]  # else all users would share a connection
    target = f"{LOOPBACK}:{port}"
    return client.TurnScoreGrpcClient(target, channel=grpc.insecure_channel(target, options=options), **_PATIENT)


CLIENTS: Mapping[str, Callable[[int], Client]] = {
    "http": lambda port: client.TurnScoreClient(f"http://{LOOPBACK}:{port}", **_PATIENT),
    "grpc": _over_grpc,
}


def judge_client(call: Callable[[], BaseModel | None]) -> CallAnswer:
    """The answer that a client's reply or error is."""
    try:
        reply = call()
    except client.TurnScoreError as error:
        return judge_error(error)
    return judge_fields(reply.model_dump() if reply else None, "OK")


def _fail(error: client.TurnScoreError) -> None:
    raise error


def judge_error(error: client.TurnScoreError) -> CallAnswer:
    if isinstance(error, client.OverloadedError) and error.retry_after_ms is not None:
        return CallAnswer(outcome="refused", retry_after_seconds=error.retry_after_ms / 1000)
    if (
        isinstance(error, client.DeadlineExceededError) and error.request_id
    ):  # the service's own, not the client's patience
        return CallAnswer(outcome="expired")
    return CallAnswer(outcome="failed", why=error.code)


BATCH_ITEMS = 16
# Chosen: about a third of two cores with the three starter scorers, so that it is felt and leaves capacity.
BATCH_EVERY_SECONDS = 5.0
_AFTER_FAILURE_SECONDS = 0.1  # so that users of a dead service do not spin; chosen


class FailedAnswerError(Exception):
    """What Locust counts as a failure."""


class ScoringUser(User):
    """A user with a client and endless seeded dialogues. Refused, it comes back when the service asks it to."""

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
        self._api: str = self.api or options.api
        port = options.grpc_port if self._api == "grpc" else port_of(environment.host or "")
        self.client = CLIENTS[self._api](port)

    def on_stop(self) -> None:
        self.client.close()

    def call(self, send: Callable[[], BaseModel | None]) -> CallAnswer:
        """Makes one call, reports it, and waits as long as a refusal advises."""
        started_at = time.perf_counter()
        answer = judge_client(send)
        self.environment.events.request.fire(
            request_type=self._api,
            name=statistics_name(self.kind, answer.outcome),
            response_time=1000 * (time.perf_counter() - started_at),
            response_length=0,
            exception=FailedAnswerError(answer.why) if answer.outcome == "failed" else None,
            context={},
        )
        if answer.outcome == "failed":
            gevent.sleep(_AFTER_FAILURE_SECONDS)
        elif answer.retry_after_seconds is not None:
            # a longer advice is cut to this, so that a short run goes on; chosen
            gevent.sleep(min(answer.retry_after_seconds, 5.0))
        return answer


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
        self.call(lambda: self.client.score(**item))


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

    _stream: client.Conversation | None = None
    _said: Sequence[Mapping[str, str]] = ()

    def ask_for(self, item: Item) -> None:
        """Says the person's turn and the chatbot's; opens another stream where another dialogue begins."""
        send: Callable[[], BaseModel | None]
        try:
            send = partial(self._say(item).say, "system", item["response"])
        except client.TurnScoreError as error:  # is the answer to the chatbot's turn
            send = partial(_fail, error)
        self._said = [*item["context"], {"speaker": "system", "text": item["response"]}]
        if self.call(send).outcome != "answered":
            self.leave()

    def _say(self, item: Item) -> client.Conversation:
        """The stream in which the person's turn was said."""
        *before, typed = item["context"]
        if self._stream is None or before != self._said:
            self.leave()
            choice = {name: value for name, value in item.items() if name not in ("context", "response")}
            self._stream = self.client.conversation(context=before, max_reopenings=0, **choice)
            self._stream.__enter__()
        self._stream.say("user", typed["text"])
        return self._stream

    def leave(self) -> None:
        """Ends the stream, if one is open."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def on_stop(self) -> None:
        self.leave()
        super().on_stop()


class FloodUser(ScoringUser):
    """Somebody who scores turn after turn without a pause."""

    kind = "flood"

    @task
    def flood(self) -> None:
        item = self.traffic.next_ask().item
        self.call(lambda: self.client.score(**item))


class BatchUser(ScoringUser):
    """Somebody who scores 16 turns every few seconds, as a dashboard does."""

    kind = "batch"

    @task
    def score_batch(self) -> None:
        """One batch, and a pause until the next is due."""
        due_at = time.monotonic() + BATCH_EVERY_SECONDS / self.pace
        items = [self.traffic.next_ask().item for _ in range(BATCH_ITEMS)]
        self.call(lambda: self.client.score_batch(items))
        gevent.sleep(max(0.0, due_at - time.monotonic()))


USERS: dict[str, type[ScoringUser]] = {
    each.kind: each for each in (ConversationUser, FloodUser, BatchUser, GrpcUser, StreamUser)
}
