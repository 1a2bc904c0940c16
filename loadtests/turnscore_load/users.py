"""The users of a load test: who asks and how often, how many there are when, and the budgets that a run must keep.

All live in one event loop. Each has a client and a connection of its own, and endless seeded dialogues.
"""

import asyncio
import random
import tomllib
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import grpc
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, TypeAdapter
from turnscore_client import (
    AsyncConversation,
    AsyncTurnScoreClient,
    AsyncTurnScoreGrpcClient,
    DeadlineExceededError,
    OverloadedError,
    TurnScoreError,
)

from turnscore_load.answers import OUTCOMES, CallAnswer, CallRecord, Stage, judge_fields
from turnscore_load.machine import LOOPBACK, ScenarioError
from turnscore_load.traffic import (
    PATIENCE_SECONDS,
    TYPICAL_PAUSE_SECONDS,
    Item,
    Traffic,
    TrafficSettings,
    pause_seconds,
)

BUDGETS = Path(__file__).parents[1] / "budgets.toml"
# Chosen: people whose chatbots must be quick, while somebody else keeps two cores busy.
DEFAULT_MIX = "conversation=24,flood=1,batch=1"
MAX_USERS = 256  # chosen: far more than two cores can serve, few enough for one generator
MAX_SECONDS = 7200  # chosen: no run is left behind for longer than two hours

BATCH_ITEMS = 16
# Chosen: about a third of two cores with the three starter scorers, so that it is felt and leaves capacity.
BATCH_EVERY_SECONDS = 5.0
_MOST_OBEDIENT_SECONDS = 5.0  # a longer advice is cut to this, so that a short run goes on; chosen
_AFTER_FAILURE_SECONDS = 0.1  # so that users of a dead service do not spin; chosen
_TICK_SECONDS = 0.1  # how late a user may come or leave

ClientApi = Literal["http", "grpc"]
Client = AsyncTurnScoreClient | AsyncTurnScoreGrpcClient


@dataclass(frozen=True, kw_only=True)
class UserSettings:
    """What all users of a run share; `pace` 2 makes people twice as fast as they are."""

    port: int
    grpc_port: int
    api: ClientApi
    pace: float
    traffic: TrafficSettings

    def open_client(self, api: ClientApi) -> Client:
        patient: Any = {"timeout_seconds": PATIENCE_SECONDS, "max_retries": 0}
        if api == "http":
            return AsyncTurnScoreClient(f"http://{LOOPBACK}:{self.port}", **patient)
        options = [("grpc.use_local_subchannel_pool", 1)]  # else all users would share a connection
        target = f"{LOOPBACK}:{self.grpc_port}"
        return AsyncTurnScoreGrpcClient(target, channel=grpc.aio.insecure_channel(target, options=options), **patient)


async def judge_call(call: Awaitable[BaseModel | None]) -> CallAnswer:
    """The answer that a client's reply or error is."""
    try:
        reply = await call
    except OverloadedError as error:
        if error.retry_after_ms is not None:
            return CallAnswer(outcome="refused", retry_after_seconds=error.retry_after_ms / 1000)
        return CallAnswer(outcome="failed", why=error.code)
    except TurnScoreError as error:
        if isinstance(error, DeadlineExceededError) and error.request_id:  # the service's own, not the patience of ours
            return CallAnswer(outcome="expired")
        return CallAnswer(outcome="failed", why=error.code)
    return judge_fields(reply.model_dump() if reply else None, "OK")


async def _fail(error: TurnScoreError) -> None:
    raise error


class User:
    """One who asks until it is to leave, and leaves between two calls. Refused, it comes back when it is told to."""

    kind: ClassVar[str]  # the name in the report, the mix and the budgets
    api: ClassVar[ClientApi | None] = None  # the API that this kind uses, whatever the options name

    def __init__(self, number: int, settings: UserSettings, calls: list[CallRecord]) -> None:
        """Adds its calls to those of its kind."""
        label = f"{self.kind} {number}"
        self.traffic, self.chance = Traffic(settings.traffic, label), random.Random(label)
        self.pace = settings.pace
        self.client = settings.open_client(self.api or settings.api)
        self.leaving = asyncio.Event()
        self._calls = calls

    async def live(self) -> None:
        try:
            await self.arrive()
            while not self.leaving.is_set():
                await self.act()
        finally:
            await self.client.aclose()

    async def arrive(self) -> None:
        """What it does once, before it asks."""

    async def act(self) -> None:
        """One call, and the pauses that belong to it."""
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        """Waits so long, but not once it is to leave."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.leaving.wait(), seconds)

    async def call(self, call: Awaitable[BaseModel | None]) -> CallAnswer:
        """Makes one call, keeps what became of it, and waits as long as a refusal advises."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        answer = await judge_call(call)
        self._calls.append(CallRecord(due_at=began_at, sent_at=began_at, done_at=loop.time(), answer=answer))
        if answer.outcome == "failed":
            await self.pause(_AFTER_FAILURE_SECONDS)
        elif answer.retry_after_seconds is not None:
            await self.pause(min(answer.retry_after_seconds, _MOST_OBEDIENT_SECONDS))
        return answer


