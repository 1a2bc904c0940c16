"""What is tokenized where, which turns make a batch, and what no caller waits for any more."""

import asyncio
import dataclasses
import math
import time
from dataclasses import replace

import pytest
from support.conditions import until
from support.fakes import FakeScorer, encoded, loaded_fake, sample
from support.transports import ready_runtime
from support.versions import ask
from turnscore_core.batches import BatchBudget, SizedPack, WasteLimit, grow_batch
from turnscore_core.errors import DeadlineExceededError, FailedScoringError, NotReadyError
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.devices import CPU, Device
from turnscore_core.loaded_scorer import TokenizingPace, measure_tokenizing
from turnscore_core.scorers.scorer import WHOLE, WHOLE_SCORE, RawScore, TokenPack, TurnToScore
from turnscore_core.scoring import Deadline
from turnscore_service.auth.access import CALLER, Caller
from turnscore_service.scheduling.admission import Admission, Reservation
from turnscore_service.scheduling.batcher import Batcher, PackScores
from turnscore_service.scheduling.scheduler import InFlight, PendingScore, ScorerRuntime, ScoringJob
from turnscore_service.settings.service import AdmissionSettings, BatchingSettings
from turnscore_wire import TokenCount, Turn

SHORT = TurnToScore([], "yes")


class TimedScorer(FakeScorer):
    """Tokenizes in 50 us a turn and 0.2 us a character, by a clock of its own."""

    now = 0.0

    def encode(self, turns):
        for turn in turns:
            chars = len(turn.response) + sum(len(each.text) for each in turn.context)
            self.now += 50e-6 + 0.2e-6 * chars
        return super().encode(turns)


@pytest.fixture
async def open_tokenizing(fake_scorer):
    opened = []

    def open_one(pace):
        fake_scorer.tokenizing = pace
        opened.append(ScorerRuntime(loaded_fake(fake_scorer), BatchingSettings()))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_the_pace_bounds_the_times_of_short_and_long_turns(monkeypatch):
    scorer = TimedScorer()
    monkeypatch.setattr(time, "perf_counter", lambda: scorer.now)
    pace = measure_tokenizing(scorer, [SHORT, TurnToScore([Turn(speaker="user", text="And you?")], "I am fine.")])
    for chars in (3, 400, 10_000):
        assert 1.0 <= pace.seconds(1, chars) / (50e-6 + 0.2e-6 * chars) <= 1.2


async def test_many_turns_are_tokenized_in_pieces_as_if_together(open_tokenizing, fake_scorer):
    turns = [TurnToScore([], "word " * (1 + number % 7)) for number in range(200)]
    turns[100] = TurnToScore([], "untokenizable")
    packs, failed = await open_tokenizing(TokenizingPace()).encode(turns)
    assert sorted(place for pack in packs for place in pack.answers) == [each for each in range(200) if each != 100]
    assert failed.keys() == {100}
    alone = {place: fake_scorer.encode([turns[place]])[0].real_tokens for place in range(200) if place != 100}
    assert {pack.answers[0]: pack.real_tokens for pack in packs} == alone


async def test_what_no_caller_waits_for_any_more_is_not_tokenized_to_its_end(open_tokenizing, fake_scorer):
    tokenizing = open_tokenizing(TokenizingPace())
    fake_scorer.tokenizer_gate.clear()
    encoding = tokenizing.encode([SHORT] * 1000)
    await until(lambda: fake_scorer.encoded)
    encoding.cancel()
    await asyncio.sleep(0)
    fake_scorer.tokenizer_gate.set()
    await tokenizing.encode([SHORT])
    assert fake_scorer.encoded[-1] == 1
    assert sum(fake_scorer.encoded) < 1000


def pack(answers, pieces=1):
    return TokenPack(
        rows=((1,),), answers=tuple(answers), tokens=(TokenCount(used=1, dropped=0),) * len(answers), pieces=pieces
    )


class AnsweringNothing:
    """A runtime whose tokenizer gives these packs at once, and whose batcher never answers."""

    def __init__(self, packs):
        self.submitted = []
        scorer = FakeScorer(TokenizingPace(0.0))
        scorer.encode = lambda _: list(packs)
        self.runtime = ScorerRuntime(loaded_fake(scorer), BatchingSettings())
        self.runtime.batcher.submit = self._submit

    def _submit(self, *_):
        self.submitted.append(asyncio.get_running_loop().create_future())
        return self.submitted[-1]


