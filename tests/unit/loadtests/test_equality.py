"""The comparison of ways to ask: what it finds, and what it refuses."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from turnscore_client.testing import MockTurnScore
from turnscore_load.equality import UnequalScoresError, check_bounds, compare_ways, difference_table, read_dialogues
from turnscore_wire import ScoreRequest, Turn

CONVERSATION = "/v1/conversations"
DIALOGUES = [
    [Turn(speaker=("user", "system")[place % 2], text=f"{word} {place}") for place in range(6)]  # type: ignore[arg-type]
    for word in ("apples", "pears")
]


def test_a_service_that_says_the_same_however_it_is_asked_differs_nowhere():
    mock = MockTurnScore(lambda request: {"engagement": len(request.response) / 100})
    with mock.client() as client:
        found = compare_ways(client, client, DIALOGUES)
    assert {(each.scorer, each.turns, each.differing, each.detail) for each in found} == {("engagement", 6, 0, 0.0)}
    assert len({each.way for each in found}) == 7
    check_bounds(found, {})


def test_nothing_that_is_compared_comes_from_the_cache():
    mock = MockTurnScore()
    with mock.client() as client:
        compare_ways(client, client, DIALOGUES)
    calls = [each.body for each in mock.requests if each.path != CONVERSATION]
    asked_for = [item for body in calls for item in body.get("items", [body])]
    asked_for += [each.body["open"] for each in mock.requests if each.path == CONVERSATION and "open" in each.body]
    assert {each.get("cache") for each in asked_for} == {"bypass"}
    asked = Counter(request.path for request in mock.requests)
    assert asked["/v1/score_dialogue"] == 2
    assert asked["/v1/rank"] == 6


def test_a_difference_is_found_counted_and_refused_beyond_its_bound():
    seen: Counter[str] = Counter()

    def drift(request: ScoreRequest) -> Mapping[str, float]:
        seen[request.response] += 1
        return {"fed": 1.0 + 0.001 * (request.response == "pears 3" and seen[request.response] == 2)}

    with MockTurnScore(drift).client() as client:
        found = compare_ways(client, client, DIALOGUES)
    [again] = [each for each in found if each.differing]
    assert (again.way, again.differing) == ("again", 1)
    assert again.value == again.detail == pytest.approx(0.001)
    check_bounds(found, {"fed": 0.002})
    with pytest.raises(UnequalScoresError, match=r"fed again: 1\.00e-03 \(at most 5e-04\)"):
        check_bounds(found, {"fed": 0.0005})
    with pytest.raises(UnequalScoresError):
        check_bounds(found, {})
    assert "| fed | again | 1 of 6 | 1.0e-03 | 1.0e-03 |" in difference_table(found)


def test_dialogues_are_read_until_there_are_enough_turns(tmp_path: Path):
    rows = [
        {"turns": [{"speaker": "user", "text": "alone"}]},
        {"turns": [{"speaker": "user", "text": " "}, {"speaker": "system", "text": "one"}], "id": 1},
        {"turns": [{"speaker": "system", "text": "two"}]},
        {"turns": [{"speaker": "system", "text": "three"}]},
    ]
    plain, packed = tmp_path / "d.jsonl", tmp_path / "d.jsonl.gz"
    text = "\n".join(map(json.dumps, rows))
    plain.write_text(text, encoding="utf-8")
    packed.write_bytes(gzip.compress(text.encode()))
    for file in (plain, packed):
        assert [[turn.text for turn in turns] for turns in read_dialogues(file, 2)] == [["one"], ["two"]]
