"""What a study begins with: its plan, and whom a worker meets."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.studies import plan_fields
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import describe_problem
from turnscore_assessment.study.plan import PLAN_BYTES, BadPlanError, StudyPlan, read_plan
from turnscore_assessment.study.recordings import read_recordings
from turnscore_assessment.study.workers import assign_dialogues

ENDPOINT = {"name": "A", "url": "http://bots.test/v1"}
CRITERION = {"name": "fun", "statement": "Fun.", "low_end": "no", "high_end": "yes"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"systems": [{**ENDPOINT, "corpus": "c.jsonl"}]}, "systems.0: must have one of url, dialogues and corpus"),
        ({"systems": [ENDPOINT, ENDPOINT]}, "two systems are called 'A'"),
        ({"systems": [{**ENDPOINT, "degraded": True}]}, "every system is degraded"),
        ({"systems": [ENDPOINT, {"name": "B", "dialogues": "d.jsonl"}]}, "all systems must talk, or all be recorded"),
        ({"systems": [{"name": "A", "url": "http://me:secret@bots.test/"}]}, "systems.0.url: must be an http"),
        ({"systems": [{**ENDPOINT, "parameters": {"stream": True}}]}, "systems.0.parameters: may not set 'stream'"),
        ({"systems": [{**ENDPOINT, "parameters": {"top_p": float("nan")}}]}, "systems.0.parameters: must be what JSON"),
        ({"criteria": [{**CRITERION, "high_end": ""}]}, "criterion 'fun' must name both ends"),
        ({"chat": {"inputs_at_least": 10, "inputs_at_most": 9}}, "chat: inputs_at_most must not be below"),
        ({"turnscore": {"url": "localhost:3000"}}, "turnscore.url: must be an http"),
        ({"colour": "blue"}, "colour: extra inputs are not permitted"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as caught:
        StudyPlan.model_validate(plan_fields(**changed))
    assert describe_problem(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"name = ", "cannot be read"),
        (b"#" * (PLAN_BYTES + 1), "is larger than"),
        (b'name = "x"', "title: field required"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "STUDY.toml"
    path.write_bytes(content)
    with pytest.raises(BadPlanError, match=reason) as caught:
        read_plan(path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(BadPlanError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")


SYSTEMS = [
    *({"name": name, "url": "http://bots.test/v1"} for name in "ABCDE"),
    {"name": "bad", "url": "http://bots.test/v1", "degraded": True},
]


def deal(plan: StudyPlan, workers: int, recordings: Any = ()) -> list[list[Any]]:
    generator = random.Random(3)
    met: Counter[tuple[str, str | None]] = Counter()
    dealt = []
    for _ in range(workers):
        dealt.append(assign_dialogues(plan, dict(recordings), met, generator))
        met.update((each.system, each.recorded) for each in dealt[-1])
    return dealt


def test_every_worker_meets_every_system_once_in_an_order_of_chance() -> None:
    dealt = deal(StudyPlan.model_validate(plan_fields(systems=SYSTEMS)), 600)
    assert all(sorted(each.system for each in own) == ["A", "B", "C", "D", "E", "bad"] for own in dealt)
    places = Counter(place for own in dealt for place, each in enumerate(own) if each.degraded)
    assert set(places) == set(range(6))
    assert all(70 <= count <= 130 for count in places.values())  # 100 expected, deviation 9


def test_of_many_systems_each_worker_meets_a_part_and_all_are_met_equally_often() -> None:
    plan = StudyPlan.model_validate(
        plan_fields(systems=SYSTEMS, systems_per_worker=2, chat={"topics": ["cats", "tea"]})
    )
    dealt = deal(plan, 25)
    assert all(len(own) == 3 for own in dealt)
    assert all(sum(each.degraded for each in own) == 1 for own in dealt)
    counts = Counter(each.system for own in dealt for each in own)
    assert counts == {"bad": 25, "A": 10, "B": 10, "C": 10, "D": 10, "E": 10}
    pairs = {frozenset(each.system for each in own if not each.degraded) for own in dealt}
    assert len(pairs) > 5
    assert {each.topic for own in dealt for each in own} == {"cats", "tea"}


def make_recorded(folder: Path, lines: list[Any]) -> StudyPlan:
    file = folder / "recorded.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    systems = [{"name": "A", "dialogues": file}]
    return StudyPlan.model_validate(plan_fields(systems=systems, dialogues_per_system=2))


def spoken(name: str, text: str = "hello") -> dict[str, Any]:
    return {"id": name, "turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": text}]}


def test_recorded_dialogues_are_read_equally_often_and_none_twice_by_one_worker(tmp_path: Path) -> None:
    plan = make_recorded(tmp_path, [spoken(name) for name in ("d1", "d2", "d3")])
    dealt = deal(plan, 6, read_recordings(plan).names)
    assert all(len({each.recorded for each in own}) == 2 for own in dealt)
    assert Counter(each.recorded for own in dealt for each in own) == {"d1": 4, "d2": 4, "d3": 4}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([spoken("d1"), spoken("d1")], r"recorded.jsonl, line 2: id: 'd1' was already used"),
        ([spoken("d1"), spoken("d2", " ")], r"line 2: turns: the system says nothing"),
        ([spoken("d1")], r"has 1 dialogues, fewer than dialogues_per_system"),
    ],
)
def test_a_wrong_line_of_recorded_dialogues_is_named(tmp_path: Path, lines: list[Any], reason: str) -> None:
    with pytest.raises(BadFileError, match=reason):
        read_recordings(make_recorded(tmp_path, lines))
