"""What makes each alert fire, made on purpose and taken away again, and the services that it happens to."""

import asyncio
import hashlib
import json
import random
import re
import secrets
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Literal

import httpx
import yaml
from prometheus_client import CollectorRegistry, Counter, start_http_server

from turnscore_load.fleet import graph_of, sign
from turnscore_load.generator import http_generator, score_request
from turnscore_load.machine import LOOPBACK, ScenarioError, free_port
from turnscore_load.processes import Process, find_program, in_background, redis_process, running, started
from turnscore_load.services import ONE_BATCH_AT_A_TIME, service_process
from turnscore_load.traffic import texts

# By group of rules: an hour becomes two minutes, and a day one. Chosen: a group's shortest window holds five scrapes.
FACTORS: Mapping[str, float] = {"turnscore-service": 30, "turnscore-values": 1440}
_LEAST_INTERVAL_MS = 500
_MILLISECONDS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)([smhd])")
_WINDOW = re.compile(r"(?<=\[)\d+[smhd](?=\])")

# Five scrapes in the shortest window of the shortened rules; also what a busy service may take for one.
_SCRAPE_SECONDS = 2.0
_EVALUATION_SECONDS = 0.5
_LOOK_SECONDS = 0.25
ANY_JOB = ""  # of an alert that names none
Firing = tuple[str, str]  # an alert's name and the job that it is about


class SilentAlertError(ScenarioError):
    """An alert did not fire, or did not clear, in time; the message says which."""


def shorten(rules: str) -> str:
    """The rules with every window, wait and interval divided by their group's factor.

    Series keep their names: `turnscore:slow_share:1h` is then of a minute.
    """
    groups = yaml.safe_load(rules)["groups"]
    for group in groups:
        divide = partial(_divide, factor=FACTORS[group["name"]])
        group["interval"] = divide(group["interval"], least=_LEAST_INTERVAL_MS)
        for rule in group["rules"]:
            rule["expr"] = _WINDOW.sub(lambda found: divide(found[0]), rule["expr"])  # noqa: B023
            if "for" in rule:
                rule["for"] = divide(rule["for"])
    return json.dumps({"groups": groups})  # JSON is YAML


def _divide(duration: str, factor: float, least: float = 0) -> str:
    [(number, unit)] = _DURATION.findall(duration)
    return f"{int(max(int(number) * _MILLISECONDS[unit] / factor, least))}ms"


def alerts_of(rules: str) -> dict[str, float]:
    """Every alert's factor, by its name, in the rules' order."""
    groups = yaml.safe_load(rules)["groups"]
    return {rule["alert"]: FACTORS[group["name"]] for group in groups for rule in group["rules"] if "alert" in rule}


@dataclass(kw_only=True)
class Watch:
    """What has fired, and since when."""

    process: Process
    baseline: Path  # further rules, which Prometheus reads at `reload`
    firing: frozenset[Firing] = frozenset()
    seen: set[Firing] = field(default_factory=set)  # all that ever fired

    def reload(self) -> None:
        self.process.signal(signal.SIGHUP)

    async def follow(self) -> None:
        """Asks Prometheus what fires, until it is cancelled."""
        async with httpx.AsyncClient(base_url=self.process.url, timeout=30) as client:
            while True:
                found = (await client.get("/api/v1/alerts")).raise_for_status().json()["data"]["alerts"]
                labels = [each["labels"] for each in found if each["state"] == "firing"]
                self.firing = frozenset((each["alertname"], each.get("job", ANY_JOB)) for each in labels)
                self.seen |= self.firing
                await asyncio.sleep(_LOOK_SECONDS)

    async def wait_for(self, wanted: frozenset[Firing], *, fires: bool, seconds: float) -> dict[Firing, float]:
        """When each fired, or cleared, by the monotonic clock. Raises SilentAlertError."""
        took: dict[Firing, float] = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    done = wanted & self.firing if fires else wanted - self.firing
                    took |= {each: time.monotonic() for each in done - took.keys()}
                    if len(took) == len(wanted):
                        return took
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            late = ", ".join(sorted(name for name, _ in wanted - took.keys()))
            raise SilentAlertError(f"{'fired' if fires else 'cleared'} not in {seconds:.0f} s: {late}") from None

    async def wait_for_value(self, query: str, claim: Callable[[float], bool], seconds: float) -> None:
        """Returns when the query's first value is as claimed. Raises SilentAlertError."""
        try:
            async with asyncio.timeout(seconds), httpx.AsyncClient(base_url=self.process.url, timeout=30) as client:
                while True:
                    answer = (await client.get("/api/v1/query", params={"query": query})).raise_for_status().json()
                    found = answer["data"]["result"]
                    if found and claim(float(found[0]["value"][1])):
                        return
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise SilentAlertError(f"never as it was to be: {query}") from None


