"""The kinds of Redis that an address names, each a real one: scores are found, and computed while it is away."""

import asyncio
import ssl

import pytest
from support.cache_loads import (
    assert_left_alone,
    errors,
    loaded_service,
    misses,
    round_trips,
    shared_level,
    state_of,
    until,
    works,
)
from support.certificates import certificate, private_key
from support.files import movable
from support.processes import running_cluster, running_redis, running_sentinel
from turnscore_service.cache.cli import app
from turnscore_service.cache.redis_client import Draw, PendingWrite, open_store
from turnscore_service.settings.cache import CacheSettings
from typer.testing import CliRunner


async def test_a_socket_of_this_machine(redis):
    async with loaded_service(f"unix://{redis.socket}") as load:
        await works(load)
        redis.kill()
        await assert_left_alone(load)
        redis.start()
        await works(load)


async def test_a_user_who_may_touch_nothing_but_the_caches_keys(redis):
    rules = ["on", ">p:a/s s", "~turnscore:*", "-@all", "+@connection", "+get", "+mget", "+set"]
    admin = redis.client()
    admin.execute_command("ACL", "SETUSER", "scores", *rules)
    admin.execute_command("ACL", "SETUSER", "default", "off")
    address = f"127.0.0.1:{redis.port}"
    async with loaded_service(f"redis://scores:p%3Aa%2Fs%20s@{address}") as load:
        await works(load)
    async with loaded_service(f"redis://{address}", username="scores", password="p:a/s s") as load:
        await works(load)
        before = errors("probe_budget", "forbidden")
        assert await shared_level(load.runtime).draw(Draw("a", 1.0, 5, 4), 1.0) is None
        await until(lambda: errors("probe_budget", "forbidden") > before)
        admin.execute_command("ACL", "SETUSER", "scores", "+eval", "+time")
        admin.close()
        await until(lambda: state_of("budget") == 0)
        assert await shared_level(load.runtime).draw(Draw("a", 1.0, 5, 4), 1.0) == (True, pytest.approx(1.0))
    before = errors("probe_read", "forbidden")
    async with loaded_service(f"redis://scores:wrong@{address}") as load:
        await until(lambda: errors("probe_read", "forbidden") > before)
        await load.goes_on()


async def test_one_that_is_encrypted_and_asks_for_a_certificate(redis):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate("authority")))
    tls.load_cert_chain(certificate("server"), private_key("server"))
    tls.verify_mode = ssl.CERT_REQUIRED
    mine = f"ssl_certfile={certificate('caller')}&ssl_keyfile={private_key('caller')}"
    async with movable(f"127.0.0.1:{redis.port}", tls) as (address, _):
        url = f"rediss://{address}?{mine}"
        async with loaded_service(f"{url}&ssl_ca_certs={certificate('authority')}") as load:
            await works(load)
        for wrong in (f"{url}&ssl_ca_certs={certificate('stranger_authority')}", f"redis://{address}"):
            trips, before = round_trips(), errors("probe_read", "connection") + errors("probe_read", "timeout")
            async with loaded_service(wrong) as load:
                await until(lambda b=before: errors("probe_read", "connection") + errors("probe_read", "timeout") > b)
                await load.goes_on()
            assert round_trips() == trips


async def test_a_cluster_keeps_and_clears_every_slots_scores_and_loses_those_of_a_node_that_is_away(tmp_path):
    def count(node):
        with node.client() as client:
            return len(client.keys("turnscore:3:*"))

    with running_cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}"
        settings = CacheSettings.model_validate({"url": url, "timeout_ms": 5000})
        address = settings.address()
        assert address is not None
        store = open_store(address, settings)
        keys = [f"turnscore:3:{space}:fake:1.0.0:i:{number}" for space in ("n", "m") for number in range(40)]
        others = ["turnscore:3:n:fake:1.0.01:i:0", "turnscore:3:n:fak:1.0.0:i:0"]
        entries = {key: key.encode() for key in (*keys, *others)}
        assert await store.write({key: PendingWrite(entry, 60_000) for key, entry in entries.items()}) == []
        assert await store.read(list(entries)) == list(entries.values())
        draws = [Draw(f"key-{number % 20}", 0.001, 5, 4) for number in range(60)]  # of every slot, each name thrice
        drawn = await store.draw(draws)
        assert [is_paid for is_paid, _ in drawn] == [True] * 40 + [False] * 20
        assert [level for _, level in drawn] == pytest.approx([1.0] * 20 + [-3.0] * 40, abs=0.01)
        await store.close()
        assert min(map(count, nodes)) > 0
        environment = {"TURNSCORE_CACHE__CLEAR_POLL_SECONDS": "0.05"}
        words = ["clear", "fake:1.0.0", "--url", f"redis+cluster://127.0.0.1:{nodes[1].port}"]
        done = await asyncio.to_thread(CliRunner().invoke, app, words, env=environment)
        assert (done.exit_code, done.stdout) == (0, f"removed {len(keys)} scores of fake:1.0.0\n")
        assert sum(map(count, nodes)) == len(others)
        async with loaded_service(url, timeout_ms=200) as load:
            await works(load)
            nodes[2].kill()
            await until(lambda: misses("unavailable") > 0)
            await load.goes_on()


async def test_the_master_that_sentinels_name_is_followed_to_the_next(tmp_path):
    with running_redis(tmp_path) as master, running_redis(tmp_path) as replica:
        with replica.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", master.port)
        with running_sentinel(tmp_path, master, "scores") as sentinel:
            async with loaded_service(f"redis+sentinel://127.0.0.1:{sentinel.port}/scores") as load:
                await works(load)
                master.kill()
                await assert_left_alone(load)
                await until(lambda: state_of("read") == state_of("write") == 0)
                await works(load)
                with replica.client() as client:
                    assert client.info("replication")["role"] == "master"
