"""Locust's users: who asks, and how often. Each draws its own traffic and reports every call to Locust's statistics."""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import gevent
from locust import User, task
from locust.env import Environment

from turnscore_load.answers import CallAnswer
from turnscore_load.machine import Ports, port_of
from turnscore_load.traffic import TYPICAL_PAUSE_SECONDS, Item, Traffic, TrafficSettings, pause_seconds
from turnscore_load.users.budgets import statistics_name
from turnscore_load.users.connections import CONNECTIONS, GrpcStream, GrpcUserConnection, UserConnection

BATCH_ITEMS = 16
BATCH_EVERY_SECONDS = 5.0
"""Chosen: about a third of two cores with the three starter scorers, so that it is felt and leaves capacity."""
_MOST_OBEDIENT_SECONDS = 5.0
"""A longer advice is cut to this, so that a short run goes on. Chosen."""
_AFTER_FAILURE_SECONDS = 0.1
"""So that users of a dead service do not spin. Chosen."""


class FailedAnswerError(Exception):
    """What Locust counts as a failure."""


class ScoringUser(User):
    """A user with a connection and endless seeded dialogues. Refused, it comes back when the service asks it to."""

    abstract = True
    kind: ClassVar[str]
    """The name in the statistics, the mix and the budgets."""
    api: ClassVar[str | None] = None
    """The API that this kind uses, whatever the options name."""
    _numbers: ClassVar[Counter[str]] = Counter()

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        options: Any = environment.parsed_options
        self.pace: float = options.pace
        self._numbers[self.kind] += 1
        self.label = f"{self.kind} {self._numbers[self.kind]}"
        settings = TrafficSettings(
            seed=options.seed,
            repeat_share=options.repeat_share,
            scorers=options.scorers,
            deadline_ms=options.deadline_ms,
        )
        self.traffic = Traffic(settings, self.label)
        ports = Ports(port_of(environment.host or ""), options.grpc_port)
        self.connection: UserConnection = CONNECTIONS[self.api or options.api](ports)

    def on_stop(self) -> None:
        """Ends the connection."""
        self.connection.close()

    def call(self, send: Callable[[UserConnection], CallAnswer]) -> None:
        """Makes one call, reports it, and waits as long as a refusal advises."""
        started_at = time.perf_counter()
        answer = send(self.connection)
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
        self.call(lambda connection: connection.score(item))


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
        self.call(lambda _: stream.score(item["response"]))
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
        """One turn."""
        ask = self.traffic.next_ask()
        self.call(lambda connection: connection.score(ask.item))


class BatchUser(ScoringUser):
    """Somebody who scores 16 turns every few seconds, as a dashboard does."""

    kind = "batch"

    @task
    def score_batch(self) -> None:
        """One batch, and a pause until the next is due."""
        due_at = time.monotonic() + BATCH_EVERY_SECONDS / self.pace
        items = [self.traffic.next_ask().item for _ in range(BATCH_ITEMS)]
        self.call(lambda connection: connection.score_batch(items))
        gevent.sleep(max(0.0, due_at - time.monotonic()))


USERS: dict[str, type[ScoringUser]] = {
    each.kind: each for each in (ConversationUser, FloodUser, BatchUser, GrpcUser, StreamUser)
}