def begin(held, *scorers, cache=None):
    """Computes a turn for these scorers, each of which a caller waits for."""
    work = InFlight({}, SHORT, 3)
    for each in scorers:
        work.parts.append(PendingScore(loaded=loaded_fake(each), asked="fake", computed=WHOLE_SCORE))
        work.parts[-1].key = None
        work.waiting += 1
    ScoringJob(held.runtime, [work], Reservation(Admission(AdmissionSettings()), {}), cache).begin()
    return work


@pytest.mark.parametrize("expired", [True, False])
async def test_all_packs_of_a_turn_that_no_caller_waits_for_leave_the_queue(expired):
    held = AnsweringNothing([pack([0], pieces=3) for _ in range(3)])
    work = begin(held, FakeScorer())
    work.leave(expired=expired)
    await asyncio.sleep(0)
    assert [each.done() for each in held.submitted] == [True, True, True]


class Keeper(FakeScorer):
    """Keeps all but the first two tokens of a turn."""

    def for_queue(self, pack):
        return replace(pack, rows=(pack.rows[0][:2],))


@pytest.mark.parametrize(("device", "counted"), [(CPU, 2), (Device("cuda", 0), 5)])
async def test_on_a_cpu_the_queue_counts_what_is_not_kept(device, counted):
    scorer = Keeper()
    async with ready_runtime(fake=replace(loaded_fake(scorer), device=device)) as runtime:
        await ask(runtime, "a b c d e")
        assert runtime.pipeline().admission.real_shares["fake"] == counted / 5
    assert scorer.batches == [[counted]]


async def test_a_scorer_of_a_pass_whose_score_cannot_be_kept_fails_alone():
    class Refusing:
        def keep(self, lookup, found):
            if lookup is work.parts[0]:
                raise ValueError(found)

    held = AnsweringNothing([pack([0])])
    work = begin(held, FakeScorer(), FakeScorer(), cache=Refusing())
    held.submitted[0].set_result(PackScores((RawScore(0.1), RawScore(0.2)), 0.0, 0.0))
    await work.done
    broken, own = work.parts
    assert (own.found[WHOLE].value, own.error) == (0.2, None)
    assert isinstance(broken.error, FailedScoringError)


LATER = Deadline.after_ms(86_400_000)


def sizes(*widths):
    return [SizedPack(encoded(width)) for width in widths]


@pytest.fixture
async def batcher(fake_scorer):
    batcher = Batcher(loaded_fake(fake_scorer), BatchingSettings())
    yield batcher
    fake_scorer.gate.set()
    batcher.close()


async def hold_runtime(batcher, scorer):
    """Makes the runtime busy with one turn, so that what follows has to queue."""
    scorer.gate.clear()
    first = batcher.submit(encoded(3), LATER)
    await asyncio.to_thread(scorer.started.wait)
    return first


def counted(outcome):
    return sample("items_total", scorer="fake", model="fake:1.0.0", outcome=outcome)


def test_batch_takes_the_nearest_in_width_within_the_token_budget():
    turns = sizes(8, 20, 32, 32, 40, 128)
    low, high = grow_batch(turns, 2, 3 * 40, WasteLimit(9))
    assert [turn.width for turn in turns[low:high]] == [32, 32, 40]


def test_batch_leaves_out_a_turn_that_would_mostly_add_padding():
    turns = sizes(*[8] * 7, 256)
    assert grow_batch(turns, 0, 100_000, WasteLimit(1.5)) == (0, 7)
    assert grow_batch(turns, 7, 100_000, WasteLimit(1.5)) == (7, 8)


def test_on_a_cpu_only_turns_of_one_padded_width_go_together():
    turns = sizes(4, 8, 9, 16, 17)
    assert grow_batch(turns, 0, 4096, BatchBudget().waste) == (0, 2)
    assert grow_batch(turns, 3, 4096, BatchBudget().waste) == (2, 4)


def test_a_turn_beyond_the_budget_runs_alone():
    assert grow_batch(sizes(8, 64), 1, 16, WasteLimit(9)) == (1, 2)


async def test_the_oldest_turn_is_in_the_next_batch_whatever_its_width(fake_scorer):
    batcher = Batcher(loaded_fake(fake_scorer), BatchingSettings(max_batch_tokens=64, max_padding_ratio=1.1))
    first = await hold_runtime(batcher, fake_scorer)
    queued = [batcher.submit(encoded(width), LATER) for width in (60, 8, 8, 8)]
    fake_scorer.gate.set()
    await asyncio.gather(first, *queued)
    batcher.close()
    assert fake_scorer.batches == [[3], [60], [8, 8, 8]]


