"""World: the services, the Redis and the stand-in exporter that the causes need, each a process of its own."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, start_http_server

from turnscore_load.address import LOOPBACK, free_port
from turnscore_load.alerts.bundles import damage, unhinge
from turnscore_load.alerts.callers import Bot
from turnscore_load.programs import Replica, find_programs, redis_command, running, wait_until

_ROOM = 50
"""Turns in flight that the busy service takes: long ones are a second's work of one lane."""
_STALL_SECONDS = 0.4
_HUGE_TOKENS = 16_384
"""Of a batch that takes a core some two seconds, five times as long as may be."""
OUT_OF_MEMORY = "turnscore_out_of_memory_batches_total"
_ONE_LANE = {
    "TURNSCORE_RUNTIME__THREADS": "1",
    "TURNSCORE_RUNTIME__CONCURRENT_BATCHES": "1",
    "TURNSCORE_DRAIN_SECONDS": "0.1",
}


@dataclass(kw_only=True)
class Redis:
    """A Redis that may be stopped and started again at the same address."""

    log: Path
    port: int = field(default_factory=free_port)
    _running: ExitStack = field(default_factory=ExitStack)

    def start(self) -> None:
        command = redis_command(find_programs("redis-server")["redis-server"], self.port)
        self._running.enter_context(running(command, self.log))

    def stop(self) -> None:
        self._running.close()


@dataclass(kw_only=True)
class World:
    """What runs, by the job that Prometheus knows it by."""

    busy: Replica
    """Takes load, and uses the Redis."""
    bot: Replica
    """Scores the bot's turns by quality, and others by an engagement model that gives NaN; needs a key."""
    stalling: Replica
    """Its batches may be larger than what the time until a stall allows."""
    refusing: Replica
    """Is started with a damaged bundle."""
    whole: Path
    damaged: Path
    keys: Path
    talker: Bot
    redis: Redis
    stand_in: CollectorRegistry
    """What the stand-in exports: a counter of batches that found too little memory."""
    out_of_memory: Counter
    stand_in_port: int = field(default_factory=free_port)

    @property
    def targets(self) -> dict[str, int]:
        """The port of each job."""
        return {
            "busy": self.busy.port,
            "bot": self.bot.port,
            "stalling": self.stalling.port,
            "refusing": self.refusing.port,
            "stand-in": self.stand_in_port,
        }


@contextmanager
def build_world(serve: Path, starter: Path, folder: Path) -> Iterator[World]:
    """Starts the three services that are whole, the Redis and the stand-in, and ends all. Raises NoProgramError."""
    folder.mkdir(parents=True, exist_ok=True)
    world = _describe(serve, starter, folder)
    with ExitStack() as stack:
        server, thread = start_http_server(world.stand_in_port, LOOPBACK, world.stand_in)
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        stack.callback(world.redis.stop)
        world.redis.start()
        for each in (world.busy, world.bot, world.stalling, world.refusing):
            stack.callback(each.end)
        for each in (world.busy, world.bot, world.stalling):
            each.start()
        for each in (world.busy, world.bot, world.stalling):
            wait_until(each.is_ready, "a service")
        yield world


def _describe(serve: Path, starter: Path, folder: Path) -> World:
    engagement, redis, keys = starter / "engagement", Redis(log=folder / "redis.log"), folder / "keys.toml"
    damaged, unhinged = damage(engagement, folder / "damaged"), unhinge(engagement, folder / "unhinged")
    key = f"observability-{secrets.token_hex(16)}"
    keys.write_text(f'[bot]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n')

    def service(name: str, models: str, **settings: str) -> Replica:
        given = {"TURNSCORE_MODELS": models, **_ONE_LANE}
        given |= {f"TURNSCORE_{setting.upper()}": value for setting, value in settings.items()}
        return Replica(serve=serve, folder=folder / name, settings=given)

    room = {"cache__url": f"redis://{LOOPBACK}:{redis.port}/0", "admission__max_items": str(_ROOM)}
    huge = {"runtime__stall_seconds": str(_STALL_SECONDS), "batching__max_batch_tokens": str(_HUGE_TOKENS)}
    stand_in = CollectorRegistry()
    out_of_memory = Counter(OUT_OF_MEMORY, "As the service counts it.", ["scorer"], registry=stand_in)
    out_of_memory.labels("engagement")  # 0, as the service has it
    bot = service("bot", f"{starter / 'quality'}/,{unhinged}/", auth__keys_file=str(keys))
    return World(
        busy=service("busy", f"{engagement}/", **room),
        bot=bot,
        stalling=service("stalling", f"{engagement}/", **huge),
        refusing=service("refusing", f"{damaged}/"),
        whole=engagement,
        damaged=damaged,
        keys=keys,
        talker=Bot(service=bot, key=key),
        redis=redis,
        stand_in=stand_in,
        out_of_memory=out_of_memory,
    )
