"""Three services behind the balancer of deploy/compose, a real haproxy: one dies, all restart, conversations move on.

They are in this process, on scorers without a model: `make endurance` does it to real ones under load.
"""

import asyncio
import re
import shutil
from itertools import count
from pathlib import Path

import httpx
import pytest
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake, loader_of
from support.processes import behind_haproxy
from support.transports import server_of
from turnscore_client import AsyncTurnScoreClient
from turnscore_load.machine import free_port
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings

CONFIG = Path(__file__).parents[2] / "deploy" / "compose" / "haproxy.cfg"

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="there is no haproxy on this machine")


class Replica:
    """A service that can die, stop and start again at its address."""

    def __init__(self):
        self.port = free_port()
        self.checks = 0  # how often it was asked whether it is ready

    async def start(self):
        self.scorer, settings = FakeScorer(), Settings()
        self.runtime = Runtime(settings, loader_of({"fake": loaded_fake(self.scorer)}))
        self.runtime.start()
        await self.runtime.wait_until_loaded()
        self._transport = create_app(self.runtime)
        self._server = server_of(self._answer, settings, port=self.port, interface="asgi3")
        self._serving = asyncio.create_task(self._server.serve())
        await until(lambda: self._server.started)

    async def _answer(self, scope, receive, send):
        self.checks += scope["path"] == "/readyz"
        await self._transport(scope, receive, send)

    async def die(self):
        """As a process that is killed: its port is closed, and what was in flight on it is never answered."""
        for listener in self._server.servers:
            listener.close()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        self._server.force_exit = True
        await self._stop()

    async def restart(self):
        """As one that gets SIGTERM, and drains until the balancer has looked twice."""
        self.runtime.begin_drain()
        looked = self.checks
        await until(lambda: self.checks > looked + 1)
        await self._stop()
        await self.start()

    async def _stop(self):
        self._server.should_exit = True
        self.scorer.gate.set()
        await self._serving
        await self.runtime.stop()

    async def end(self):
        if not self._serving.done():
            await self.die()


def configuration(port, replicas):
    """The balancer's own for HTTP: these servers instead of a name server, and five times as many checks."""
    text = CONFIG.read_text().partition("# Connections, not calls")[0]
    text = re.sub(r"resolvers network\n(    .*\n)+", "", text).replace("bind :3000", f"bind 127.0.0.1:{port}")
    template = re.compile(r"    server-template replica 10 turnscore:3000 (.*) resolvers network init-addr none")
    options = template.findall(text)[0].replace("inter 500ms", "inter 100ms")
    text = text.replace("    balance", "    timeout check 60s\n    balance")  # not `inter`
    servers = (f"    server replica{at} 127.0.0.1:{each.port} {options}" for at, each in enumerate(replicas))
    return template.sub("\n".join(servers), text)


@pytest.fixture
async def replicas():
    started = [Replica() for _ in range(3)]
    for each in started:
        await each.start()
    yield started
    for each in started:
        await each.end()


@pytest.fixture
async def url(replicas, tmp_path):
    port, file = free_port(), tmp_path / "haproxy.cfg"
    file.write_text(configuration(port, replicas))
    async with behind_haproxy(tmp_path, file, port) as url:
        yield url


async def test_what_is_in_flight_on_a_replica_that_dies_is_answered_by_another(url, replicas):
    first, *others = replicas
    for each in replicas:
        each.scorer.gate.clear()
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        asked = []
        while not all(each.scorer.batches for each in replicas):
            body = {"response": "a " * (len(asked) + 1), "deadline_ms": 60_000}
            asked.append(asyncio.create_task(client.post("/v1/score", json=body)))
            held = sum(len(each.scorer.encoded) for each in replicas)
            await until(lambda held=held: sum(len(each.scorer.encoded) for each in replicas) > held)
        await first.die()
        for each in others:
            each.scorer.gate.set()
        answers = [await each for each in asked]
        assert {each.status_code for each in answers} == {200}
        values = [each.json()["scores"]["fake"]["value"] for each in answers]
        assert values == [number / 100 for number in range(1, len(asked) + 1)]
        again = [await client.post("/v1/score", json={"response": f"once more {each}"}) for each in range(10)]
        assert {each.status_code for each in again} == {200}


async def test_a_rolling_restart_fails_no_request_and_every_new_replica_gets_some(url, replicas):
    restarted = asyncio.Event()
    before = [each.scorer for each in replicas]
    statuses = []

    async def call():
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            for number in count():
                answer = await client.post("/v1/score", json={"response": f"{number} {id(client)}"})
                statuses.append(answer.status_code)
                if restarted.is_set():
                    return

    callers = [asyncio.create_task(call()) for _ in range(4)]
    for each in replicas:
        await each.restart()
        await until(lambda each=each: each.scorer.batches)
    restarted.set()
    await asyncio.gather(*callers)
    assert set(statuses) == {200}
    assert all(each.scorer not in before for each in replicas)


async def test_a_conversation_goes_on_with_another_replica_when_its_own_dies(url, replicas):
    async with AsyncTurnScoreClient(url, timeout_seconds=60) as client, client.conversation() as conversation:
        await conversation.say("user", "hello there")
        await conversation.say("system", "a b c")
        [own] = [each for each in replicas if each.scorer.batches]
        await own.die()
        await conversation.say("user", "and you")
        scored = await conversation.say("system", "a b c d")
    assert (scored.index, scored.scores["fake"].value) == (3, 0.04)
    assert scored.dialogue["fake"].turns == 2
    assert sum(bool(each.scorer.batches) for each in replicas) == 2
