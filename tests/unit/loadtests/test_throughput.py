"""What `make replicas-throughput` asks and says, of runs that are made up."""

import json

from turnscore_load.replicas.throughput import Carried, prepared_requests, throughput_report


def carried(turns_per_second: float, **other: float) -> Carried:
    given = {"cached_turns": 0.0, "replicas_cpu": 1.0, "beside_cpu": 0.1, "generator_cpu": 0.05, **other}
    return Carried(turns_per_second=turns_per_second, **given)


def test_several_are_compared_with_the_sum_of_their_cores_alone_by_medians():
    found = {
        (0,): [carried(90), carried(100), carried(400)],
        (1,): [carried(60), carried(50), carried(50)],
        (0, 1): [carried(120, replicas_cpu=1.5, cached_turns=3.0), carried(120, replicas_cpu=1.5), carried(20)],
    }
    *_, first, second, both = throughput_report(found).strip().split("\n")
    assert first.startswith("| 1 (0) | 100 | 100% of 100 | 100 |")
    assert second.startswith("| 1 (1) | 50 | 100% of 50 | 50 |")
    assert both == "| 2 (0, 1) | 120 | 80% of 150 | 80 | 1.50; 0.10; 0.05 | 3 |"


def test_no_turn_is_asked_twice():
    bodies = [json.loads(each.partition(b"\r\n\r\n")[2]) for each in prepared_requests(3000, "a", 20)]
    bodies += [json.loads(each.partition(b"\r\n\r\n")[2]) for each in prepared_requests(3000, "b", 20)]
    texts = [item["response"] for body in bodies for item in body["items"]]
    assert len(texts) == len(set(texts)) == 2 * 20 * 32
