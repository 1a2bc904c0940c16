"""Holds very many live conversations open over gRPC at the pace of people, and cuts some of them in the middle.

The order: a few streams, so that what is made once is there; the service at rest; all streams open and silent; all of
them talking; half-way, some are cut while a turn of theirs is being scored, and the others go on to their end; nothing
open; and some rounds in which as many are opened and all cut, to see whether their memory is used again.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Any, Self, TypeVar

import grpc
import psutil
import typer
from turnscore_wire.v1 import turnscore_pb2

from turnscore_load.answers import percentile
from turnscore_load.machine import LOOPBACK, Ports
from turnscore_load.results import Check, ScenarioResult, table
from turnscore_load.sampling import ProcessSample, Sampler, write_csv
from turnscore_load.scenarios.steady import REPORTS, GrpcPort, Host, Pace, Port, Program, Reports, announced_target
from turnscore_load.services import BENTOML, cpu_seconds_of, metric
from turnscore_load.traffic import PATIENCE_SECONDS, TYPICAL_PAUSE_SECONDS, Traffic, TrafficSettings, pause_seconds

_T = TypeVar("_T")
_SETTINGS = {"TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0"}
"""Of a service that is started for it: no turn comes twice, and a cache that fills would count as memory that stays."""
_STREAM_PATH = "/turnscore.v1.TurnScorer/ScoreStream"
MOST_STREAMS = 2000
ROUNDS = 3
"""The first asks for more at once than anything before: a turn of every stream. The others are like it. Chosen."""
_WARM_UP_STREAMS = 20
_WARM_UP_EXCHANGES = 3
_SAMPLE_SECONDS = 0.25
_GONE_SECONDS = 10.0
"""How long the service may take to notice that a stream is gone. Chosen."""
_AT_WORK = ("turnscore_items_in_flight", "turnscore_tokens_in_flight", "turnscore_queued_items")

MOST_P99_MS = 1000.0
"""What a chatbot may wait for the scores of its turn before it is felt. Chosen."""
MOST_STREAM_KIB = 128.0
"""Memory of one open stream. Chosen, about twice what was measured (docs/benchmarks.md)."""
MOST_GROWTH = 0.02
"""Memory is a high-water mark; as in the soak."""
_KIB, _MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsSettings:
    """What is done. Of the connections the first `cut_share` are cut, with all streams on them."""

    streams: int = 1000
    connections: int = 50
    seconds: float = 60.0
    """How long they talk."""
    pace: float = 1.0
    """2 is twice as fast as people are."""
    cut_share: float = 0.3
    scorers: tuple[str, ...] = ("engagement",)
    seed: int = 1
    settle_seconds: float = 4.0
    """How long the service is left alone before its memory is read."""

    def __post_init__(self) -> None:
        if not 1 <= self.streams <= MOST_STREAMS or not 2 <= self.connections <= self.streams:
            raise ValueError(f"1 to {MOST_STREAMS} streams, over 2 connections up to one for each")
        if not 0 < self.cut_share < 1 or self.pace <= 0 or self.seconds <= 0 or not self.scorers:
            raise ValueError("the share that is cut lies between 0 and 1, pace and seconds above 0; name a scorer")


@dataclass(kw_only=True)
class StreamTally:
    """What became of the messages of all streams."""

    said: int = 0
    """System turns that were said and whose answer was waited for."""
    heard: int = 0
    took_ms: list[float] = field(default_factory=list)
    """Of every system turn that was scored, from being said to its scores."""
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        return len(self.took_ms)


@dataclass(frozen=True, slots=True)
class Moment:
    """The service at one moment: memory of all its processes, streams it holds open, and turns and tokens in work."""

    rss_bytes: float
    open_streams: float
    at_work: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRun:
    """Everything that was measured."""

    settings: StreamsSettings
    processes: int
    rest: Moment
    silent: Moment
    talking: Moment
    """Just before the cut, all streams being open."""
    cut: Moment
    """Once the service has noticed the cut, or should have; the other streams go on."""
    cut_streams: int
    finished: int
    """Streams that said all they had to and ended well."""
    generator_cpus: float
    service_cpus: float
    closed: Moment
    rounds: Sequence[Moment]
    """After each of the rounds in which as many streams are opened and all cut."""
    tally: StreamTally
    samples: Sequence[ProcessSample]


def main(
    number: Annotated[int, typer.Option("--streams", help="Conversations open at once.")] = 1000,
    connections: Annotated[int, typer.Option(help="Connections that they share.")] = 50,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Seconds for which they talk.")] = 60.0,
    pace: Pace = 1.0,
    cut_share: Annotated[float, typer.Option(help="Share of the connections that is cut in the middle.")] = 0.3,
    workers: Annotated[int, typer.Option(min=1, max=16, help="Workers of the service, where one is started.")] = 2,
    scorers: Annotated[str, typer.Option(help="Scorers, separated by commas.")] = "engagement",
    seed: Annotated[int, typer.Option(help="Seed of the traffic.")] = 1,
    settle_seconds: Annotated[float, typer.Option(min=0.5, help="Rest before memory is read.")] = 4.0,
    host: Host = LOOPBACK,
    port: Port = 3000,
    grpc_port: GrpcPort = 50_051,
    bentoml: Program = BENTOML,
    reports: Reports = REPORTS,
) -> ScenarioResult:
    """Check that all streams are answered, and that none of them leaves anything behind."""
    names = tuple(name.strip() for name in scorers.split(",") if name.strip())
    try:
        settings = StreamsSettings(
            streams=number, connections=connections, seconds=seconds, pace=pace, cut_share=cut_share, scorers=names,
            seed=seed, settle_seconds=settle_seconds,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    own = {**_SETTINGS, "TURNSCORE_WORKERS": str(workers)}
    with announced_target(host, port, bentoml, reports, grpc_port, own) as service:
        test = StreamsTest(Ports(service.port, service.grpc_port), service.processes(), settings)
        run = asyncio.run(test.run())
    write_csv(run.samples, reports / "streams_samples.csv")
    return ScenarioResult(scenario="streams", parts=report(run), checks=checks(run))


class WrongReplyError(Exception):
    """A reply that the message it answers must not get; a sentence of a few, without what was said."""


def check_reply(reply: Any, kind: str, index: int, scorers: Sequence[str]) -> None:
    """Raises WrongReplyError for anything but the one right answer to the turn of that index."""
    found = reply.WhichOneof("message")
    if found != kind:
        raise WrongReplyError(f"{found or 'a message of no known kind'} instead of {kind}")
    answer = getattr(reply, found)
    if found == "opened":
        return
    if answer.index != index:
        raise WrongReplyError("an answer out of order")
    if found == "scored":
        if answer.errors:
            codes = sorted({turnscore_pb2.ErrorCode.Name(each.code) for each in answer.errors.values()})
            raise WrongReplyError(f"not scored: {', '.join(codes)}")
        if set(answer.scores) != set(scorers):
            raise WrongReplyError("not every scorer answered")


class TalkingStream:
    """One stream. Its calls raise nothing of the service's doing: the tally has the problem, and the stream is over."""

    def __init__(
        self, channel: grpc.aio.Channel, traffic: Traffic, scorers: Sequence[str], tally: StreamTally, label: str
    ) -> None:
        self.channel = channel
        self.is_over = False
        self._traffic, self._scorers, self._tally = traffic, scorers, tally
        self._chance = random.Random(label)
        self._words_to_read = 0
        self._turns = 0
        self._call: Any = channel.stream_stream(
            _STREAM_PATH,
            request_serializer=turnscore_pb2.ConversationMessage.SerializeToString,
            response_deserializer=turnscore_pb2.ConversationReply.FromString,
        )()

    async def open(self) -> None:
        """Returns when the service has said that the conversation is open."""
        await self._ask(turnscore_pb2.ConversationMessage(open={"scorers": self._scorers}), "opened")

    async def talk(self, until: float, pace: float) -> None:
        """Exchanges turns with pauses as people make them, up to that moment of the event loop's clock."""
        await self._pause(TYPICAL_PAUSE_SECONDS / pace * self._chance.random(), until)
        while not self.is_over and time.monotonic() < until:
            ask = self._traffic.next_ask()
            if await self._pause(pause_seconds(self._words_to_read, ask.user_words, pace), until):
                await self.exchange(ask.item["context"][-1]["text"], ask.item["response"])
            self._words_to_read = ask.system_words

    async def exchange(self, user_text: str, system_text: str) -> None:
        """The person's turn, and the chatbot's answer to it, which is scored."""
        await self._ask(_turn("SPEAKER_USER", user_text), "ack")
        if self.is_over:
            return
        self._tally.heard += 1
        self._tally.said += 1
        said_at = time.perf_counter()
        await self._ask(_turn("SPEAKER_SYSTEM", system_text), "scored")
        if not self.is_over:
            self._tally.took_ms.append(1000 * (time.perf_counter() - said_at))

    async def say_and_leave_unanswered(self) -> None:
        """Says a system turn, for a stream that is cut before its answer."""
        try:
            await self._call.write(_turn("SPEAKER_SYSTEM", self._traffic.next_ask().item["response"]))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            self._fail(error)

    def cancel(self) -> None:
        """Goes without a word."""
        self.is_over = True
        self._call.cancel()

    async def finish(self) -> bool:
        """Says that everything is said; whether the service ended the stream as it should."""
        if self.is_over:
            return False
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._call.done_writing()
                last = await self._call.read()
                code = await self._call.code()
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            self._fail(error)
            return False
        self.is_over = True
        return last is grpc.aio.EOF and code == grpc.StatusCode.OK

    async def _ask(self, message: Any, kind: str) -> None:
        """Sends one message and takes its answer, which must be of that kind and the next in order."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._call.write(message)
                reply = await self._call.read()
            if reply is grpc.aio.EOF:
                raise WrongReplyError(f"the stream ended: {(await self._call.code()).name}")
            check_reply(reply, kind, self._turns, self._scorers)
        except (grpc.aio.AioRpcError, WrongReplyError, TimeoutError, asyncio.InvalidStateError) as error:
            self._fail(error)
        else:
            self._turns += kind != "opened"

    def _fail(self, error: Exception) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            self._tally.problems[f"status {error.code().name}"] += 1
        else:
            self._tally.problems[str(error) or f"no answer: {type(error).__name__}"] += 1
        self.cancel()

    async def _pause(self, seconds: float, until: float) -> bool:
        """Waits so long; False where the talk is over before."""
        left = until - time.monotonic()
        await asyncio.sleep(max(0.0, min(seconds, left)))
        return seconds < left


def _turn(speaker: str, text: str) -> Any:
    return turnscore_pb2.ConversationMessage(turn={"speaker": speaker, "text": text})


class _OpenStreams:
    """Streams over connections of their own, open within the block, which closes the connections."""

    def __init__(
        self, target: str, settings: StreamsSettings, tally: StreamTally, streams: int, connections: int
    ) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels would share a connection
        self.channels = [grpc.aio.insecure_channel(target, options=options) for _ in range(connections)]
        asked = TrafficSettings(seed=settings.seed)
        self.streams = []
        for number in range(streams):
            label, channel = f"stream {number}", self.channels[number % connections]
            self.streams.append(TalkingStream(channel, Traffic(asked, label), settings.scorers, tally, label))

    async def __aenter__(self) -> Self:
        await together(stream.open() for stream in self.streams)
        return self

    async def __aexit__(self, *_: object) -> None:
        await together(channel.close() for channel in self.channels)

    async def cut(self, channels: Sequence[grpc.aio.Channel]) -> int:
        """Cuts every stream of these connections while a turn of it is unanswered; how many those were.

        Of every other connection the streams are cancelled, of the rest the connection is closed.
        """
        cut = [stream for stream in self.streams if stream.channel in channels and not stream.is_over]
        await together(stream.say_and_leave_unanswered() for stream in cut)
        for stream in cut:
            if stream.channel in channels[::2]:
                stream.cancel()
        await together(channel.close() for channel in channels[1::2])
        for stream in cut:
            stream.is_over = True
        return len(cut)


class StreamsTest:
    """One run against a service's HTTP port, for its metrics, and its gRPC port."""

    def __init__(self, ports: Ports, processes: Sequence[psutil.Process], settings: StreamsSettings) -> None:
        self._port, self._target = ports.http, f"{LOOPBACK}:{ports.grpc}"
        self._processes, self._settings = processes, settings
        self._sampler = Sampler(processes, _SAMPLE_SECONDS)
        self._tally = StreamTally()

    async def run(self) -> StreamsRun:
        """Raises ProcessesChangedError where a process of the service ends meanwhile."""
        settings = self._settings
        with self._sampler:
            await self._warm_up()
            rest = await self._settle(0, "at rest")
            async with self._open_all() as opened:
                silent = await self._settle(settings.streams, "all open and silent")
                talk = await self._talk(opened)
            closed = await self._settle(0, "all closed")
            rounds = [await self._open_and_cut_all(number) for number in range(1, ROUNDS + 1)]
        self._sampler.check()
        return StreamsRun(
            settings=settings, processes=len(self._processes), rest=rest, silent=silent, **talk, closed=closed,
            rounds=rounds, tally=self._tally, samples=self._sampler.samples,
        )  # fmt: skip

    def _open_all(self) -> _OpenStreams:
        settings = self._settings
        return _OpenStreams(self._target, settings, self._tally, settings.streams, settings.connections)

    async def _open_and_cut_all(self, number: int) -> Moment:
        async with self._open_all() as opened:
            await self._moment(self._settings.streams, f"round {number}, all open")
            await opened.cut(opened.channels)
        return await self._settle(0, f"round {number}, all cut")

    async def _warm_up(self) -> None:
        few = _OpenStreams(self._target, self._settings, StreamTally(), _WARM_UP_STREAMS, _WARM_UP_STREAMS)
        async with few:
            for number in range(_WARM_UP_EXCHANGES):
                await together(each.exchange(f"hello {number}", f"good day to you {number}") for each in few.streams)
            await together(each.finish() for each in few.streams)

    async def _talk(self, opened: _OpenStreams) -> dict[str, Any]:
        """All streams talk, and some are cut: the fields of StreamsRun about it."""
        settings = self._settings
        to_cut = opened.channels[: max(2, round(settings.cut_share * settings.connections))]
        stay = [stream for stream in opened.streams if stream.channel not in to_cut]
        began_at, before = time.monotonic(), (time.process_time(), cpu_seconds_of(self._processes))
        middle, end = began_at + settings.seconds / 2, began_at + settings.seconds
        going_on = asyncio.ensure_future(together(stream.talk(end, settings.pace) for stream in stay))
        await together(each.talk(middle, settings.pace) for each in opened.streams if each.channel in to_cut)
        full = await self._moment(settings.streams, "all talking")
        cut_streams = await opened.cut(to_cut)
        cut = await self._moment(settings.streams - cut_streams, f"{cut_streams} cut")
        await going_on
        seconds, now = time.monotonic() - began_at, (time.process_time(), cpu_seconds_of(self._processes))
        finished = sum(await together(stream.finish() for stream in stay))
        return {
            "talking": full, "cut": cut, "cut_streams": cut_streams, "finished": finished,
            "generator_cpus": (now[0] - before[0]) / seconds, "service_cpus": (now[1] - before[1]) / seconds,
        }  # fmt: skip

    async def _settle(self, streams: int, what: str) -> Moment:
        """The moment when so many streams are open and the service was left alone for a while."""
        await self._wait_for(streams)
        await asyncio.sleep(self._settings.settle_seconds)
        return await self._moment(streams, what)

    async def _moment(self, streams: int, what: str) -> Moment:
        open_streams, at_work = await self._wait_for(streams)
        since = self._sampler.seconds() - self._settings.settle_seconds / 2
        samples = self._sampler.samples
        latest = [each.rss_bytes for each in samples if each.seconds >= since] or [samples[-1].rss_bytes]
        moment = Moment(median(latest), open_streams, at_work)
        typer.echo(f"{what}: {moment.open_streams:.0f} streams open, {moment.rss_bytes / _MIB:.1f} MiB")
        return moment

    async def _wait_for(self, streams: int) -> tuple[float, float]:
        """Open streams and what is at work, once so many are open, or after the time that the service has for it."""
        end = time.monotonic() + _GONE_SECONDS
        while True:
            opened = await asyncio.to_thread(metric, self._port, "turnscore_open_conversations")
            at_work = await asyncio.to_thread(metric, self._port, *_AT_WORK)
            if (opened == streams and (streams or not at_work)) or time.monotonic() > end:
                return opened, at_work
            await asyncio.sleep(_SAMPLE_SECONDS)  # another process: there is nothing to wait on


