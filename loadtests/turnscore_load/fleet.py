"""Several replicas behind haproxy with one Redis, the callers of such an address, and damaged copies of bundles."""

import asyncio
import hashlib
import json
import random
import shutil
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from turnscore_client import AsyncTurnScoreClient, TurnScoreError

from turnscore_load.answers import CallAnswer, Stage
from turnscore_load.generator import Generator, connect_to, http_generator, score_request
from turnscore_load.machine import LOOPBACK, free_port, port_of
from turnscore_load.processes import Process, find_program, redis_process, running, started
from turnscore_load.services import ONE_BATCH_AT_A_TIME, service_process
from turnscore_load.traffic import texts

STARTER = Path(__file__).parents[2] / "model_store" / "starter"
_TIMEOUT_SECONDS = 20.0
_OF_CALLS = 0.4  # share of the load that each of the two kinds makes that call; the rest are conversations; chosen
_EXCHANGES = 12
_KEPT_VALUES = 200
_CONFIGURATION = Path(__file__).with_name("replicas_haproxy.cfg").read_text()
RETRIES = "retries 3\n    retry-on conn-failure empty-response response-timeout"


@dataclass(kw_only=True)
class Fleet:
    """What runs: the replicas behind the proxy, and the Redis."""

    replicas: Sequence[Process]
    proxy: Process
    redis: Process

    @property
    def url(self) -> str:
        return self.proxy.url

    def replace(self, replica: Process) -> None:
        """Starts a replica that has ended, and returns once the proxy has taken it in again."""
        replica.wait()
        replica.start()
        time.sleep(1.5)  # two checks of haproxy's, 500 ms apart, and one between


@contextmanager
def fleet(serve: Path, folder: Path, *, proxy_retries: bool = False) -> Iterator[Fleet]:
    """Starts three replicas and the rest, and stops all again. Raises StartError."""
    folder, program, port = folder.absolute(), find_program("haproxy"), free_port()
    with ExitStack() as stack:
        redis = stack.enter_context(started(redis_process(folder)))
        settings = {
            "TURNSCORE_MODELS": "engagement", "TURNSCORE_DRAIN_SECONDS": "2", **ONE_BATCH_AT_A_TIME,
            "TURNSCORE_CACHE__URL": f"redis://{LOOPBACK}:{redis.port}/0",
        }  # fmt: skip
        replicas = [service_process(serve, folder / f"replica-{each}", settings) for each in range(3)]
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start(wait=False)
        for replica in replicas:
            replica.wait_until_ready()
        written = folder / "haproxy.cfg"
        head = _CONFIGURATION.format(address=LOOPBACK, port=port, retries=RETRIES if proxy_retries else "retries 3")
        servers = [f"    server replica{at} {LOOPBACK}:{each.port}" for at, each in enumerate(replicas)]
        written.write_text("\n".join([head.rstrip(), *servers, ""]))
        command = [program, "-db", "-f", written]
        proxy = stack.enter_context(running(command, folder, port=port, ready="/readyz"))
        yield Fleet(replicas=replicas, proxy=proxy, redis=redis)


