"""Replaces a reply before it is sent, within a deadline and a budget of calls; in doubt the first reply stands."""

import asyncio
import hashlib
import inspect
import logging
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypedDict, TypeVar, Unpack, get_args

from turnscore_wire import Score, Turn

from turnscore_client import _background, _defaults
from turnscore_client._options import check_names
from turnscore_client._sync import run_now

T = TypeVar("T")
Action = Literal["ask_again", "fallback_model", "hand_over"]
_ACTIONS: tuple[Action, ...] = get_args(Action)
_LOGGER = logging.getLogger("turnscore_client.integrations")


@dataclass(frozen=True, kw_only=True)
class GateEvent:
    """Why a reply is to be replaced: what a function given as `fallback_model` or `hand_over` is called with."""

    messages: Sequence[Mapping[str, Any]]  # OpenAI's, up to the user's last
    reply: str
    score: Score | None  # the reply's; None where it was not asked for, or not there in time
    signal: str | None  # the user's, one of `on_user`
    conversation: str  # as the framework names it; else a digest of the user's first turn


class ReplyOptions(TypedDict, total=False):
    """How a framework's replies are asked for, read and made. Those left out are a plain string's."""

    # Asks the model once more; gets None, or `fallback_model` where that is no function.
    ask: Callable[[Any], Any]
    # None for what is no spoken turn, such as a call of tools: it passes.
    text_of: Callable[[Any], str | None]
    say: Callable[[str], Any]
    # Makes OpenAI's messages of the framework's own.
    convert: _background.Convert
    # Its name; else the user's first turn tells conversations apart.
    conversation: str | None
    # What is left of the deadline.
    seconds: float


_FIRST_MESSAGES = 8  # chosen: a prompt or two, a greeting, and then the user has spoken
_Run = Callable[..., Awaitable[Any]]  # a function, its arguments, and `seconds`: its result, None where it is late