@asynccontextmanager
async def watching(rules: str, targets: Mapping[str, int], folder: Path) -> AsyncIterator[Watch]:
    """Starts Prometheus, which scrapes the port of each job, and follows it. Raises StartError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yml").write_text(rules)
    baseline, port = folder / "baseline.yml", free_port()
    baseline.write_text("groups: []\n")
    (folder / "prometheus.yml").write_text(json.dumps(_configuration(targets)))  # JSON is YAML
    command = [
        find_program("prometheus"), f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address={LOOPBACK}:{port}",
    ]  # fmt: skip
    with running(command, folder, port=port, ready="/-/ready") as process:
        watch = Watch(process=process, baseline=baseline)
        async with in_background(watch.follow()):
            yield watch


def _configuration(targets: Mapping[str, int]) -> dict[str, object]:
    each, often = (f"{seconds * 1000:.0f}ms" for seconds in (_SCRAPE_SECONDS, _EVALUATION_SECONDS))
    return {
        "global": {"scrape_interval": each, "scrape_timeout": each, "evaluation_interval": often},
        "rule_files": ["rules.yml", "baseline.yml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]} for job, port in targets.items()
        ],
    }


_CALLERS = 100  # twice as many as the busy service has room for
_ROOM = 50  # turns in flight that the busy service takes: long ones are a second's work of one core
_STALL_SECONDS = 0.4
_HUGE_TOKENS = 16_384  # of a batch that takes a core some two seconds, five times as long as may be
OUT_OF_MEMORY = "turnscore_out_of_memory_batches_total"
_SHARE_OF_GAP = 0.45  # on both sides of its middle; what is left over is more than a self-test's tolerance
_BATCH_SECONDS = 0.5
_LONG_WORDS = 120  # of a turn of many callers: as many as engagement reads, so that few calls are much work

_REFUSED_SECONDS = 1.0  # after which a refused one of them asks again; chosen: a third of the calls are then refused

Mood = Literal["usual", "broken", "foreign", "silent"]
# What a user says, what a bot says to it, and what it says to it in another language.
_DIALOGUES: list[list[str]] = json.loads(Path(__file__).with_name("alert_dialogues.json").read_text(encoding="utf-8"))
_UNFIT = "The train to Turin leaves from platform 4, you idiot."  # of a broken bot, whatever it is told


@dataclass(kw_only=True)
class Bot:
    """Sends its dialogues, twenty per second, one exchange each, and says what its mood is."""

    service: Process
    key: str
    mood: Mood = "silent"

    async def talk(self) -> None:
        headers = {"x-api-key": self.key}
        async with httpx.AsyncClient(base_url=self.service.url, timeout=60, headers=headers) as client:
            while True:
                if self.mood != "silent":
                    items = [
                        {
                            "context": [{"speaker": "user", "text": user}],
                            "response": {"usual": fitting, "foreign": foreign}.get(self.mood, _UNFIT),
                            "scorers": ["quality"],
                        }
                        for user, fitting, foreign in _DIALOGUES
                    ]
                    (await client.post("/v1/score_batch", json={"items": items})).raise_for_status()
                await asyncio.sleep(_BATCH_SECONDS)


@dataclass(kw_only=True)
class World:
    """What runs. `services` are by the job that Prometheus knows them by:

    busy: takes load, and uses the Redis. bot: scores the bot's turns by quality, and others by an engagement model that
    gives NaN; needs a key. stalling: its batches may be larger than what the time until a stall allows. refusing: is
    started with a damaged bundle.
    """

    services: dict[str, Process]
    whole: Path
    damaged: Path
    keys: Path
    talker: Bot
    redis: Process
    out_of_memory: Counter  # what the stand-in exports: batches that found too little memory
    stand_in_port: int

    @property
    def targets(self) -> dict[str, int]:
        return {**{name: each.port for name, each in self.services.items()}, "stand-in": self.stand_in_port}


@contextmanager
def build_world(serve: Path, starter: Path, folder: Path) -> Iterator[World]:
    """Starts the three services that are whole, the Redis and the stand-in, and ends all. Raises StartError."""
    folder.mkdir(parents=True, exist_ok=True)
    engagement, keys = starter / "engagement", folder / "keys.toml"
    damaged, unhinged = cut_graph(engagement, folder / "damaged"), unhinge(engagement, folder / "unhinged")
    key = f"observability-{secrets.token_hex(16)}"
    keys.write_text(f'[bot]\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n')
    redis, registry, port = redis_process(folder), CollectorRegistry(), free_port()
    own: dict[str, dict[str, str]] = {
        "busy": {
            "MODELS": f"{engagement}/", "CACHE__URL": f"redis://{LOOPBACK}:{redis.port}/0",
            "ADMISSION__MAX_ITEMS": str(_ROOM),
        },
        "bot": {"MODELS": f"{starter / 'quality'}/,{unhinged}/", "AUTH__KEYS_FILE": str(keys)},
        "stalling": {
            "MODELS": f"{engagement}/", "RUNTIME__STALL_SECONDS": str(_STALL_SECONDS),
            "BATCHING__MAX_BATCH_TOKENS": str(_HUGE_TOKENS),
        },
        "refusing": {"MODELS": f"{damaged}/"},
    }  # fmt: skip
    common = {**ONE_BATCH_AT_A_TIME, "TURNSCORE_DRAIN_SECONDS": "0.1"}
    services = {
        name: service_process(serve, folder / name, {**common, **{f"TURNSCORE_{k}": v for k, v in given.items()}})
        for name, given in own.items()
    }
    out_of_memory = Counter(OUT_OF_MEMORY, "As the service counts it.", ["scorer"], registry=registry)
    out_of_memory.labels("engagement")  # 0, as the service has it
    with ExitStack() as stack:
        server, thread = start_http_server(port, LOOPBACK, registry)
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        stack.enter_context(started(redis))
        for name, each in services.items():
            stack.callback(each.stop)
            if name != "refusing":
                each.start(wait=False)
        for name, each in services.items():
            if name != "refusing":
                each.wait_until_ready()
        yield World(
            services=services, whole=engagement, damaged=damaged, keys=keys, redis=redis, stand_in_port=port,
            talker=Bot(service=services["bot"], key=key), out_of_memory=out_of_memory,
        )  # fmt: skip


def cut_graph(whole: Path, folder: Path) -> Path:
    """A copy whose graph lost its end, as when a disk fills up: the service refuses it."""
    shutil.copytree(whole, folder)
    graph_of(folder).write_bytes(graph_of(folder).read_bytes()[:-1000])
    return folder


def unhinge(whole: Path, folder: Path) -> Path:
    """A copy of an engagement bundle that passes its self-test, and gives NaN for values where no self-test's lies.

    The logarithm of how far a value is from the middle of their widest gap, less most of the way, is added: times 0.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    shutil.copytree(whole, folder)
    turns = json.loads((folder / "self_test.json").read_text())["turns"]
    known = sorted(turn["graphs"]["cpu-int8"]["value"] for turn in turns)
    below, above = max(pairwise(known), key=lambda gap: gap[1] - gap[0])
    numbers = {"middle": -(below + above) / 2, "reach": -_SHARE_OF_GAP * (above - below), "nothing": 0.0}
    model = onnx.load(graph_of(folder))
    [output] = model.graph.output
    [last] = [node for node in model.graph.node if output.name in node.output]
    last.output[0] = "whole"
    for name, value in numbers.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    steps = [
        ("Add", ["whole", "middle"], "side"),
        ("Abs", ["side"], "distance"),
        ("Add", ["distance", "reach"], "left"),
        ("Log", ["left"], "logarithm"),
        ("Mul", ["logarithm", "nothing"], "harm"),
        ("Add", ["whole", "harm"], output.name),
    ]
    model.graph.node.extend(helper.make_node(kind, inputs, [result]) for kind, inputs, result in steps)
    onnx.save(model, graph_of(folder))
    sign(folder, graph_of(folder))
    return folder


