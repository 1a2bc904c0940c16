"""Rounds: who is measured when. The contenders take turns, in another order each round."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from turnscore_bench.harness.processes import StartError
from turnscore_bench.harness.traffic import LengthMix, Traffic
from turnscore_bench.servers.arena import Arena
from turnscore_bench.servers.bare import BareProcess, EngagementRows
from turnscore_bench.servers.contenders import Contender
from turnscore_bench.servers.results import BARE, Measurement, Results

_SEARCH_TURNS = 120
_SINGLE_TURNS = 100
_MOST_BATCHED_TURNS = 2048
"""Of a measurement with batches; beyond it 128 clients with batches of 16 would take minutes."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What one run measures."""

    mixes: Sequence[LengthMix]
    clients: Sequence[int]
    rounds: int
    turns: int
    """Of mixed lengths in one measurement; more where the clients would not be busy for several turns each."""

    def turns_for(self, mix: LengthMix, clients: int, turns_per_request: int = 1) -> int:
        """Whole requests; fewer for one client, who takes longer for them."""
        wanted = self.turns * mix.turns_factor / (4 if clients == 1 else 1)
        in_flight = clients * turns_per_request
        least = 3 * in_flight if turns_per_request == 1 else max(in_flight, min(2 * in_flight, _MOST_BATCHED_TURNS))
        return -(-round(max(wanted, least)) // turns_per_request) * turns_per_request

    def conditions(self) -> Iterator[tuple[LengthMix, int]]:
        """Every mix with every number of clients."""
        return ((mix, clients) for mix in self.mixes for clients in self.clients)


def enter(
    contenders: Sequence[Contender],
    mix: LengthMix,
    arena: Arena,
    bare: BareProcess,
    rows: EngagementRows,
    results: Results,
    say: Say,
) -> list[Contender]:
    """The contenders that start and answer rightly; for the others `results` has the reason."""
    entered = []
    for contender in contenders:
        say(f"starting {contender.label}")
        try:
            contender.server.prepare()
            arena.start(contender)
            arena.check(contender, mix, bare, rows)
        except StartError as error:
            results.not_run[contender.label] = str(error)
            say(f"{contender.label} cannot be run: {error}")
            continue
        results.labels[contender.key] = contender.label
        entered.append(contender)
    return entered


def find_best(schedule: Schedule, bare: BareProcess, traffic: Traffic, results: Results, say: Say) -> None:
    """Lets the bare runtime find its best batches for each mix."""
    for mix in schedule.mixes:
        turns = traffic.turns(mix, round(_SEARCH_TURNS * mix.turns_factor))
        found = bare.order("find_best", mix.name, turns)
        results.conditions.setdefault("bare_plans", {})[mix.name] = found
        say(f"bare runtime, {mix.name}: best with {found['best']}")


def run_rounds(
    schedule: Schedule,
    contenders: Sequence[Contender],
    arena: Arena,
    bare: BareProcess,
    traffic: Traffic,
    results: Results,
    say: Say,
) -> None:
    """Measures everybody in every condition, round after round, into `results`."""
    contenders = [each for each in contenders if _warm_up(schedule, each, arena, results, say)]
    for number in range(schedule.rounds):
        start = number % max(1, len(contenders))
        order = [*contenders[start:], *contenders[:start]]
        for mix in schedule.mixes:
            _measure_bare(schedule, mix, bare, traffic, results)
            for clients in schedule.clients:
                say(f"round {number + 1} of {schedule.rounds}: {mix.name}, {clients} clients")
                for contender in order:
                    _measure(schedule, contender, mix, clients, arena, results)


def _warm_up(schedule: Schedule, contender: Contender, arena: Arena, results: Results, say: Say) -> bool:
    """Whether it is warm; one that hangs up ends its own part alone."""
    try:
        arena.warm_up(contender, schedule.mixes)
    except StartError as error:
        results.not_run[contender.label] = str(error)
        say(f"{contender.label} cannot be run: {error}")
        return False
    return True


def _measure_bare(schedule: Schedule, mix: LengthMix, bare: BareProcess, traffic: Traffic, results: Results) -> None:
    turns = traffic.turns(mix, round(schedule.turns * mix.turns_factor))
    found = bare.order("run_best", mix.name, turns)
    results.measurements.append(
        Measurement(
            contender=BARE,
            mix=mix.name,
            clients=0,
            turns=len(turns),
            wall_seconds=found["wall_seconds"],
            cpu_seconds=found["cpu_seconds"],
        )
    )
    single = bare.order("run_singly", mix.name, traffic.turns(mix, _SINGLE_TURNS))
    results.bare_single_p50_ms.setdefault(mix.name, []).append(single["p50_ms"])


def _measure(
    schedule: Schedule, contender: Contender, mix: LengthMix, clients: int, arena: Arena, results: Results
) -> None:
    count = schedule.turns_for(mix, clients, contender.turns_per_request)
    try:
        results.measurements.append(arena.measure(contender, mix, clients, count))
    except StartError as error:
        results.not_run[f"{contender.label}, {mix.name}, {clients} clients"] = str(error)
