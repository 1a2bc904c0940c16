"""What a turn costs: every way asks for the same turns, every set of scorers in every round."""

from support.fakes import FakeScorer, loaded_fake
from turnscore_bench.scorers.costs import TOGETHER, Cost, measure_costs, plan_ways
from turnscore_bench.scorers.table import format_costs
from turnscore_wire import Turn


def dialogue(number: int, pairs: int) -> list[Turn]:
    return [
        Turn(speaker=speaker, text=f"{speaker} {number} {place}")
        for place in range(pairs)
        for speaker in ("user", "system")
    ]


def test_every_way_asks_for_the_same_turns_and_a_batch_mixes_dialogues():
    ways = plan_ways([dialogue(number, 1 + number % 3) for number in range(20)])
    asked = [sorted(turn.response for turns in work for turn in turns) for work in ways.values()]
    assert asked[0] == asked[1] == asked[2]
    alone, mixed, whole = ways.values()
    assert {len(turns) for turns in alone} == {1}
    assert len(mixed[0]) == TOGETHER
    assert all(len({turn.context[0].text for turn in turns}) == len(turns) <= TOGETHER for turns in mixed)
    assert [len(turns) for turns in whole] == [1 + number % 3 for number in range(20)]
    assert all(turn.context[-1].speaker == "user" for turns in whole for turn in turns)


def test_every_set_is_asked_in_every_round_and_once_before():
    fakes = {name: FakeScorer() for name in ("first", "second")}
    scorers = {name: loaded_fake(fake, name) for name, fake in fakes.items()}
    ways = plan_ways([dialogue(number, 2) for number in range(3)])
    sets = [("first",), ("first", "second")]
    costs = measure_costs(scorers, sets, ways, rounds=2)
    assert [(each.way, each.scorers) for each in costs] == [(way, names) for way in ways for names in sets]
    assert all(len(each.milliseconds) == 2 and each.median > 0 for each in costs)
    assert sum(fakes["first"].encoded) == 2 * sum(fakes["second"].encoded) == 2 * 3 * 3 * 6


def test_a_ratio_is_to_the_first_set_of_the_same_way_with_its_least_and_largest():
    costs = [
        Cost(way="alone", scorers=("a",), milliseconds=[2.0, 4.0, 2.0]),
        Cost(way="alone", scorers=("a", "b"), milliseconds=[5.0, 6.0, 4.0]),
    ]
    first, second = format_costs(costs).splitlines()[2:]
    assert first == "| a | 2.00 |"
    assert second == "| a + b | 5.00; 2.50 times [1.50, 2.50] |"
