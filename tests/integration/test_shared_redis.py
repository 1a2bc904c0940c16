"""Services that share one real Redis: what one has computed another finds, unless it runs another bundle."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.bundles import make_bundle
from support.cache_loads import running_runtime, uses_redis
from support.fakes import FakeScorer
from support.processes import RedisServer
from turnscore_core.deadline import Deadline
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_models import Bundle, write_bundle
from turnscore_wire import Score, ScoreRequest


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


async def ask(url: str, scorers: dict[str, LoadedScorer]) -> list[Score]:
    """The scores of one turn, asked twice of a service that has just been started."""
    async with running_runtime(url, scorers, local_max_bytes=1_000_000, timeout_ms=5000) as runtime:
        await uses_redis(runtime)
        request = ScoreRequest(response="a b")
        replies = [await runtime.pipeline().score(request, "r", Deadline.after_ms(60_000)) for _ in range(2)]
    return [each.scores["engagement"] for each in replies]


@pytest.mark.parametrize("changed", ["graph.onnx", "tokenizer.json", "calibration.json", "version"])
async def test_two_versions_of_a_bundle_never_serve_each_others_scores(
    redis: RedisServer, tmp_path: Path, changed: str
):
    old, new = (make_bundle(tmp_path / name) for name in ("old", "new"))
    if changed == "version":
        new = write_bundle(new.folder, new.manifest.model_copy(update={"version": "1.0.1"}))
    else:
        with new.path_of(changed).open("ab") as file:
            file.write(b" ")
        new = write_bundle(new.folder, new.manifest)
    known, wanted = loaded(FakeScorer(), old), loaded(TwiceScorer(), new)
    assert [(each.value, each.cached) for each in await ask(redis.url, known)] == [(0.02, False), (0.02, True)]
    assert [(each.value, each.cached) for each in await ask(redis.url, wanted)] == [(0.04, False), (0.04, True)]
    assert [(each.value, each.cached) for each in await ask(redis.url, known)] == [(0.02, True)] * 2
    assert [(each.value, each.cached) for each in await ask(redis.url, wanted)] == [(0.04, True)] * 2


async def test_services_on_the_same_bundle_serve_each_others_scores(redis: RedisServer, tmp_path: Path):
    bundles = [make_bundle(tmp_path / name) for name in ("here", "there")]
    first, second = FakeScorer(), FakeScorer()
    await ask(redis.url, loaded(first, bundles[0]))
    assert all(each.cached for each in await ask(redis.url, loaded(second, bundles[1])))
    assert (len(first.batches), second.batches) == (1, [])
