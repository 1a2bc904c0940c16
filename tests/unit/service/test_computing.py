"""Computing: what nobody waits for any more is taken out of the queue, in time that grows with its turns alone."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from turnscore_core.scorers.scorer import TokenPack, TurnToScore
from turnscore_service.scheduling.scheduler import InFlight, ScorerRuntime, ScoringJob, SingleFlight
from turnscore_wire import TokenCount


def pack(answers: Sequence[int], pieces: int = 1) -> TokenPack:
    return TokenPack(
        rows=((1,),), answers=tuple(answers), tokens=(TokenCount(used=1, dropped=0),) * len(answers), pieces=pieces
    )


class Kitchen:
    """A runtime whose tokenizer gives these packs at once, and whose batcher never answers."""

    def __init__(self, packs: Sequence[TokenPack]) -> None:
        self.submitted: list[asyncio.Future[Any]] = []
        tokenizing = SimpleNamespace(is_quick=lambda *_: True, encode_at_once=lambda _: (packs, {}))
        batcher = SimpleNamespace(submit=self._submit)
        self.runtime: Any = ScorerRuntime(SimpleNamespace(name="fed", scorer=None), tokenizing, batcher)  # type: ignore[arg-type]

    def _submit(self, *_: object) -> "asyncio.Future[Any]":
        self.submitted.append(asyncio.get_running_loop().create_future())
        return self.submitted[-1]


class CountedFlight(InFlight):
    """Counts how often it is asked whether it is wanted."""

    asked = 0

    @property
    def is_wanted(self) -> bool:
        CountedFlight.asked += 1
        return super().is_wanted


def begin(kitchen: Kitchen, turns: int) -> list[InFlight]:
    given: Any = {"turn": TurnToScore([], "ok"), "chars": 2, "reader": None, "keep": lambda _: None}
    flights: list[InFlight] = [CountedFlight(SingleFlight(), None, [b"a"], **given) for _ in range(turns)]
    for flight in flights:
        flight.enter()
    ScoringJob(kitchen.runtime, flights, lambda _: None, lambda: None).begin()
    return flights


@pytest.mark.parametrize("expired", [True, False])
async def test_all_packs_of_a_turn_that_nobody_waits_for_leave_the_queue(expired: bool):
    kitchen = Kitchen([pack([0], pieces=3) for _ in range(3)])
    [flight] = begin(kitchen, 1)
    flight.leave(expired=expired)
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
    flights = begin(Kitchen([pack(range(turns))]), turns)
    CountedFlight.asked = 0
    for flight in flights:
        flight.leave(expired=True)
    assert CountedFlight.asked <= 3 * turns
