"""Causes: what makes each alert fire, made on purpose, and taken away again at the end of its block."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from turnscore_load.alerts.bundles import repair
from turnscore_load.alerts.callers import Mood, ask_hugely, crowd, steady
from turnscore_load.alerts.watch import ANY_JOB, Firing
from turnscore_load.alerts.world import World
from turnscore_load.programs import answers, wait_until

_CROWD = 100
"""Twice as many as the busy service has room for."""
Block = Callable[[World], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One thing that goes wrong, and the alerts that have to say so."""

    what: str
    remedy: str
    alerts: tuple[str, ...]
    job: str
    block: Block

    @property
    def expected(self) -> frozenset[Firing]:
        return frozenset((alert, self.job) for alert in self.alerts)


@asynccontextmanager
async def lose_redis(world: World) -> AsyncIterator[None]:
    world.redis.stop()
    async with steady(world.busy):
        yield
    world.redis.start()


@asynccontextmanager
async def overload(world: World) -> AsyncIterator[None]:
    async with crowd(world.busy, _CROWD):
        yield


@asynccontextmanager
async def stall(world: World) -> AsyncIterator[None]:
    await ask_hugely(world.stalling, turns=100, words=150)
    yield


@asynccontextmanager
async def refuse_bundle(world: World) -> AsyncIterator[None]:
    world.refusing.start()
    await asyncio.to_thread(wait_until, lambda: answers(world.refusing.port, "/livez"), "the service that refuses")
    yield
    world.refusing.end()
    repair(world.whole, world.damaged)
    world.refusing.start()


@asynccontextmanager
async def spoil_keys(world: World) -> AsyncIterator[None]:
    kept = world.keys.read_text()
    world.keys.write_text(kept + "[bot\n")
    yield
    world.keys.write_text(kept)


@asynccontextmanager
async def score_nan(world: World) -> AsyncIterator[None]:
    async with steady(world.bot, key=world.talker.key, turns=50):
        yield


@asynccontextmanager
async def run_out_of_memory(world: World) -> AsyncIterator[None]:
    world.out_of_memory.labels("engagement").inc()
    yield


def set_mood(during: Mood, after: Mood) -> Block:
    """How the bot talks within the block, and after it."""

    @asynccontextmanager
    async def block(world: World) -> AsyncIterator[None]:
        world.talker.mood = during
        yield
        world.talker.mood = after

    return block


@asynccontextmanager
async def kill_all(world: World) -> AsyncIterator[None]:
    for each in (world.busy, world.bot, world.stalling, world.refusing):
        each.signal(signal.SIGKILL)
    yield
    world.busy.wait()
    world.busy.start()


ON_SERVICES: tuple[tuple[Cause, ...], ...] = (
    (
        Cause(
            what=f"{_CROWD} callers of long turns at once ask a service of one lane that takes half as many",
            remedy="they leave",
            alerts=(
                "TurnscoreErrorBudgetFast",
                "TurnscoreErrorBudgetSlow",
                "TurnscoreLatencyBudgetFast",
                "TurnscoreLatencyBudgetSlow",
                "TurnscoreQueueLong",
                "TurnscoreRefusals",
            ),
            job="busy",
            block=overload,
        ),
    ),
    (
        Cause(
            what="the Redis is stopped",
            remedy="it is started again",
            alerts=("TurnscoreCacheSick",),
            job="busy",
            block=lose_redis,
        ),
    ),
    (
        Cause(
            what="a batch takes five times as long as TURNSCORE_RUNTIME__STALL_SECONDS allows",
            remedy="it was the only one",
            alerts=("TurnscoreStageDeaths",),
            job="stalling",
            block=stall,
        ),
    ),
    (
        Cause(
            what="a service starts with a bundle whose graph lost its end",
            remedy="it starts with the whole one",
            alerts=("TurnscoreNotReady",),
            job="refusing",
            block=refuse_bundle,
        ),
        Cause(
            what="the file of API keys is changed to what is not TOML",
            remedy="it is as it was",
            alerts=("TurnscoreKeyFile",),
            job="bot",
            block=spoil_keys,
        ),
        Cause(
            what="a model that passes its self-test gives NaN for values of a certain height",
            remedy="nobody asks it any more",
            alerts=("TurnscoreNotComputable",),
            job="bot",
            block=score_nan,
        ),
        Cause(
            what="(stand-in) an exporter of that one counter counts 1: only CUDA reports that memory ended",
            remedy="it counts no more",
            alerts=("TurnscoreOutOfMemory",),
            job="stand-in",
            block=run_out_of_memory,
        ),
    ),
)
"""In rounds: one after the other where causes would disturb each other, else at once. Overload comes first: its budgets
would count earlier calls, which are slow where the machine is busy."""

OF_THE_BOT = Cause(
    what="a bot says ten replies again and again: its percentiles fill few bins",
    remedy="it falls silent",
    alerts=("TurnscoreMisfit",),
    job="bot",
    block=set_mood("usual", "silent"),
)
WITHIN_IT = (
    Cause(
        what="the bot gives one unfitting reply to everything, after a baseline of its usual ones",
        remedy="it gives the usual ones",
        alerts=("TurnscoreDrift", "TurnscoreLowShare"),
        job="bot",
        block=set_mood("broken", "usual"),
    ),
    Cause(
        what="the bot answers in German",
        remedy="it answers in English",
        alerts=("TurnscoreForeign",),
        job="bot",
        block=set_mood("foreign", "usual"),
    ),
)
"""While it talks."""

LAST = Cause(
    what="kill -9 of every service",
    remedy="one is started",
    alerts=("TurnscoreAbsent",),
    job=ANY_JOB,
    block=kill_all,
)
