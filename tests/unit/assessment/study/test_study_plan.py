"""STUDY.toml: what is wrong is named by its field, and nothing is opened."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.studies import plan_fields
from turnscore_assessment.files import describe_problem
from turnscore_assessment.study.plan import PLAN_BYTES, BadPlanError, StudyPlan, read_plan

DEMO = files("turnscore_assessment.study") / "demo_files"
ENDPOINT = {"name": "A", "url": "http://bots.test/v1"}
CRITERION = {"name": "fun", "statement": "Fun.", "low_end": "no", "high_end": "yes"}


def test_the_example_that_ships_is_a_plan_of_three_chatbots_and_a_degraded_one(tmp_path: Path) -> None:
    (tmp_path / "STUDY.toml").write_text(DEMO.joinpath("STUDY.toml").read_text(encoding="utf-8"))
    plan = read_plan(tmp_path / "STUDY.toml")
    assert plan.kind == "chat"
    assert [system.name for system in plan.systems if not system.degraded] == ["companion", "brief", "echo"]
    assert plan.systems[-1].corpus == tmp_path / "corpus.jsonl"
    assert plan.database == str(tmp_path / "demo.sqlite3")
    assert plan.chat.inputs_at_least == 10


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
