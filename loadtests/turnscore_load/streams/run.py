"""Streams: very many live conversations at once over gRPC at the pace of people, some of them cut in the middle.

Measures; streams_report.py judges.

The order: a few streams, so that what is made once is there; the service at rest; all streams open and silent; all of
them talking; half-way, some are cut while a turn of theirs is being scored, and the others go on to their end; nothing
open; and some rounds in which as many are opened and all cut, to see whether their memory is used again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self, TypeVar

import grpc
import psutil

from turnscore_load.address import LOOPBACK, Ports
from turnscore_load.sampling import Sample, Sampler
from turnscore_load.service_metrics import read_metrics, sum_of
from turnscore_load.streams.stream import TalkingStream, Tally
from turnscore_load.traffic import Traffic, TrafficSettings

_T = TypeVar("_T")
STREAMS_SETTINGS = {"TURNSCORE_CACHE__LOCAL_MAX_BYTES": "0"}
"""Of a service that is started for it: no turn comes twice, and a cache that fills would count as memory that stays."""
MOST_STREAMS = 2000
ROUNDS = 3
"""The first asks for more at once than anything before: a turn of every stream. The others are like it. Chosen."""
_WARM_UP_STREAMS = 20
_WARM_UP_EXCHANGES = 3
_SAMPLE_SECONDS = 0.25
_GONE_SECONDS = 10.0
"""How long the service may take to notice that a stream is gone. Chosen."""
_OPEN = "turnscore_open_conversations"
_AT_WORK = ("turnscore_items_in_flight", "turnscore_tokens_in_flight", "turnscore_queued_items")


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


@dataclass(frozen=True, slots=True)
class Moment:
    """The service at one moment: memory of all its processes, streams it holds open, and turns and tokens in work."""

    rss_bytes: float
    open_streams: float
    at_work: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """The part in which all streams talk and some are cut."""

    full: Moment
    """Just before the cut, all streams being open."""
    cut: Moment
    """Once the service has noticed the cut, or should have; the other streams go on."""
    cut_streams: int
    finished: int
    """Streams that said all they had to and ended well."""
    generator_cpus: float
    service_cpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRun:
    """Everything that was measured."""

    settings: StreamsSettings
    processes: int
    rest: Moment
    silent: Moment
    talk: Talk
    closed: Moment
    rounds: Sequence[Moment]
    """After each of the rounds in which as many streams are opened and all cut."""
    tally: Tally
    samples: Sequence[Sample]


class _Crowd:
    """Streams over connections of their own, open within the block, which closes the connections."""

    def __init__(self, target: str, settings: StreamsSettings, tally: Tally, streams: int, connections: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels would share a connection
        self.channels = [grpc.aio.insecure_channel(target, options=options) for _ in range(connections)]
        asked = TrafficSettings(seed=settings.seed)
        self.streams = []
        for number in range(streams):
            label = f"stream {number}"
            traffic = Traffic(asked, label)
            channel = self.channels[number % connections]
            self.streams.append(TalkingStream(channel, traffic, settings.scorers, tally, label))

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

    def __init__(
        self, ports: Ports, processes: Sequence[psutil.Process], settings: StreamsSettings,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._port = ports.http
        self._target = f"{LOOPBACK}:{ports.grpc}"
        self._processes = processes
        self._settings = settings
        self._say = say
        self._sampler = Sampler(processes, _SAMPLE_SECONDS)
        self._tally = Tally()

    async def run(self) -> StreamsRun:
        """Raises ProcessesChangedError where a process of the service ends meanwhile."""
        settings = self._settings
        with self._sampler:
            await self._warm_up()
            rest = await self._settle(0, "at rest")
            async with self._crowd() as crowd:
                silent = await self._settle(settings.streams, "all open and silent")
                talk = await self._talk(crowd)
            closed = await self._settle(0, "all closed")
            rounds = [await self._open_and_cut_all(number) for number in range(1, ROUNDS + 1)]
        self._sampler.check()
        return StreamsRun(
            settings=settings,
            processes=len(self._processes),
            rest=rest,
            silent=silent,
            talk=talk,
            closed=closed,
            rounds=rounds,
            tally=self._tally,
            samples=self._sampler.samples,
        )

    def _crowd(self) -> _Crowd:
        settings = self._settings
        return _Crowd(self._target, settings, self._tally, settings.streams, settings.connections)

    async def _open_and_cut_all(self, number: int) -> Moment:
        async with self._crowd() as crowd:
            await self._moment(self._settings.streams, f"round {number}, all open")
            await crowd.cut(crowd.channels)
        return await self._settle(0, f"round {number}, all cut")

    async def _warm_up(self) -> None:
        async with _Crowd(self._target, self._settings, Tally(), _WARM_UP_STREAMS, _WARM_UP_STREAMS) as crowd:
            for number in range(_WARM_UP_EXCHANGES):
                await together(each.exchange(f"hello {number}", f"good day to you {number}") for each in crowd.streams)
            await together(each.finish() for each in crowd.streams)

    async def _talk(self, crowd: _Crowd) -> Talk:
        settings = self._settings
        to_cut = crowd.channels[: max(2, round(settings.cut_share * settings.connections))]
        stay = [stream for stream in crowd.streams if stream.channel not in to_cut]
        began_at, cpus = time.monotonic(), self._cpu_seconds()
        middle, end = began_at + settings.seconds / 2, began_at + settings.seconds
        going_on = asyncio.ensure_future(together(stream.talk(end, settings.pace) for stream in stay))
        await together(each.talk(middle, settings.pace) for each in crowd.streams if each.channel in to_cut)
        full = await self._moment(settings.streams, "all talking")
        cut_streams = await crowd.cut(to_cut)
        cut = await self._moment(settings.streams - cut_streams, f"{cut_streams} cut")
        await going_on
        generator, service = (
            (now - before) / (time.monotonic() - began_at)
            for now, before in zip(self._cpu_seconds(), cpus, strict=True)
        )
        finished = await together(stream.finish() for stream in stay)
        return Talk(
            full=full,
            cut=cut,
            cut_streams=cut_streams,
            finished=sum(finished),
            generator_cpus=generator,
            service_cpus=service,
        )

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
        self._say(f"{what}: {moment.open_streams:.0f} streams open, {moment.rss_bytes / 2**20:.1f} MiB")
        return moment

    async def _wait_for(self, streams: int) -> tuple[float, float]:
        """Open streams and what is at work, once so many are open, or after the time that the service has for it."""
        end = time.monotonic() + _GONE_SECONDS
        while True:
            found = await asyncio.to_thread(self._read_metrics)
            is_as_wanted = found[0] == streams and (streams or not found[1])
            if is_as_wanted or time.monotonic() > end:
                return found
            await asyncio.sleep(_SAMPLE_SECONDS)  # another process: there is nothing to wait on

    def _read_metrics(self) -> tuple[float, float]:
        samples = read_metrics(self._port)
        return sum_of(samples, _OPEN), sum_of(samples, *_AT_WORK)

    def _cpu_seconds(self) -> tuple[float, float]:
        """Of the load generator and of the service, so far."""
        times = [process.cpu_times() for process in self._processes]
        return time.process_time(), sum(each.user + each.system for each in times)


async def together(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """All of it at once; the results in order."""
    return list(await asyncio.gather(*work))