@asynccontextmanager
async def steady(service: Process, key: str = "", turns: int = 10) -> AsyncIterator[None]:
    """A caller of so many new turns every half a second while the block runs; whatever it gets."""

    async def call() -> None:
        headers = {"x-api-key": key} if key else {}
        async with httpx.AsyncClient(base_url=service.url, timeout=60, headers=headers) as client:
            new = texts("steady")
            while True:
                items = [{"response": text, "scorers": ["engagement"]} for text in islice(new, turns)]
                with suppress(httpx.TransportError):  # the service has ended
                    await client.post("/v1/score_batch", json={"items": items})
                await asyncio.sleep(_BATCH_SECONDS)

    async with in_background(call()):
        yield


Block = Callable[[World], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def lose_redis(world: World) -> AsyncIterator[None]:
    world.redis.stop()
    async with steady(world.services["busy"]):
        yield
    world.redis.start()


@asynccontextmanager
async def overload(world: World) -> AsyncIterator[None]:
    port = world.services["busy"].port
    said = (score_request(port, {"response": t, "scorers": ["engagement"]}) for t in texts("overload", _LONG_WORDS))
    calling = http_generator(port, 60_000).run_closed(_CALLERS, 1e9, said, least_obedient_seconds=_REFUSED_SECONDS)
    async with in_background(calling):
        yield


@asynccontextmanager
async def stall(world: World) -> AsyncIterator[None]:
    chance, known = random.Random(7), " ".join(islice(texts("huge"), 200)).split()
    items = [{"response": " ".join(chance.choices(known, k=150)), "scorers": ["engagement"]} for _ in range(100)]
    async with httpx.AsyncClient(base_url=world.services["stalling"].url, timeout=60) as client:
        await client.post("/v1/score_batch", json={"items": items})
    yield


@asynccontextmanager
async def refuse_bundle(world: World) -> AsyncIterator[None]:
    refusing = world.services["refusing"]
    refusing.start(wait=False)
    await asyncio.to_thread(refusing.wait_until_ready, "/livez")
    yield
    refusing.stop()
    shutil.copyfile(graph_of(world.whole), graph_of(world.damaged))
    refusing.start(wait=False)


@asynccontextmanager
async def spoil_keys(world: World) -> AsyncIterator[None]:
    kept = world.keys.read_text()
    world.keys.write_text(kept + "[bot\n")
    yield
    world.keys.write_text(kept)


@asynccontextmanager
async def score_nan(world: World) -> AsyncIterator[None]:
    async with steady(world.services["bot"], key=world.talker.key, turns=50):
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
    for each in world.services.values():
        each.signal(signal.SIGKILL)
    yield
    world.services["busy"].wait()
    world.services["busy"].start(wait=False)


@dataclass(frozen=True)
class Cause:
    """One thing that goes wrong, and the alerts of a job that have to say so."""

    job: str
    block: Block
    alerts: tuple[str, ...]
    what: str
    remedy: str

    @property
    def expected(self) -> frozenset[Firing]:
        return frozenset((alert, self.job) for alert in self.alerts)


_BUDGETS = ("TurnscoreErrorBudgetFast", "TurnscoreErrorBudgetSlow", "TurnscoreLatencyBudgetFast")
_BUSY = (*_BUDGETS, "TurnscoreLatencyBudgetSlow", "TurnscoreQueueLong", "TurnscoreRefusals")
# In rounds: one after the other where causes would disturb each other, else at once. Overload comes first: its budgets
# would count earlier calls, which are slow where the machine is busy.
ON_SERVICES: tuple[tuple[Cause, ...], ...] = (
    (
        Cause("busy", overload, _BUSY,
              f"{_CALLERS} callers of long turns at once ask a service of one core that takes half as many",
              "they leave"),
    ),
    (Cause("busy", lose_redis, ("TurnscoreCacheSick",), "the Redis is stopped", "it is started again"),),
    (
        Cause("stalling", stall, ("TurnscoreStageDeaths",),
              "a batch takes five times as long as TURNSCORE_RUNTIME__STALL_SECONDS allows", "it was the only one"),
    ),
    (
        Cause("refusing", refuse_bundle, ("TurnscoreNotReady",),
              "a service starts with a bundle whose graph lost its end", "it starts with the whole one"),
        Cause("bot", spoil_keys, ("TurnscoreKeyFile",),
              "the file of API keys is changed to what is not TOML", "it is as it was"),
        Cause("bot", score_nan, ("TurnscoreNotComputable",),
              "a model that passes its self-test gives NaN for values of a certain height",
              "it is asked for no more turns"),
        Cause("stand-in", run_out_of_memory, ("TurnscoreOutOfMemory",),
              "(stand-in) an exporter of that one counter counts 1: only CUDA reports that memory ended",
              "it counts no more"),
    ),
)  # fmt: skip

OF_THE_BOT = Cause(
    "bot", set_mood("usual", "silent"), ("TurnscoreMisfit",),
    "a bot says ten replies again and again: its percentiles fill few bins", "it falls silent",
)  # fmt: skip
# While it talks.
WITHIN_IT = (
    Cause("bot", set_mood("broken", "usual"), ("TurnscoreDrift", "TurnscoreLowShare"),
          "the bot gives one unfitting reply to everything, after a baseline of its usual ones",
          "it gives the usual ones"),
    Cause("bot", set_mood("foreign", "usual"), ("TurnscoreForeign",),
          "the bot answers in German", "it answers in English"),
)  # fmt: skip
LAST = Cause(ANY_JOB, kill_all, ("TurnscoreAbsent",), "kill -9 of every service", "one is started")
