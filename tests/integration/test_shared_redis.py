"""Services that share one real Redis: what one has computed another finds, unless it runs another bundle."""

import asyncio
import hashlib
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from support.bundles import make_bundle
from support.cache_loads import QUICK, running_runtime, shared_level, state_of, total, until, uses_redis
from support.fakes import FakeScorer
from support.transports import ready_runtime
from turnscore_core.errors import OverloadedError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scoring import Deadline
from turnscore_models.bundle import write_bundle
from turnscore_service import metrics
from turnscore_service.cache.redis_client import Draw
from turnscore_service.settings.service import Settings
from turnscore_wire import ScoreRequest


class TwiceScorer(FakeScorer):
    """Another model: every value is twice the fake one's."""

    def score(self, batch):
        return [replace(each, value=2 * each.value) for each in super().score(batch)]


def loaded(scorer, bundle):
    return {
        "engagement": LoadedScorer(
            scorer=scorer, bundle=bundle, variant="fp32", percentiles=tuple(index / 100 for index in range(101))
        )
    }


async def ask(url, scorers):
    """Value and whether it was cached, of one turn asked twice of a service that has just been started."""
    async with running_runtime(url, scorers, local_max_bytes=1_000_000, timeout_ms=5000) as runtime:
        await uses_redis(runtime)
        request = ScoreRequest(response="a b")
        replies = [await runtime.pipeline().score(request, "r", Deadline.after_ms(60_000)) for _ in range(2)]
    return [(each.scores["engagement"].value, each.scores["engagement"].cached) for each in replies]


async def test_services_serve_each_others_scores_of_the_same_bundle_and_of_no_other(redis, tmp_path):
    here, there, other = (make_bundle(tmp_path / name) for name in ("here", "there", "other"))
    with other.path_of("graph.onnx").open("ab") as file:
        file.write(b" ")
    other = write_bundle(other.folder, other.manifest)
    first, second = FakeScorer(), FakeScorer()
    assert await ask(redis.url, loaded(first, here)) == [(0.02, False), (0.02, True)]
    assert await ask(redis.url, loaded(second, there)) == [(0.02, True)] * 2
    assert (len(first.batches), second.batches) == (1, [])
    assert await ask(redis.url, loaded(TwiceScorer(), other)) == [(0.04, False), (0.04, True)]
    assert await ask(redis.url, loaded(second, there)) == [(0.02, True)] * 2


KEY = {"sha256": hashlib.sha256(b"secret").hexdigest(), "turns_per_second": 0.001, "burst": 10}


@asynccontextmanager
async def replicas(url, count=2, **groups):
    """Services that share a Redis, and have asked it for a key's budget, without taking anything of it."""
    cache = {**QUICK, "url": url, **groups.pop("cache", {})}
    settings = Settings.model_validate({"cache": cache, "auth": {"keys": {"team": KEY}}, **groups})
    async with AsyncExitStack() as stack:
        runtimes = []
        for _ in range(count):
            runtime = await stack.enter_async_context(ready_runtime(settings, fake=FakeScorer()))
            await shared_level(runtime).draw(Draw("other", 1.0, 1, 0), 1.0)
            runtimes.append(runtime)
        yield runtimes


async def score(runtime, turns=1):
    runtime.access.admit("secret")
    items = [ScoreRequest(response=f"a {number}") for number in range(turns)]
    try:
        await runtime.pipeline().score_batch(items, "r", Deadline.after_ms(60_000))
    except OverloadedError as error:
        return error.message.partition(" allows ")[0]
    return "ok"


REFUSED = "this key"


def local():
    return total(metrics.KEY_LOCAL_REQUESTS, key="team")


async def test_replicas_share_a_keys_budget_and_say_so_where_the_redis_is_away(redis):
    async with replicas(redis.url) as (one, two):
        await until(lambda: state_of("budget") == 0)
        before = local()
        assert [await score(each) for each in (one, two) * 7] == ["ok"] * 10 + [REFUSED] * 4
        with redis.client() as client:
            [key] = [each for each in client.scan_iter("*") if b"budget" in each and b":team" in each]
            assert key == b"turnscore:budget:team"
            assert 0 < client.pttl(key) <= 10_000_000
        assert local() == before
        redis.kill()
    async with replicas(redis.url) as (one, two):
        assert [await score(each) for each in (one, two) * 12] == ["ok"] * 20 + [REFUSED] * 4
        assert local() == before + 20


async def test_a_batch_overdraws_the_shared_budget_once_and_what_is_refused_is_given_back(redis):
    async with replicas(redis.url, admission={"max_items": 4}) as (one, two):
        await until(lambda: state_of("budget") == 0)
        fake = one.pipeline().model_set.scorers["fake"].scorer
        fake.gate.clear()
        held = asyncio.create_task(score(one, 4))
        await until(lambda: len(fake.batches) > 0)
        with redis.client() as client:
            before = float(client.get("turnscore:budget:team") or 0)
            for _ in range(3):
                assert "in flight" in await score(one, 100)
            await until(lambda: float(client.get("turnscore:budget:team") or 0) < before + 1)
        fake.gate.set()
        assert [await held, await score(two, 5), await score(one, 15)] == ["ok"] * 3
        assert [await score(each) for each in (one, two)] == [REFUSED] * 2


async def test_a_silent_redis_delays_a_key_by_one_timeout_until_it_is_left_alone(redis):
    limit = 1.5  # much longer than all else that a call does on a busy machine
    async with replicas(redis.url, 1, cache={"timeout_ms": 1500, "breaker_retry_seconds": 60}) as (one,):
        await until(lambda: state_of("budget") == state_of("read") == 0)
        before = local()
        redis.pause()
        try:
            took = []
            for _ in range(5):
                began_at = time.monotonic()
                assert await score(one) == "ok"
                took.append(time.monotonic() - began_at)
        finally:
            redis.resume()
        assert took[0] >= limit
        assert max(took) < 2 * limit  # scores and rate are asked for at once, or it would be twice the limit
        assert took[-1] < limit
        assert local() == before + 5