class ConversationUser(User):
    """A chatbot with one person in front of it: scores each of its turns as soon as the person has typed theirs."""

    kind = "conversation"
    _words_to_read = 0

    async def arrive(self) -> None:
        """Comes somewhere within a pause, so that users who start together do not speak together."""
        await self.pause(TYPICAL_PAUSE_SECONDS / self.pace * self.chance.random())

    async def act(self) -> None:
        """One turn of the dialogue: the person reads the last answer, types, and is answered."""
        ask = self.traffic.next_ask()
        await self.pause(pause_seconds(self._words_to_read, ask.user_words, self.pace))
        if not self.leaving.is_set():
            await self.ask_for(ask.item)
            self._words_to_read = ask.system_words

    async def ask_for(self, item: Item) -> None:
        """Has the chatbot's turn scored."""
        await self.call(self.client.score(**item))


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

    _stream: AsyncConversation | None = None
    _said: Sequence[Mapping[str, str]] = ()

    async def ask_for(self, item: Item) -> None:
        """Says the person's turn and the chatbot's; opens another stream where another dialogue begins."""
        try:
            stream = await self._say(item)
        except TurnScoreError as error:  # is the answer to the chatbot's turn
            answer = await self.call(_fail(error))
        else:
            answer = await self.call(stream.say("system", item["response"]))
        self._said = [*item["context"], {"speaker": "system", "text": item["response"]}]
        if answer.outcome != "answered":
            await self._leave()

    async def _say(self, item: Item) -> AsyncConversation:
        """The stream in which the person's turn was said."""
        *before, typed = item["context"]
        if self._stream is None or before != self._said:
            await self._leave()
            choice = {name: value for name, value in item.items() if name not in ("context", "response")}
            self._stream = self.client.conversation(context=before, max_reopenings=0, **choice)
            await self._stream.__aenter__()
        await self._stream.say("user", typed["text"])
        return self._stream

    async def _leave(self) -> None:
        if self._stream is not None:
            await self._stream.close()
            self._stream = None

    async def live(self) -> None:
        try:
            await super().live()
        finally:
            await self._leave()


class FloodUser(User):
    """Somebody who scores turn after turn without a pause."""

    kind = "flood"

    async def act(self) -> None:
        await self.call(self.client.score(**self.traffic.next_ask().item))


class BatchUser(User):
    """Somebody who scores 16 turns every few seconds, as a dashboard does."""

    kind = "batch"

    async def act(self) -> None:
        loop = asyncio.get_running_loop()
        due_at = loop.time() + BATCH_EVERY_SECONDS / self.pace
        await self.call(self.client.score_batch([self.traffic.next_ask().item for _ in range(BATCH_ITEMS)]))
        await self.pause(max(0.0, due_at - loop.time()))


USERS: Mapping[str, type[User]] = {
    each.kind: each for each in (ConversationUser, FloodUser, BatchUser, GrpcUser, StreamUser)
}


def read_mix(text: str) -> dict[str, int]:
    """`conversation=24,flood=1` as a mapping, kinds with 0 left out. Raises ScenarioError for anything else."""
    mix: dict[str, int] = {}
    for part in text.split(","):
        kind, _, number = part.strip().partition("=")
        if kind not in USERS or kind in mix or not number.isdecimal():
            raise ScenarioError(f"a mix is KIND=NUMBER,... with each of {', '.join(sorted(USERS))} at most once")
        mix[kind] = int(number)
    if not 1 <= sum(mix.values()) <= MAX_USERS:
        raise ScenarioError(f"a mix needs at least one user, and has at most {MAX_USERS}")
    return {kind: users for kind, users in mix.items() if users}


ShapeName = Literal["steady", "ramp", "spike", "soak"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)
_RAMP_STEPS = 20
_SPIKE_BASE = 5
_SOAK_RISE = 0.05