async def together(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """All of it at once; the results in order."""
    return list(await asyncio.gather(*work))


def stream_kib(run: StreamsRun) -> float:
    """Memory of the service for each open and silent stream, its share of a connection included."""
    return (run.silent.rss_bytes - run.rest.rss_bytes) / run.settings.streams / _KIB


def checks(run: StreamsRun) -> list[Check]:
    """Every claim."""
    wanted, tally, first, last = run.settings.streams, run.tally, run.rounds[0], run.rounds[-1]
    p50, p95, p99 = (percentile(tally.took_ms, each) for each in (50, 95, 99))
    left, kib = wanted - run.cut_streams, stream_kib(run)
    silent, talking, still_open = (each.open_streams for each in (run.silent, run.talking, run.cut))
    ends = (run.closed, *run.rounds)
    after, at_work = sum(each.open_streams for each in ends), sum(each.at_work for each in ends)
    said = f"{tally.scored} of {tally.said} scored, {tally.heard} turns of users heard"
    problems = "".join(f"; {count} x {what}" for what, count in tally.problems.most_common(5))
    growth = f"{first.rss_bytes / _MIB:.1f} -> {last.rss_bytes / _MIB:.1f} MiB"
    is_flat = last.rss_bytes <= (1 + MOST_GROWTH) * first.rss_bytes
    is_scored = tally.scored == tally.said >= wanted and not problems
    times = f"p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms"
    cut = f"of {run.cut_streams} streams cut in the middle of a turn nothing is left"
    return [
        Check(
            f"{wanted} streams open at once", f"{silent:.0f} silent, {talking:.0f} talking", silent == talking == wanted
        ),
        Check("every system turn scored, every answer in order", said + problems, is_scored),
        Check(f"p99 of the scores at most {MOST_P99_MS:.0f} ms", times, 0 < p99 <= MOST_P99_MS),
        Check(
            f"an open stream takes at most {MOST_STREAM_KIB:.0f} KiB", f"{kib:.1f} KiB silent", kib <= MOST_STREAM_KIB
        ),
        Check(cut, f"{still_open:.0f} of {left} open", run.cut_streams > 0 and still_open == left),
        Check("the others went on to their end", f"{run.finished} of {left}", run.finished == left),
        Check(
            "nothing is open or in work once all are gone",
            f"{after:.0f} open, {at_work:.0f} in work",
            not after and not at_work,
        ),
        Check(f"{len(run.rounds) - 1} more rounds leave at most {100 * MOST_GROWTH:.0f} % behind", growth, is_flat),
    ]


def report(run: StreamsRun) -> list[str]:
    """The parts of the page."""
    settings = run.settings
    moments = {
        "at rest, after a few streams": run.rest,
        "all streams open and silent": run.silent,
        "all talking, before the cut": run.talking,
        "after the cut": run.cut,
        "all closed": run.closed,
        **{f"round {number}: as many opened, and all cut": each for number, each in enumerate(run.rounds, 1)},
    }
    rows = []
    for name, moment in moments.items():
        more = (moment.rss_bytes - run.rest.rss_bytes) / _MIB
        rows.append([name, f"{moment.open_streams:.0f}", f"{moment.rss_bytes / _MIB:.1f}", f"{more:+.1f}"])
    return [
        f"{settings.streams} streams over {settings.connections} connections, {settings.seconds:g} s of talk at "
        f"{settings.pace:g} times the pace of people, {', '.join(settings.scorers)}; {run.processes} processes.",
        table(["moment", "streams open", "memory, MiB", "more than at rest"], rows, texts=1),
        f"CPUs used while they talked: {run.service_cpus:.2f} by the service, "
        f"{run.generator_cpus:.2f} by the generator.",
    ]
