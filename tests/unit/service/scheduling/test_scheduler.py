"""What is tokenized where, and what no caller waits for any more."""

import asyncio
import time
from dataclasses import replace

import pytest
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake
from support.transports import ready_runtime
from support.versions import ask
from turnscore_core.errors import FailedScoringError
from turnscore_core.inference.devices import CPU, Device
from turnscore_core.loaded_scorer import TokenizingPace, measure_tokenizing
from turnscore_core.scorers.scorer import WHOLE, WHOLE_SCORE, RawScore, TokenPack, TurnToScore
from turnscore_service.scheduling.admission import Admission, Reservation
from turnscore_service.scheduling.batcher import PackScores
from turnscore_service.scheduling.scheduler import InFlight, Part, ScorerRuntime, ScoringJob
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


def begin(held, turns):
    works = [InFlight({}, TurnToScore([], "ok"), 2) for _ in range(turns)]
    for work in works:
        work.add(Part(held.runtime.loaded.scorer, "", [b"a"], (), keep=lambda _: None))
        work.waiting += 1
    ScoringJob(held.runtime, works).begin(Reservation(Admission(AdmissionSettings()), {}))
    return works


@pytest.mark.parametrize("expired", [True, False])
async def test_all_packs_of_a_turn_that_no_caller_waits_for_leave_the_queue(expired):
    held = AnsweringNothing([pack([0], pieces=3) for _ in range(3)])
    [work] = begin(held, 1)
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
    def refuse(found):
        raise ValueError(found)

    held = AnsweringNothing([pack([0])])
    work = InFlight({}, SHORT, 3)
    own, broken = (Part(FakeScorer(), "", WHOLE_SCORE, (), keep=keep) for keep in (None, refuse))
    work.add(broken)
    work.add(own)
    work.waiting = 2
    ScoringJob(held.runtime, [work]).begin(Reservation(Admission(AdmissionSettings()), {}))
    held.submitted[0].set_result(PackScores((RawScore(0.1), RawScore(0.2)), 0.0, 0.0))
    await work.done
    assert (own.found[WHOLE].value, own.error) == (0.2, None)
    assert isinstance(broken.error, FailedScoringError)