class QualityGate:
    """Decides whether a reply is sent; any thread and any event loop may ask it.

    `on_low` says what is done about a reply that is low: labelled so or, with `min_quality`, of a lower value.
    `on_user` says for which signals of scorer `reaction` something is done about the user's turn: one name, several,
    or what is done by name; else the first of `hand_over` and `fallback_model` that is given, or `ask_again`.

    `ask_again` asks the model once more, and `fallback_model` another one, as the framework takes it; the better of
    both replies is sent. `hand_over` is said instead. Both may be functions, also of asyncio, of a GateEvent, that
    return a text; None leaves the first reply. Calls of models are counted, by conversation and by hour.

    `passed`, `low` and `unknown` count first replies, `signalled` users' turns, `over_budget` calls not made. While the
    service fails again and again the gate stands open for some seconds without asking. Raises ValueError for options
    that make no sense.
    """

    def __init__(
        self,
        on_low: Action | None = None,
        *,
        on_user: str | Iterable[str] | Mapping[str, Action] = (),
        fallback_model: Any = None,
        hand_over: str | Callable[[GateEvent], Any] | None = None,
        min_quality: float | None = None,
        scorer: str = "quality",
        max_calls_per_conversation: int = _defaults.GATE_CALLS_PER_CONVERSATION,
        max_calls_per_hour: int = _defaults.GATE_CALLS_PER_HOUR,
        deadline_seconds: float = _defaults.GATE_DEADLINE_SECONDS,
        **given: Unpack[_background.ServiceOptions],
    ) -> None:
        check_names(given, _background.ServiceOptions.__optional_keys__)
        _background.check_positive("deadline_seconds", deadline_seconds)
        _background.check_positive("max_calls_per_conversation", max_calls_per_conversation)
        _background.check_positive("max_calls_per_hour", max_calls_per_hour)
        self._answers = {"ask_again": None, "fallback_model": fallback_model, "hand_over": hand_over}
        names = (on_user,) if isinstance(on_user, str) else on_user
        likely: Action = "ask_again" if fallback_model is None else "fallback_model"
        likely = likely if hand_over is None else "hand_over"
        self._on_user = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, likely)
        self._on_low = on_low
        self._actions = {*self._on_user.values(), *([on_low] if on_low else [])}
        for action in self._actions:
            if action not in _ACTIONS:
                raise ValueError(f"on_low and on_user must be one of {', '.join(_ACTIONS)}")
            if action != "ask_again" and self._answers[action] is None:
                raise ValueError(f"{action} is missing: on_low or on_user asks for it")
        if not self._actions:
            raise ValueError("on_low or on_user must say what is done")
        if min_quality is not None and (on_low is None or not isinstance(min_quality, int | float)):
            raise ValueError("min_quality must be a number, and needs on_low")
        self.min_quality = min_quality
        self.deadline_seconds = deadline_seconds
        self._scorer = scorer
        self._client = _background.open_client(given, timeout_seconds=deadline_seconds, max_retries=0)
        self._owns_client = given.get("client") is None
        self._threads, self._process = _start_threads(), os.getpid()
        self._budget = _Budget(max_calls_per_conversation, max_calls_per_hour)
        self._failures = 0
        self._open_until = 0.0
        self._has_told = self._has_named = False
        self.passed = self.low = self.unknown = self.signalled = self.over_budget = 0

    def check(self, framework: str, *models: type, can_ask: bool = True) -> None:
        """Raises ValueError where the framework cannot do what is asked, such as asking a model by its name."""
        if "ask_again" in self._actions and not can_ask:
            raise ValueError(f"{framework} cannot ask_again; give a function as fallback_model")
        model = self._answers["fallback_model"]
        if "fallback_model" in self._actions and not callable(model) and not isinstance(model, models):
            raise ValueError(f"{framework} cannot ask such a fallback_model; give a function")

    def choose(self, messages: Iterable[Any], first: T, **given: Unpack[ReplyOptions]) -> T:
        """The reply to send.

        `messages` are OpenAI's, up to the user's last, or a framework's own. What replaces the reply runs in a thread;
        if it is late, it continues and its result is dropped.
        """

        async def run(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
            ends_at = time.monotonic() + seconds
            work = self._submit(function, *arguments)
            try:
                result = work.result(seconds)
                if not inspect.iscoroutine(result):
                    return result
                work = self._submit(asyncio.run, result)
                return work.result(max(0.0, ends_at - time.monotonic()))
            except TimeoutError:
                work.cancel()  # what has not begun would tell people of a conversation that went on
                return None

        async def judge(function: Callable[..., T], *arguments: Any, **_: float) -> T:  # its client keeps the time
            return function(*arguments)

        return run_now(self._choose(messages, first, run, judge, given))

    async def achoose(self, messages: Iterable[Any], first: T, **given: Unpack[ReplyOptions]) -> T:
        """The same for asyncio; what is not there in time is cancelled."""

        async def run(function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
            ends_at = time.monotonic() + seconds
            if function is given.get("ask") or inspect.iscoroutinefunction(function):
                result = function(*arguments)  # on this loop, where the framework's own work runs
            else:
                result = await _within(seconds, asyncio.wrap_future(self._submit(function, *arguments)))
            return await _within(ends_at - time.monotonic(), result) if inspect.isawaitable(result) else result

        return await self._choose(messages, first, run, run, given)

    def close(self) -> None:
        """Ends the threads and, unless it was given, the client; what they are doing is not waited for."""
        self._own_threads().shutdown(wait=False, cancel_futures=True)
        if self._owns_client:
            self._client.close()

    def _own_threads(self) -> ThreadPoolExecutor:
        """A forked child has none of its parent's threads, and starts its own."""
        if self._process != os.getpid():
            self._threads, self._process = _start_threads(), os.getpid()
        return self._threads

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._own_threads().submit(copy_context().run, function, *arguments)

    async def _choose(self, messages: Iterable[Any], first: T, run: _Run, judge: _Run, given: ReplyOptions) -> T:
        check_names(given, ReplyOptions.__optional_keys__)
        if "ask" not in given:
            self.check("a gate without ask", can_ask=False)
        ends_at = time.monotonic() + given.get("seconds", self.deadline_seconds)
        text_of = given.get("text_of", str)

        async def within(runner: _Run, function: Callable[..., Any], *arguments: Any) -> Any:
            left = ends_at - time.monotonic()
            return await runner(function, *arguments, seconds=left) if left > 0 else None

        def text(reply: T | None) -> str:
            return ((text_of(reply) if reply is not None else None) or "").strip()

        try:
            words = text(first)
            if not words:
                return first
            event = await within(judge, self._examine, tuple(messages), words, given, ends_at)
            action = self._decide(event)
            if event is None or action is None:
                return first
            second: T | None = await self._replace(action, event, partial(within, run), given)
            if second is None or not text(second):
                return first
            if action == "hand_over" or event.score is None:
                return second
            other = await within(judge, self._score_reply, event.messages, text(second), ends_at)
            return first if other is not None and other.value < event.score.value else second
        except Exception as error:
            _log_failure(error)
            return first

    def _decide(self, event: GateEvent | None) -> Action | None:
        """What is done about it; counts it."""
        action = None
        if event is not None and event.signal is not None:
            self.signalled += 1
            action = self._on_user[event.signal]
            if action == "hand_over" and not self._budget.hand_over(event):
                return None
        elif self._on_low is not None:
            match None if event is None else self._is_low(event.score):
                case None:
                    self.unknown += 1
                case False:
                    self.passed += 1
                case True:
                    self.low += 1
                    action = self._on_low
        if event is None or action is None or action == "hand_over" or self._budget.take(event.conversation):
            return action
        self.over_budget += 1
        return None

    def _is_low(self, score: Score | None) -> bool | None:
        """None if it is not known."""
        if score is None:
            return None
        if self.min_quality is not None:
            return score.value < self.min_quality
        if score.label is None and not self._has_told:
            self._has_told = True
            _LOGGER.warning("%s labels no reply: the gate needs min_quality, or a calibrated bundle", self._scorer)
        return None if score.label is None else score.label == "low"

    async def _replace(self, action: Action, event: GateEvent, run: _Run, given: ReplyOptions) -> Any:
        """What takes the first reply's place; None where there is nothing, or not in time."""
        answer, say = self._answers[action], given.get("say", str)
        if callable(answer):
            text = await run(answer, event)
            return None if text is None else say(text)
        return say(answer) if action == "hand_over" else await run(given["ask"], answer)

    def _examine(self, messages: Sequence[Any], reply: str, given: ReplyOptions, ends_at: float) -> GateEvent:
        """Asks what there is to know. Runs in a thread."""
        convert = given.get("convert", list)
        recent = list(convert(messages[-_defaults.BACKGROUND_MESSAGES :]))
        signal = self._find_signal(recent, ends_at) if self._on_user else None
        action = self._on_low if signal is None else self._on_user[signal]
        is_compared = action is not None and (signal is None or action != "hand_over")
        return GateEvent(
            messages=recent,
            reply=reply,
            score=self._score_reply(recent, reply, ends_at) if is_compared else None,
            signal=signal,
            conversation=given.get("conversation") or _digest(convert(messages[:_FIRST_MESSAGES])),
        )

    def _find_signal(self, messages: Sequence[Mapping[str, Any]], ends_at: float) -> str | None:
        """The likeliest signal of the user's last turn about which something is done."""
        turns = _background.spoken_turns(_until_user(messages))  # what tools were called for comes after it
        score = self._ask("reaction", turns, ends_at) if turns and turns[-1].speaker == "user" else None
        if score is None:
            return None
        if not self._has_named and (unknown := self._on_user.keys() - score.details.keys()):
            self._has_named = True
            _LOGGER.warning("%s has no signal %s, on which the gate is to act", score.model, ", ".join(sorted(unknown)))
        return next((name for name in score.signals if name in self._on_user), None)

    def _score_reply(self, messages: Sequence[Mapping[str, Any]], reply: str, ends_at: float) -> Score | None:
        return self._ask(
            self._scorer, _background.spoken_turns([*messages, {"role": "assistant", "content": reply}]), ends_at
        )

    def _ask(self, scorer: str, turns: Sequence[Turn], ends_at: float) -> Score | None:
        """The last turn's score; None where there is none in time."""
        seconds = ends_at - time.monotonic()
        if not turns or seconds <= 0 or time.monotonic() < self._open_until:
            return None
        traceparent = _background.current_traceparent()
        try:
            reply = self._client.score(
                context=turns[:-1],
                response=turns[-1].text,
                speaker=turns[-1].speaker,
                scorers=[scorer],
                timeout_seconds=seconds,
                metadata={"traceparent": traceparent} if traceparent else None,
            )
        except Exception as error:
            # After some failures in a row the gate stands open for a while: an unwell service delays no more replies.
            self._failures += 1
            if self._failures >= _defaults.GATE_FAILURES:
                self._failures = 0
                self._open_until = time.monotonic() + _defaults.GATE_OPEN_SECONDS
                _log_failure(error)
            return None
        self._failures = 0
        return reply.scores.get(scorer)


def _until_user(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Those up to the user's last one."""
    last = max((place for place, each in enumerate(messages) if each.get("role") == "user"), default=-1)
    return messages[: last + 1]


class Conversations(OrderedDict[str, T]):
    """What is known of each conversation; the one that was silent longest is forgotten."""

    def __init__(self, begin: Callable[[], T]) -> None:
        super().__init__()
        self._begin = begin

    def __missing__(self, name: str) -> T:
        self[name] = begun = self._begin()
        return begun

    def of(self, name: str) -> T:
        """The conversation's; begun where there is none."""
        found = self[name]
        self.move_to_end(name)
        if len(self) > _defaults.CONVERSATIONS:
            self.popitem(last=False)
        return found


def new_dialogues() -> Conversations[_background.RecentMessages]:
    """The last messages of each conversation."""
    return Conversations(_background.RecentMessages)


class _Budget:
    """Hand-overs, and second calls: when those of the last hour were made, and how many in each conversation."""

    def __init__(self, most_per_conversation: int, most_per_hour: int) -> None:
        self._most_per_conversation, self._most_per_hour = most_per_conversation, most_per_hour
        self._made_at: deque[float] = deque()
        self._by_conversation = Conversations(int)
        self._handed_over = Conversations(str)
        self._lock = threading.Lock()

    def hand_over(self, event: GateEvent) -> bool:
        """Whether the conversation is to be handed over: once for each turn of the user."""
        asked = repr(_until_user(event.messages)[-2:])
        with self._lock:
            is_new = self._handed_over.of(event.conversation) != asked
            self._handed_over[event.conversation] = asked
        return is_new

    def take(self, conversation: str) -> bool:
        """Whether one call more is in the budget; it is then counted."""
        now = time.monotonic()
        with self._lock:
            while self._made_at and now - self._made_at[0] >= 3600:
                self._made_at.popleft()
            made = self._by_conversation.of(conversation)
            if made >= self._most_per_conversation or len(self._made_at) >= self._most_per_hour:
                return False
            self._made_at.append(now)
            self._by_conversation[conversation] = made + 1
            return True


def _digest(messages: Iterable[Mapping[str, Any]]) -> str:
    first = next((message.get("content") for message in messages if message.get("role") == "user"), None)
    return hashlib.sha256(repr(first).encode(errors="replace")).hexdigest()[:32]


def _start_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_defaults.GATE_THREADS, thread_name_prefix="turnscore-gate")


async def _within(seconds: float, waiting: Awaitable[T]) -> T | None:
    """The result, or None if it is late; a slow cancellation is not waited for."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait({task}, timeout=max(0.0, seconds))
        return task.result() if task.done() and not task.cancelled() else None
    finally:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        task.cancel()


def _log_failure(error: Exception) -> None:
    """What went wrong, in a word: an error's message may hold the dialogue's."""
    _LOGGER.warning("the gate let a reply pass unjudged: %s", getattr(error, "code", type(error).__name__))
