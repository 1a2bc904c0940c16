from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from turnscore_bench.harness.processes import StartError
from turnscore_bench.harness.traffic import LENGTH_MIXES, LengthMix, Traffic
from turnscore_bench.servers.arena import Arena
from turnscore_bench.servers.bare import BareProcess, EngagementRows
from turnscore_bench.servers.contenders import Answers, Contender, ServerSpec
from turnscore_bench.servers.results import BARE, Measurement, Results
from turnscore_bench.servers.rounds import Schedule, enter, run_rounds

SCHEDULE = Schedule(mixes=[LENGTH_MIXES["short"], LENGTH_MIXES["long"]], clients=[1, 8], rounds=3, turns=100)


@dataclass
class FakeArena:
    """Notes what is measured; `broken` does not start, `cold` hangs up at once, `fragile` at 8 clients."""

    measured: list[tuple[str, str, int]] = field(default_factory=list)

    def start(self, contender: Contender) -> None:
        if contender.key == "broken":
            raise StartError("no such module")

    def check(self, *_: object) -> None: ...

    def warm_up(self, contender: Contender, *_: object) -> None:
        if contender.key == "cold":
            raise StartError("hung up at once")

    def measure(self, contender: Contender, mix: LengthMix, clients: int, count: int) -> Measurement:
        if (contender.key, clients) == ("fragile", 8):
            raise StartError("hung up")
        self.measured.append((contender.key, mix.name, clients))
        return Measurement(
            contender=contender.key, mix=mix.name, clients=clients, turns=count, wall_seconds=1.0, cpu_seconds=1.0
        )


class FakeBare:
    def order(self, job: str, mix: str, turns: Any) -> dict[str, float]:
        return {"wall_seconds": 1.0, "cpu_seconds": 1.0, "p50_ms": 5.0}


class FakeTraffic:
    def turns(self, mix: LengthMix, count: int) -> list[None]:
        return [None] * count


def contender(key: str) -> Contender:
    spec = ServerSpec(key=key, command=lambda _: [], ready_path="/")
    return Contender(
        key=key, label=key, server=spec, path="/", body=lambda _: {}, answers=Answers(read=lambda _: [], tolerance=0.0)
    )


def run(contenders: list[Contender], arena: FakeArena) -> Results:
    results = Results()
    fakes = (cast("Arena", arena), cast("BareProcess", FakeBare()))
    entered = enter(contenders, SCHEDULE.mixes[0], *fakes, cast("EngagementRows", None), results, lambda _: None)
    run_rounds(SCHEDULE, entered, *fakes, cast("Traffic", FakeTraffic()), results, lambda _: None)
    return results


def test_contenders_take_turns_and_another_begins_each_round() -> None:
    arena = FakeArena()
    run([contender("a"), contender("b")], arena)
    order = [key for key, mix, clients in arena.measured if (mix, clients) == ("long", 8)]
    assert order == ["a", "b", "b", "a", "a", "b"]


def test_every_condition_is_measured_in_every_round_the_bare_runtime_once_a_mix() -> None:
    results = run([contender("a")], FakeArena())
    assert len(results.measurements) == 3 * (2 * 2 + 2)
    assert sum(each.contender == BARE for each in results.measurements) == 3 * 2
    assert results.bare_single_p50_ms == {"short": [5.0] * 3, "long": [5.0] * 3}


def test_what_cannot_be_run_is_told_and_does_not_stop_the_others() -> None:
    results = run([contender("broken"), contender("cold"), contender("fragile"), contender("a")], FakeArena())
    assert results.not_run == {
        "broken": "no such module",
        "cold": "hung up at once",
        "fragile, short, 8 clients": "hung up",
        "fragile, long, 8 clients": "hung up",
    }
    assert list(results.labels) == ["cold", "fragile", "a"]
    assert {each.contender for each in results.measurements} == {BARE, "fragile", "a"}


@pytest.mark.parametrize(
    ("mix", "clients", "a_request", "expected"),
    [
        ("mixed", 32, 1, 100),
        ("mixed", 128, 1, 384),
        ("mixed", 1, 1, 25),
        ("short", 8, 1, 200),
        ("mixed", 1, 16, 32),
        ("mixed", 2, 16, 112),
        ("mixed", 32, 16, 1024),
        ("mixed", 128, 16, 2048),
        ("mixed", 256, 16, 4096),
    ],
)
def test_a_measurement_has_whole_requests_and_several_for_each_client(
    mix: str, clients: int, a_request: int, expected: int
) -> None:
    assert SCHEDULE.turns_for(LENGTH_MIXES[mix], clients, a_request) == expected
