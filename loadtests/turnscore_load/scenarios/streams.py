"""Holds very many live conversations open over gRPC at the pace of people, and cuts some of them in the middle.

The order: a few streams, so that what is made once is there; the service at rest; all streams open and silent; all of
them talking; half-way, some are cut while a turn of theirs is being scored, and the others go on to their end; nothing
open; and some rounds in which as many are opened and all cut, to see whether their memory is used again.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, TypeVar

import grpc
import typer
from turnscore_client import AsyncTurnScoreGrpcClient, TurnScoreError
from typer import Option

from turnscore_load.machine import LOOPBACK
from turnscore_load.results import Check, percentile, table
from turnscore_load.sampling import Sampler, write_csv
from turnscore_load.scenario import TargetScenario
from turnscore_load.services import LoadedService, metric
from turnscore_load.traffic import PATIENCE_SECONDS, TYPICAL_PAUSE_SECONDS, Traffic, TrafficSettings, pause_seconds

_T = TypeVar("_T")
# The first asks for more at once than anything before: a turn of every stream. The others are like it. Chosen.
ROUNDS = 3
_WARM_UP_STREAMS = 20
_SAMPLE_SECONDS = 0.25
_AT_WORK = ("turnscore_items_in_flight", "turnscore_tokens_in_flight", "turnscore_queued_items")

MOST_P99_MS = 1000.0  # what a chatbot may wait for the scores of its turn before it is felt; chosen
MOST_STREAM_KIB = 128.0  # memory of one open stream; chosen, about twice what was measured (docs/benchmarks.md)
MOST_GROWTH = 0.02  # memory is a high-water mark; as in the soak
_KIB, _MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Moment:
    """The service at one moment: memory of all its processes, streams it holds open, and turns and tokens in work."""

    what: str
    rss_bytes: float
    open_streams: float
    at_work: float


@dataclass(kw_only=True)
class StreamsRun:
    """What became of the messages of all streams, and everything else that was measured."""

    said: int = 0  # system turns whose answer was waited for
    heard: int = 0
    took_ms: list[float] = field(default_factory=list)  # of every system turn, from being said to its scores
    problems: Counter[str] = field(default_factory=Counter)
    # At rest; all streams silent; all talking; after the cut; all closed; after each of the rounds.
    moments: list[Moment] = field(default_factory=list)
    cut_streams: int = 0
    finished: int = 0  # streams that said all they had to and ended well
    processes: int = 0


@dataclass(kw_only=True)
class Streams(TargetScenario[StreamsRun]):
    """Check that all streams are answered, and that none of them leaves anything behind."""

    streams: Annotated[int, Option(min=1, max=2000, help="Conversations open at once.")] = 1000
    connections: Annotated[int, Option(min=2, help="Connections that they share.")] = 50
    seconds: Annotated[float, Option(min=1, max=600, help="Seconds for which they talk.")] = 60.0
    pace: Annotated[float, Option(min=0.01, help="2 makes the people twice as fast as people are.")] = 1.0
    cut_share: Annotated[float, Option(min=0, max=1, help="Share of the connections cut in the middle.")] = 0.3
    workers: Annotated[int, Option(min=1, max=16, help="Workers of the service, where one is started.")] = 2
    scorers: Annotated[str, Option(help="Scorers, separated by commas.")] = "engagement"
    seed: Annotated[int, Option(help="Seed of the traffic.")] = 1
    settle_seconds: Annotated[float, Option(min=0.5, help="Rest before memory is read.")] = 4.0

    def measure(self) -> StreamsRun:
        # No turn comes twice, and a cache that fills would count as memory that stays.
        settings = {"TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0", "TURNSCORE_WORKERS": str(self.workers)}
        with self.target(settings) as service, Sampler(service.processes(), _SAMPLE_SECONDS) as sampler:
            found = asyncio.run(_StreamRun(self, service, sampler).run())
        sampler.check()
        write_csv(sampler.samples, self.reports / "streams_samples.csv")
        return found

    def checks(self, found: StreamsRun) -> Iterator[Check]:
        rest, silent, talking, cut, closed, *rounds = found.moments
        yield Check(
            f"{self.streams} streams open at once",
            f"{silent.open_streams:.0f} silent, {talking.open_streams:.0f} talking",
            silent.open_streams == talking.open_streams == self.streams,
        )
        scored = len(found.took_ms)
        problems = "".join(f"; {count} x {what}" for what, count in found.problems.most_common(5))
        told = f"{scored} of {found.said} scored, {found.heard} turns of users heard{problems}"
        is_scored = scored == found.said >= self.streams and not problems
        yield Check("every system turn scored, every answer in order", told, is_scored)
        p50, p95, p99 = (percentile(found.took_ms, each) for each in (50, 95, 99))
        times = f"p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms"
        yield Check(f"p99 of the scores at most {MOST_P99_MS:.0f} ms", times, 0 < p99 <= MOST_P99_MS)
        kib = (silent.rss_bytes - rest.rss_bytes) / self.streams / _KIB
        claim = f"an open stream takes at most {MOST_STREAM_KIB:.0f} KiB"
        yield Check(claim, f"{kib:.1f} KiB silent", kib <= MOST_STREAM_KIB)
        left, is_cut = self.streams - found.cut_streams, found.cut_streams > 0
        claim = f"of {found.cut_streams} streams cut in the middle of a turn nothing is left"
        yield Check(claim, f"{cut.open_streams:.0f} of {left} open", is_cut and cut.open_streams == left)
        yield Check("the others went on to their end", f"{found.finished} of {left}", found.finished == left)
        ends = (closed, *rounds)
        after, at_work = sum(each.open_streams for each in ends), sum(each.at_work for each in ends)
        told = f"{after:.0f} open, {at_work:.0f} in work"
        yield Check("nothing is open or in work once all are gone", told, not after and not at_work)
        first, last = rounds[0].rss_bytes, rounds[-1].rss_bytes
        claim = f"{len(rounds) - 1} more rounds leave at most {100 * MOST_GROWTH:.0f} % behind"
        yield Check(claim, f"{first / _MIB:.1f} -> {last / _MIB:.1f} MiB", last <= (1 + MOST_GROWTH) * first)

    def report(self, found: StreamsRun) -> Iterator[str]:
        yield (
            f"{self.streams} streams over {self.connections} connections, {self.seconds:g} s of talk at "
            f"{self.pace:g} times the pace of people, {self.scorers}; {found.processes} processes."
        )
        rows = []
        for each in found.moments:
            more = (each.rss_bytes - found.moments[0].rss_bytes) / _MIB
            rows.append([each.what, f"{each.open_streams:.0f}", f"{each.rss_bytes / _MIB:.1f}", f"{more:+.1f}"])
        yield table(["moment", "streams open", "memory, MiB", "more than at rest"], rows, texts=1)


class TalkingStream:
    """One stream. Its calls raise nothing of the service's doing: the tally has the problem, and the stream is over."""

    def __init__(
        self, channel: grpc.aio.Channel, options: Streams, address: str, tally: StreamsRun, label: str
    ) -> None:
        self.channel = channel
        self.is_over = False
        self._tally, self._pace, self._scorers = tally, options.pace, options.scorers.split(",")
        self._traffic = Traffic(TrafficSettings(seed=options.seed), label)
        self._chance = random.Random(label)
        self._words_to_read = 0
        client = AsyncTurnScoreGrpcClient(address, channel=channel, timeout_seconds=PATIENCE_SECONDS, max_retries=0)
        self._conversation = client.conversation(scorers=self._scorers, max_reopenings=0)

    async def open(self) -> None:
        """Returns when the service has said that the conversation is open."""
        await self._do(self._conversation.__aenter__())

    async def talk(self, until: float) -> None:
        """Exchanges turns with pauses as people make them, up to that moment of the event loop's clock."""
        await self._pause(TYPICAL_PAUSE_SECONDS / self._pace * self._chance.random(), until)
        while not self.is_over and time.monotonic() < until:
            ask = self._traffic.next_ask()
            if await self._pause(pause_seconds(self._words_to_read, ask.user_words, self._pace), until):
                await self.exchange(ask.item["context"][-1]["text"], ask.item["response"])
            self._words_to_read = ask.system_words

    async def exchange(self, user_text: str, system_text: str) -> None:
        """The person's turn, and the chatbot's answer to it, which is scored."""
        await self._do(self._conversation.say("user", user_text))
        if self.is_over:
            return
        self._tally.heard += 1
        self._tally.said += 1
        said_at = time.perf_counter()
        scored = await self._do(self._conversation.say("system", system_text))
        if scored is not None and set(scored.scores) == set(self._scorers):
            self._tally.took_ms.append(1000 * (time.perf_counter() - said_at))

    async def leave(self) -> None:
        """Says a system turn and goes without a word, before its answer."""
        self.is_over = True
        saying = asyncio.ensure_future(self._conversation.say("system", self._traffic.next_ask().item["response"]))
        await asyncio.sleep(0.002)  # in which a turn is sent that is then left unanswered; chosen
        closing = asyncio.ensure_future(self._conversation.close())
        await asyncio.sleep(0)
        for each in (saying, closing):
            each.cancel()
        await asyncio.gather(saying, closing, return_exceptions=True)

    async def finish(self) -> bool:
        """Says that everything is said; whether the stream had no problem."""
        if not self.is_over:
            await self._do(self._conversation.close())
        return not self.is_over

    async def _do(self, work: Awaitable[_T]) -> _T | None:
        try:
            return await work
        except TurnScoreError as error:
            self._tally.problems[type(error).__name__] += 1
            self.is_over = True
        return None

    async def _pause(self, seconds: float, until: float) -> bool:
        """Waits so long; False where the talk is over before."""
        left = until - time.monotonic()
        await asyncio.sleep(max(0.0, min(seconds, left)))
        return seconds < left


