"""docs/haproxy.cfg, by a real haproxy: what it is said to keep from the service, and whom it says it forwards."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from support.conditions import until
from support.fakes import FakeScorer, say
from support.processes import behind_haproxy
from support.transports import listening_service
from turnscore_load.machine import free_port
from turnscore_service.settings.service import Settings
from websockets.sync.client import connect

CONFIG = Path(__file__).parents[2] / "docs" / "haproxy.cfg"
SETTINGS = Settings.model_validate({"auth": {"trusted_proxies": "127.0.0.1"}, "admission": {"max_items": 1}})

pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="there is no haproxy on this machine")


@dataclass
class Proxied:
    """A service with room for one turn, behind the proxy."""

    port: int
    scorer: FakeScorer

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def caller(self, address):
        """One who calls from that address of this machine."""
        transport = httpx.AsyncHTTPTransport(local_address=address)
        return httpx.AsyncClient(transport=transport, base_url=self.url, timeout=60)


@pytest.fixture
async def proxied(tmp_path):
    scorer, port = FakeScorer(), free_port()
    async with listening_service(SETTINGS, fake=scorer) as (address, _):
        hasty = tmp_path / "haproxy.cfg"
        hasty.write_text(CONFIG.read_text().replace("timeout http-request 5s", "timeout http-request 2s"))
        async with behind_haproxy(tmp_path, hasty, port, LISTEN=f"127.0.0.1:{port}", TURNSCORE=address):
            yield Proxied(port, scorer)
        scorer.gate.set()


async def test_calls_and_conversations_come_through_and_metrics_do_not(proxied):
    async with proxied.caller("127.0.0.1") as caller:
        assert (await caller.post("/v1/score", json={"response": "a b"})).json()["scores"]["fake"]["value"] == 0.02
        assert (await caller.get("/metrics")).status_code == 404

    def talk():
        with connect(f"ws://127.0.0.1:{proxied.port}/v1/conversations") as socket:
            return say(socket, "system", "a b c").model_dump_json()

    assert '"value":0.03' in await asyncio.to_thread(talk)


async def test_callers_behind_the_proxy_share_by_their_own_addresses(proxied):
    proxied.scorer.gate.clear()
    async with proxied.caller("127.0.0.2") as flood, proxied.caller("127.0.0.3") as other:
        held = asyncio.create_task(flood.post("/v1/score", json={"response": "held", "deadline_ms": 60_000}))
        await until(lambda: len(proxied.scorer.batches) > 0)
        said_to_be_another = {"x-forwarded-for": "127.0.0.9"}
        refused = await flood.post("/v1/score", json={"response": "more"}, headers=said_to_be_another)
        admitted = asyncio.create_task(other.post("/v1/score", json={"response": "mine", "deadline_ms": 60_000}))
        await until(lambda: len(proxied.scorer.encoded) > 1)
        proxied.scorer.gate.set()
        assert [refused.status_code, (await held).status_code, (await admitted).status_code] == [429, 200, 200]


async def test_connections_that_say_nothing_or_never_end_their_headers_are_closed(proxied):
    silent, silent_writer = await asyncio.open_connection("127.0.0.1", proxied.port)
    slow, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
    writer.write(b"POST /v1/score HTTP/1.1\r\nHost: a\r\n")
    async with asyncio.timeout(60):
        assert (await silent.read())[:12] in (b"", b"HTTP/1.1 408")
        assert (await slow.read()).startswith(b"HTTP/1.1 408")
    for each in (silent_writer, writer):
        each.close()
        await each.wait_closed()


async def test_headers_beyond_its_buffer_and_bodies_beyond_ours_never_reach_the_service(proxied):
    async with proxied.caller("127.0.0.1") as caller:
        assert (await caller.get("/livez", headers={"x-filler": "a" * 20_000})).status_code in (400, 431)
    # Only so much of the body as the proxy wants: who still sends when he is refused may see his connection broken.
    reader, writer = await asyncio.open_connection("127.0.0.1", proxied.port)
    writer.write(b"POST /v1/score HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n" + b" " * 16 * 1024)
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()
    await writer.wait_closed()


async def test_one_address_has_no_more_than_its_connections(proxied):
    opened = [await asyncio.open_connection("127.0.0.1", proxied.port) for _ in range(100)]
    async with proxied.caller("127.0.0.1") as same, proxied.caller("127.0.0.2") as other:
        with pytest.raises(httpx.TransportError):
            await same.get("/livez")
        assert (await other.get("/livez")).status_code == 200
    for _, writer in opened:
        writer.close()
        await writer.wait_closed()
