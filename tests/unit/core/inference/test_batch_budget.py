"""How many batches run at once, and how large they may be on a device whose memory is made up."""

import asyncio
import logging
import threading
from dataclasses import replace
from itertools import pairwise

import pytest
from support.fakes import FakeMachine, FakeScorer, encoded, loaded_fake, sample
from support.fed import make_fed_scorer
from turnscore_core import model_loader
from turnscore_core.batches import FIRST_TOKENS, TokenLimit, cuda_budget, find_most_tokens
from turnscore_core.errors import OverloadedError
from turnscore_core.inference.concurrency import Concurrency, Sample, choose, take_sample
from turnscore_core.inference.devices import Device
from turnscore_core.inference.onnx_backend import OutOfMemoryError, padded_width
from turnscore_core.load_settings import LoadSettings
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.model_loader import measure_budget, widest_packs
from turnscore_core.scoring import Deadline
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_service.scheduling.batcher import Batcher
from turnscore_service.settings.service import BatchingSettings

LATER = Deadline.after_ms(86_400_000)


class FakeMemory:
    """Device memory of which an arena takes a number of bytes a token, and keeps what it took."""

    def __init__(self, free, bytes_a_token):
        self._free = free
        self._bytes_a_token = bytes_a_token
        self._arena = 0
        self.batches = []

    def run(self, tokens):
        self.batches.append(tokens)
        wanted = max(self._arena, tokens * self._bytes_a_token)
        if wanted > self._free:
            raise OutOfMemoryError("no memory")
        self._arena = wanted

    def free_bytes(self):
        return self._free - self._arena


def test_the_budget_is_the_largest_doubling_that_stays_within_the_share():
    memory = FakeMemory(free=100_000_000, bytes_a_token=1_000)
    assert find_most_tokens(memory.run, memory.free_bytes, 40_000_000) == 32 * FIRST_TOKENS
    assert memory.batches == [FIRST_TOKENS * 2**power for power in range(6)]


def test_the_limit_shrinks_at_once_and_comes_back_slowly_but_never_beyond():
    limit = TokenLimit(6_400)
    limit.shrink(4_000)
    assert limit.tokens == 2_000
    limit.shrink(6_000)
    assert limit.tokens == 2_000
    limit.recover()
    assert limit.tokens == 2_031
    for _ in range(100):
        limit.recover()
    assert limit.tokens == 6_400


async def hold(batcher, scorer):
    scorer.gate.clear()
    first = batcher.submit(encoded(3), LATER)
    await asyncio.to_thread(scorer.started.wait)
    return first


async def test_a_batch_that_finds_no_memory_is_halved_and_every_turn_is_scored(fake_scorer):
    batcher = Batcher(loaded_fake(fake_scorer), BatchingSettings(max_batch_tokens=4_096))
    fake_scorer.most_tokens = 100
    failed = sample("items_total", scorer="fake", model="fake:1.0.0", outcome="failed")
    halved = sample("out_of_memory_batches_total", scorer="fake")
    first = await hold(batcher, fake_scorer)
    futures = [batcher.submit(encoded(32), LATER) for _ in range(8)]
    fake_scorer.gate.set()
    scores = await asyncio.gather(first, *futures)
    assert [each.raw[0].value for each in scores[1:]] == [0.32] * 8
    assert fake_scorer.batches[1:4] == [[32] * 8, [32] * 4, [32] * 2]
    assert sample("items_total", scorer="fake", model="fake:1.0.0", outcome="failed") == failed
    assert sample("out_of_memory_batches_total", scorer="fake") == halved + 3
    batcher.close()


async def test_a_turn_that_finds_no_memory_alone_may_be_sent_again(fake_scorer):
    batcher = Batcher(loaded_fake(fake_scorer), BatchingSettings())
    fake_scorer.most_tokens = 10
    with pytest.raises(OverloadedError, match="no memory left") as refused:
        await batcher.submit(encoded(32), LATER)
    assert refused.value.retry_after_ms == 1000
    assert (await batcher.submit(encoded(8), LATER)).raw[0].value == 0.08
    batcher.close()