async def test_a_turn_whose_time_ran_out_is_not_computed_and_counted_as_expired(batcher, fake_scorer):
    before = counted("expired")
    first = await hold_runtime(batcher, fake_scorer)
    with pytest.raises(DeadlineExceededError):
        await batcher.submit(encoded(50), Deadline.after_ms(1))
    fake_scorer.gate.set()
    await first
    await batcher.stop()
    assert fake_scorer.batches == [[3]]
    assert counted("expired") == before + 1


async def test_stop_answers_what_is_queued_and_refuses_what_comes_after(batcher, fake_scorer):
    first = await hold_runtime(batcher, fake_scorer)
    queued = batcher.submit(encoded(5), LATER)
    stopping = asyncio.create_task(batcher.stop())
    await asyncio.sleep(0)
    with pytest.raises(NotReadyError):
        batcher.submit(encoded(5), LATER)
    fake_scorer.gate.set()
    await stopping
    assert first.done()
    assert (await queued).raw[0].value == 0.05


async def test_concurrent_batches_run_at_once_and_share_what_is_queued_evenly(fake_scorer):
    loaded = dataclasses.replace(loaded_fake(fake_scorer), concurrency=Concurrency(batches=2))
    batcher = Batcher(loaded, BatchingSettings())
    fake_scorer.gate.clear()
    futures = [batcher.submit(encoded(128), LATER) for _ in range(6)]
    while len(fake_scorer.batches) < 2:
        await asyncio.sleep(0.001)
    assert fake_scorer.batches == [[128] * 3] * 2
    fake_scorer.gate.set()
    await asyncio.gather(*futures)
    batcher.close()


async def test_a_pack_of_several_turns_is_answered_and_counted_turn_by_turn():
    class Packing(FakeScorer):
        def score(self, batch):
            return [RawScore(value) for pack in batch for value in (0.1, math.nan, 0.3)[: len(pack.answers)]]

    pack = dataclasses.replace(encoded(5), answers=(0, 1, 2), tokens=encoded(5).tokens * 3)
    before = counted("scored"), counted("failed")
    batcher = Batcher(loaded_fake(Packing()), BatchingSettings())
    found = (await batcher.submit(pack, LATER)).raw
    batcher.close()
    assert (found[0].value, found[2].value) == (0.1, 0.3)
    assert isinstance(found[1], FailedScoringError)
    assert (counted("scored"), counted("failed")) == (before[0] + 2, before[1] + 1)


def submit_as(batcher, caller, *widths):
    token = CALLER.set(Caller(share=caller))
    try:
        return [batcher.submit(encoded(width), LATER) for width in widths]
    finally:
        CALLER.reset(token)


async def test_who_comes_after_a_flood_is_in_the_next_batch_and_need_not_wait_for_a_full_one(fake_scorer):
    batcher = Batcher(loaded_fake(fake_scorer), BatchingSettings(max_batch_tokens=640))
    CALLER.set(Caller(share="flood"))
    first = await hold_runtime(batcher, fake_scorer)
    flood = submit_as(batcher, "flood", *[8] * 400)
    other = submit_as(batcher, "other", 8)
    fake_scorer.gate.set()
    await asyncio.gather(first, *flood, *other)
    batcher.close()
    sizes = [len(batch) for batch in fake_scorer.batches[1:]]
    assert sizes[:2] == [10, 80]  # the other's turn was in the small one: after it the flood has the batches to itself
    assert not batcher._queue._by_caller


async def test_callers_who_come_once_each_starve_no_other(fake_scorer):
    batcher = Batcher(loaded_fake(fake_scorer), BatchingSettings(max_batch_tokens=8))
    first = await hold_runtime(batcher, fake_scorer)
    waiting = submit_as(batcher, "patient", 8, 8, 8)
    crowd = [future for number in range(100) for future in submit_as(batcher, f"once {number}", 16)]
    fake_scorer.gate.set()
    await asyncio.gather(first, *waiting, *crowd)
    batcher.close()
    widths = [batch[0] for batch in fake_scorer.batches[1:]]
    assert [place for place, width in enumerate(widths) if width == 8][-1] < 20
