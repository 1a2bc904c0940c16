"""Services that share one real Redis: what one has computed another finds, unless it runs another bundle."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from support.bundles import make_bundle
from support.cache_loads import running_runtime, uses_redis
from support.fakes import FakeScorer
from support.processes import RedisServer
from turnscore_core.deadline import Deadline
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_models import Bundle, write_bundle
from turnscore_wire import ScoreRequest


class TwiceScorer(FakeScorer):
    """Another model: every value is twice the fake one's."""

    def score(self, batch: Sequence[TokenPack]) -> list[RawScore]:
        return [replace(each, value=2 * each.value) for each in super().score(batch)]


def loaded(scorer: FakeScorer, bundle: Bundle) -> dict[str, LoadedScorer]:
    return {
        "engagement": LoadedScorer(
            scorer=scorer, bundle=bundle, variant="fp32", percentiles=tuple(index / 100 for index in range(101))
        )
    }


async def ask(url: str, scorers: dict[str, LoadedScorer]) -> list[tuple[float, bool]]:
    """Value and whether it was cached, of one turn asked twice of a service that has just been started."""
    async with running_runtime(url, scorers, local_max_bytes=1_000_000, timeout_ms=5000) as runtime:
        await uses_redis(runtime)
        request = ScoreRequest(response="a b")
        replies = [await runtime.pipeline().score(request, "r", Deadline.after_ms(60_000)) for _ in range(2)]
    return [(each.scores["engagement"].value, each.scores["engagement"].cached) for each in replies]


async def test_services_serve_each_others_scores_of_the_same_bundle_and_of_no_other(redis: RedisServer, tmp_path: Path):
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
