"""Computing: what nobody waits for any more is taken out of the queue, in time that grows with its turns alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.fakes import FakeScorer, loaded_fake
from turnscore_core.loaded_scorer import TokenizingPace
from turnscore_core.scorers.scorer import TokenPack, TurnToScore
from turnscore_service.scheduling.admission import Admission, Reservation
from turnscore_service.scheduling.scheduler import InFlight, ScorerRuntime, ScoringJob
from turnscore_service.settings.service import AdmissionSettings, BatchingSettings
from turnscore_wire import TokenCount


def pack(answers: Sequence[int], pieces: int = 1) -> TokenPack:
    return TokenPack(
        rows=((1,),), answers=tuple(answers), tokens=(TokenCount(used=1, dropped=0),) * len(answers), pieces=pieces
    )


class Kitchen:
    """A runtime whose tokenizer gives these packs at once, and whose batcher never answers."""

    def __init__(self, packs: Sequence[TokenPack]) -> None:
        self.submitted: list[asyncio.Future[Any]] = []
        scorer = FakeScorer(TokenizingPace(0.0))
        scorer.encode = lambda _: list(packs)  # type: ignore[method-assign]
        self.runtime = ScorerRuntime(loaded_fake(scorer), BatchingSettings())
        self.runtime.batcher.submit = self._submit  # type: ignore[method-assign]

    def _submit(self, *_: object) -> "asyncio.Future[Any]":
        self.submitted.append(asyncio.get_running_loop().create_future())
        return self.submitted[-1]


class CountedWork(InFlight):
    """Counts how often it is asked whether it is done."""

    asked = 0

    @property  # type: ignore[misc]
    def is_done(self) -> bool:  # type: ignore[override]
        CountedWork.asked += 1
        return False

    @is_done.setter
    def is_done(self, _: bool) -> None:
        pass


def begin(kitchen: Kitchen, turns: int) -> list[InFlight]:
    given: Any = {"turn": TurnToScore([], "ok"), "chars": 2, "keep": lambda _: None}
    works: list[InFlight] = [CountedWork({}, None, [b"a"], **given) for _ in range(turns)]
    for work in works:
        work.waiting += 1
    ScoringJob(kitchen.runtime, works, Reservation(Admission(AdmissionSettings()), {}, "")).begin()
    return works


@pytest.mark.parametrize("expired", [True, False])
async def test_all_packs_of_a_turn_that_nobody_waits_for_leave_the_queue(expired: bool):
    kitchen = Kitchen([pack([0], pieces=3) for _ in range(3)])
    [work] = begin(kitchen, 1)
    work.leave(expired=expired)
    await asyncio.sleep(0)
    assert [each.done() for each in kitchen.submitted] == [True, True, True]


async def test_a_pack_stays_while_one_of_its_turns_is_waited_for():
    kitchen = Kitchen([pack([0, 1])])
    first, second = begin(kitchen, 2)
    first.leave()
    assert not kitchen.submitted[0].done()
    second.leave()
    assert kitchen.submitted[0].done()


async def test_leaving_many_turns_looks_at_each_a_few_times():
    turns = 500
    works = begin(Kitchen([pack(range(turns))]), turns)
    CountedWork.asked = 0
    for work in works:
        work.leave(expired=True)
    assert CountedWork.asked <= 3 * turns