def users_at(shape: ShapeName, users: int, part: float) -> int:
    """How many of the users are there when that part of the time is over.

    steady: all from the start. ramp: up to all in 20 equal steps. spike: a fifth, in the middle third of the time all
    at once. soak: all after the first twentieth of the time.
    """
    if shape == "ramp":
        return max(1, round(users * (int(part * _RAMP_STEPS) + 1) / _RAMP_STEPS))
    if shape == "spike" and not 1 / 3 <= part < 2 / 3:
        return max(1, users // _SPIKE_BASE)
    if shape == "soak" and part < _SOAK_RISE:
        return max(1, round(users * part / _SOAK_RISE))
    return users


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What became of the calls of one kind of user. The times are those of the answered ones, in milliseconds."""

    kind: str
    seconds: float
    answered: int
    refused: int
    expired: int
    failed: int
    p50_ms: float
    p95_ms: float
    p99_ms: float

    @property
    def answered_per_second(self) -> float:
        return self.answered / self.seconds

    def share(self, count: int) -> float:
        """That many calls as a share of all; 0 where there were none."""
        return count / max(1, self.answered + self.refused + self.expired + self.failed)


async def run_users(
    settings: UserSettings, mix: Mapping[str, int], shape: ShapeName, seconds: float
) -> dict[str, Stage]:
    """The calls of each kind of user. The first users, however many, have about the same mix as all of them."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    calls: dict[str, list[CallRecord]] = {kind: [] for kind in mix}
    order = sorted(
        ((number - 0.5) / count, kind, number) for kind, count in mix.items() for number in range(1, count + 1)
    )
    here: list[User] = []
    async with asyncio.TaskGroup() as living:
        while (part := (loop.time() - began_at) / seconds) < 1:
            wanted = users_at(shape, len(order), part)
            for _, kind, number in order[len(here) : wanted]:
                here.append(user := USERS[kind](number, settings, calls[kind]))
                living.create_task(user.live())
            for user in here[wanted:]:
                user.leaving.set()
            del here[wanted:]
            await asyncio.sleep(min(_TICK_SECONDS, (1 - part) * seconds))
        for user in here:
            user.leaving.set()
    return {kind: Stage(own, began_at, seconds) for kind, own in calls.items()}


def measure(stages: Mapping[str, Stage]) -> list[Measured]:
    """What each kind of user saw, in that order."""
    found = []
    for kind, stage in stages.items():
        counts = {outcome: stage.count(outcome) for outcome in OUTCOMES}
        p50, p95, p99 = (stage.took_ms(percent, "answered") for percent in (50, 95, 99))
        found.append(Measured(kind=kind, seconds=stage.seconds, **counts, p50_ms=p50, p95_ms=p95, p99_ms=p99))
    return found


Share = Annotated[float, Field(ge=0, le=1)]


class Budget(BaseModel):
    """What one kind of user must see in one shape. Times are those of answered calls; shares are of all its calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    p50_ms: PositiveFloat
    p95_ms: PositiveFloat
    p99_ms: PositiveFloat
    max_failed_share: Share
    max_refused_share: Share
    max_expired_share: Share
    min_answered_per_second: NonNegativeFloat

    def broken_by(self, measured: Measured) -> list[str]:
        """A sentence for everything that was not kept; empty when all was."""
        if not measured.answered:
            return [f"{measured.kind}: not one call was answered"]
        broken = []
        for name in ("p50", "p95", "p99"):
            value, most = (getattr(each, f"{name}_ms") for each in (measured, self))
            if value > most:
                broken.append(f"{measured.kind}: {name} was {value:g} ms, the budget is {most:g} ms")
        for name, said in (("failed", "failed"), ("refused", "were refused"), ("expired", "expired")):
            share, most = measured.share(getattr(measured, name)), getattr(self, f"max_{name}_share")
            if share > most:
                told = f"{100 * share:.2g} % of the calls {said}, the budget is {100 * most:g} %"
                broken.append(f"{measured.kind}: {told}")
        if measured.answered_per_second < self.min_answered_per_second:
            broken.append(
                f"{measured.kind}: {measured.answered_per_second:.2f} answered per second, "
                f"the budget is {self.min_answered_per_second:g}"
            )
        return broken


Budgets = Mapping[ShapeName, Mapping[str, Budget]]  # by shape and kind of user


def read_budgets(file: Path) -> Budgets:
    """The budgets of a file. Raises ScenarioError, which names the line's path, where one is wrong or missing."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
        return TypeAdapter(dict[ShapeName, dict[str, Budget]]).validate_python(found)
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{file}: {error}") from None


def broken_budgets(budgets: Budgets, shape: ShapeName, rows: Sequence[Measured]) -> list[str]:
    """A sentence for everything that the run did not keep; a kind without a budget is one of them."""
    broken = []
    for row in rows:
        budget = budgets.get(shape, {}).get(row.kind)
        broken += budget.broken_by(row) if budget else [f"{row.kind}: there is no budget for it in {shape}"]
    return broken