# Streams, and the connections that they share.
OpenStreams = tuple[Sequence[grpc.aio.Channel], Sequence[TalkingStream]]


async def cut(opened: OpenStreams, channels: Sequence[grpc.aio.Channel]) -> int:
    """Cuts every stream of these connections while a turn of it is unanswered; how many those were.

    Half of the connections are closed, too, before their streams are cancelled.
    """
    cut = [stream for stream in opened[1] if stream.channel in channels and not stream.is_over]
    await together([*(stream.leave() for stream in cut), *(channel.close() for channel in channels[1::2])])
    return len(cut)


class _StreamRun:
    """One run against a service's HTTP port, for its metrics, and its gRPC port."""

    def __init__(self, options: Streams, service: LoadedService, sampler: Sampler) -> None:
        self._options, self._service, self._sampler = options, service, sampler
        self._found = StreamsRun(processes=len(service.processes()))

    async def run(self) -> StreamsRun:
        few = StreamsRun()
        async with self._open(_WARM_UP_STREAMS, _WARM_UP_STREAMS, few) as (_, streams):
            for number in range(3):
                await together(each.exchange(f"hello {number}", f"good day, {number}") for each in streams)
            await together(each.finish() for each in streams)
        await self._settle(0, "at rest, after a few streams")
        async with self._open_all() as opened:
            await self._settle(self._options.streams, "all streams open and silent")
            await self._talk(opened)
        await self._settle(0, "all closed")
        for number in range(1, ROUNDS + 1):
            async with self._open_all() as opened:
                await self._wait_for(self._options.streams)
                await cut(opened, opened[0])
            await self._settle(0, f"round {number}: as many opened, and all cut")
        return self._found

    @asynccontextmanager
    async def _open(self, count: int, connections: int, tally: StreamsRun) -> AsyncIterator[OpenStreams]:
        target = f"{LOOPBACK}:{self._service.grpc_port}"
        options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels would share a connection
        channels = [grpc.aio.insecure_channel(target, options=options) for _ in range(connections)]
        streams = [
            TalkingStream(channels[number % connections], self._options, target, tally, f"stream {number}")
            for number in range(count)
        ]
        await together(stream.open() for stream in streams)
        yield channels, streams
        await together(channel.close() for channel in channels)

    def _open_all(self) -> AbstractAsyncContextManager[OpenStreams]:
        return self._open(self._options.streams, self._options.connections, self._found)

    async def _talk(self, opened: OpenStreams) -> None:
        """All streams talk, and some are cut."""
        options, found = self._options, self._found
        channels, streams = opened
        to_cut = channels[: max(2, round(options.cut_share * options.connections))]
        stay = [stream for stream in streams if stream.channel not in to_cut]
        began_at = time.monotonic()
        middle, end = began_at + options.seconds / 2, began_at + options.seconds
        going_on = asyncio.ensure_future(together(stream.talk(end) for stream in stay))
        await together(each.talk(middle) for each in streams if each.channel in to_cut)
        await self._moment(options.streams, "all talking, before the cut")
        found.cut_streams = await cut(opened, to_cut)
        await self._moment(options.streams - found.cut_streams, f"after the cut of {found.cut_streams}")
        await going_on
        found.finished = sum(await together(stream.finish() for stream in stay))

    async def _settle(self, streams: int, what: str) -> None:
        """The moment when so many streams are open and the service was left alone for a while."""
        await self._wait_for(streams)
        await asyncio.sleep(self._options.settle_seconds)
        await self._moment(streams, what)

    async def _moment(self, streams: int, what: str) -> None:
        opened, at_work = await self._wait_for(streams)
        count = max(1, round(self._options.settle_seconds / 2 / _SAMPLE_SECONDS))
        latest = [each.rss_bytes for each in self._sampler.samples[-count:]]
        self._found.moments.append(Moment(what, median(latest), opened, at_work))
        typer.echo(f"{what}: {opened:.0f} streams open, {median(latest) / _MIB:.1f} MiB")

    async def _wait_for(self, streams: int) -> tuple[float, float]:
        """Open streams and what is at work, once so many are open, or after the time that the service has for it."""
        end = time.monotonic() + 10.0  # how long the service may take to notice that a stream is gone; chosen
        while True:
            opened = await asyncio.to_thread(metric, self._service.port, "turnscore_open_conversations")
            at_work = await asyncio.to_thread(metric, self._service.port, *_AT_WORK)
            if (opened == streams and (streams or not at_work)) or time.monotonic() > end:
                return opened, at_work
            await asyncio.sleep(_SAMPLE_SECONDS)  # another process: there is nothing to wait on


async def together(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """All of it at once; the results in order."""
    return list(await asyncio.gather(*work))