@dataclass(kw_only=True)
class Callers:
    """What three kinds of callers got through one address: one that never tries again, our client, conversations."""

    took_ms: dict[str, list[float]] = field(default_factory=lambda: {"raw": [], "client": [], "talk": []})
    failures: dict[str, list[str]] = field(default_factory=lambda: {"raw": [], "client": [], "talk": []})
    # Of the first turns, by their text: to be compared with those of one service alone.
    values: dict[str, float] = field(default_factory=dict)

    def count_failures(self) -> int:
        return sum(map(len, self.failures.values()))

    def count(self) -> int:
        return self.count_failures() + sum(map(len, self.took_ms.values()))

    async def call(self, url: str, per_second: float, conversations: int, event: Awaitable[Any]) -> None:
        """Calls until the event is over: two fifths of `per_second` from each kind that makes calls, the rest talks."""
        port, over = port_of(url), asyncio.ensure_future(event)
        async with AsyncTurnScoreClient(url, timeout_seconds=_TIMEOUT_SECONDS) as client:

            async def ours() -> "_OurClient":
                return _OurClient(client)

            raw = Generator(connect_to(port), 1000 * _TIMEOUT_SECONDS, keeps_replies=True)
            calling = Generator(ours, 1000 * _TIMEOUT_SECONDS, keeps_replies=True)
            rate = _OF_CALLS * per_second
            said = {name: [f"{text} {name}" for text in islice(texts(name), 20_000)] for name in self.took_ms}
            requests = (score_request(port, {"response": text}) for text in said["raw"])
            stages = await asyncio.gather(
                raw.run_open(requests, rate, until=over.done),
                calling.run_open(iter(said["client"]), rate, until=over.done),
                *(self._talk(client, number, conversations, per_second, over) for number in range(conversations)),
            )
            raw.close()
        for name, stage in zip(("raw", "client"), stages, strict=False):
            assert isinstance(stage, Stage)
            self._add(name, said[name], stage)
        await over

    def _add(self, name: str, said: Sequence[str], stage: Stage) -> None:
        for text, call in zip(said, stage.calls, strict=False):
            if call.answer.outcome != "answered":
                self.failures[name].append(call.answer.why or call.answer.outcome)
                continue
            self.took_ms[name].append(call.took_ms)
            if len(self.values) < 2 * _KEPT_VALUES:
                self.values[text] = float(json.loads(call.body)["scores"]["engagement"]["value"])

    async def _talk(
        self, client: AsyncTurnScoreClient, number: int, conversations: int, per_second: float, over: Any
    ) -> None:
        """One conversation after the other, of twelve exchanges each, faster than people talk so that more are hit."""
        said, chance, loop = texts(f"talk {number}"), random.Random(number), asyncio.get_running_loop()
        pause = conversations / ((1 - 2 * _OF_CALLS) * per_second)
        while not over.done():
            async with client.conversation() as conversation:
                for index in range(_EXCHANGES):
                    if over.done():
                        return
                    begun = loop.time()
                    try:
                        await conversation.say("user", next(said))
                        scored = await conversation.say("system", next(said))
                    except TurnScoreError as error:
                        self.failures["talk"].append(type(error).__name__)
                        break
                    counted = scored.dialogue["engagement"].turns
                    if (scored.index, counted) != (2 * index + 1, index + 1):  # one was lost, or counted twice
                        self.failures["talk"].append(f"turn {index} came back as {scored.index}, {counted} scored")
                    self.took_ms["talk"].append(1000 * (loop.time() - begun))
                    await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)


class _OurClient:
    """The client as a connection of the generator; a request is a response's text."""

    is_open = True

    def __init__(self, client: AsyncTurnScoreClient) -> None:
        self._client = client

    async def call(self, request: str) -> tuple[CallAnswer, bytes]:
        try:
            reply = await self._client.score(response=request)
        except TurnScoreError as error:
            return CallAnswer(outcome="failed", why=type(error).__name__), b""
        return CallAnswer(outcome="answered"), reply.model_dump_json().encode()

    def abort(self, why: str) -> None:
        """The client gives up by itself."""


async def capacity(url: str, seconds: float = 6.0, clients: int = 24) -> float:
    """Requests per second that callers get answered who ask again at once."""
    port = port_of(url)
    generator = http_generator(port, 60_000)
    said = (score_request(port, {"response": f"{text} {time.monotonic()}"}) for text in texts("capacity"))
    stage = await generator.run_closed(clients, seconds, said, 0.0)
    generator.close()
    return stage.count("answered") / seconds


def copy_as(version: str, folder: Path, bundle: Path = STARTER / "engagement") -> Path:
    """The bundle under another version, which the manifest's checksums do not cover."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(bundle, folder)
    _change_manifest(folder, version=version)
    return folder


def damage(folder: Path) -> Path:
    """Flips one byte of a graph: the checksum finds it before anything is loaded."""
    graph = graph_of(folder)
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    return folder


def falsify(folder: Path) -> Path:
    """Changes what a self-test turn should score, checksum and all: the self-test finds it, with the graph loaded."""
    test_file = folder / json.loads((folder / "manifest.json").read_text())["self_test"]
    test = json.loads(test_file.read_text())
    turn = test["turns"][0]
    for found in [turn, *turn.get("graphs", {}).values()]:
        if found.get("value") is not None:
            found["value"] += 0.3
    test_file.write_text(json.dumps(test))
    sign(folder, test_file)
    return folder


def graph_of(folder: Path) -> Path:
    return next(folder.rglob("*.onnx"))


def sign(folder: Path, file: Path) -> None:
    """The checksum of a changed file, as its manifest states it."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    name = str(file.relative_to(folder))
    _change_manifest(folder, files={**files, name: hashlib.sha256(file.read_bytes()).hexdigest()})


def _change_manifest(folder: Path, **fields: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, indent=2) + "\n")