def test_the_widest_packs_are_as_wide_as_the_scorer_makes_them_and_no_two_alike(tmp_path):
    loaded = load_scorer(read_bundle(next(each for each in starter_bundles() if each.name == "engagement")), "cpu-int8")
    packs = list(widest_packs(loaded, 2_000))
    assert {pack.width for pack in packs} == {loaded.bundle.manifest.token_limit}
    rows = [row for pack in packs for row in pack.rows]
    assert len(set(rows)) == len(rows) == 2 * len(packs)
    assert sum(len(pack.rows) * padded_width(pack.width) for pack in packs) >= 2_000
    assert len(loaded.scorer.score(packs)) == len(packs)
    fed, _ = make_fed_scorer(tmp_path / "fed", window=256)
    loaded_fed = replace(loaded_fake(fed), bundle=replace(loaded.bundle, manifest=loaded.bundle.manifest))
    trunks = [pack.rows[0] for pack in widest_packs(loaded_fed, 2_000)]
    assert len(set(trunks)) == len(trunks) >= 3


def test_a_scorers_budget_is_found_by_its_own_batches(fake_scorer):
    fake_scorer.most_tokens = 5_000
    assert measure_budget(loaded_fake(fake_scorer), lambda: 0, 10**9).budget == cuda_budget(4_096)
    sizes = [len(batch) * batch[0] for batch in fake_scorer.batches]
    assert all(later > 1.9 * earlier for earlier, later in pairwise(sizes))


@pytest.mark.parametrize(("workers", "device", "sharing"), [(1, "cuda", 1), (4, "cuda", 2), (4, "cuda:0", 4)])
def test_workers_scorers_and_concurrent_batches_divide_the_free_memory(monkeypatch, caplog, workers, device, sharing):
    parts = []

    def measure(loaded, free_bytes, may_take_bytes):
        assert free_bytes() == 20 << 30
        parts.append(may_take_bytes)
        return replace(loaded, budget=cuda_budget(2_048))

    on_cuda = replace(loaded_fake(FakeScorer()), device=Device("cuda", 0), concurrency=Concurrency(batches=2))
    monkeypatch.setattr(model_loader, "load_checked", lambda *_, **__: on_cuda)
    monkeypatch.setattr(model_loader, "measure_pace", lambda checked: checked)
    monkeypatch.setattr(model_loader, "choose_graph", lambda *_: ("cuda-fp16", Device("cuda", 0)))
    monkeypatch.setattr(model_loader, "measure_budget", measure)
    models = tuple(f"{folder}/" for folder in starter_bundles()[:2])
    settings = LoadSettings(models=models, workers=workers, device=device, gpu_memory_share=0.5)
    with caplog.at_level(logging.INFO, "turnscore.models"):
        scorers = model_loader.load_scorers(settings, machine=FakeMachine())
    assert parts == [int(0.5 * (20 << 30) / sharing / 2 / 2)] * 2
    assert {each.budget.most_tokens for each in scorers.values()} == {2_048}
    assert "takes batches of up to 2048 tokens" in caplog.text
    parts.clear()
    named = settings.model_copy(update={"max_batch_tokens": 512})
    model_loader.load_scorers(named, machine=FakeMachine())
    assert parts == []


def test_concurrent_batches_take_the_threads_that_cost_least():
    samples = {1: Sample(0.010, 0.010), 4: Sample(0.010, 0.015), 16: Sample(0.010, 0.030)}
    assert choose(samples, 16) == Concurrency(batches=16, threads=1)


def test_an_idle_runtime_gets_more_threads_where_that_is_clearly_faster():
    samples = {1: Sample(0.047, 0.046), 2: Sample(0.033, 0.054)}
    assert choose(samples, 2) == Concurrency(batches=2, threads=1, wide_threads=2)
    samples[2] = Sample(0.043, 0.054)
    assert choose(samples, 2) == Concurrency(batches=2, threads=1)


def test_the_cost_is_taken_with_every_concurrent_batch_busy():
    meeting = threading.Barrier(3)
    seen = {threading.main_thread()}

    def call():
        if threading.current_thread() not in seen:
            seen.add(threading.current_thread())
            meeting.wait(60)  # passes only when three run at once

    assert take_sample(call, concurrent_batches=3).latency_seconds > 0
    assert len(seen) == 4
