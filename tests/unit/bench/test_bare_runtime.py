from pathlib import Path

import pytest
from turnscore_bench.harness.traffic import LENGTH_MIXES, BenchTurn, Traffic
from turnscore_bench.servers.bare import EngagementRows
from turnscore_bench.servers.bare_runtime import BareRuntime
from turnscore_bench.servers.ideal_batches import Plan
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models import starter_bundles
from turnscore_wire import Turn

BUNDLE = next(folder for folder in starter_bundles() if folder.name == "engagement")


@pytest.fixture(scope="module")
def rows() -> EngagementRows:
    return EngagementRows(Path(BUNDLE))


def test_the_bare_runtime_gives_the_service_s_values_in_the_order_of_the_turns(rows: EngagementRows) -> None:
    turns = [*Traffic(rows.tokenizer, 128).turns(LENGTH_MIXES["mixed"], 12), BenchTurn("", "nobody asked me")]
    scorer = load_scorer(rows.bundle, "cpu-int8", threads=1).scorer
    asked = [TurnToScore([Turn(speaker="user", text=turn.query)], turn.reply) for turn in turns]
    expected = [score.value for pack in scorer.encode(asked) for score in scorer.score([pack])]
    found = BareRuntime(str(rows.graph), 1).run_batches(rows.of(turns), Plan(max_tokens=512, runs=2, threads=1))
    assert found["values"] == pytest.approx(expected, abs=1e-4)
    assert len(set(found["values"])) > 1
    assert found["cpu_seconds"] > 0


def test_the_best_plan_is_the_one_of_least_cpu_seconds(rows: EngagementRows, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = BareRuntime(str(rows.graph), 2)
    cost = {(512, 2, 8): 1.0, (512, 2, 1): 0.5}

    def measured(_: object, plan: Plan) -> float:
        return cost.get((plan.max_tokens, plan.runs, plan.width_step), 3.0)

    monkeypatch.setattr(runtime, "_cpu_seconds", measured)
    found = runtime.find_best("mixed", [[[1], [2]]] * 4)
    assert found["best"] == {"max_tokens": 512, "runs": 2, "threads": 1, "width_step": 1}
    assert {(each["runs"], each["threads"]) for each in found["tried"]} == {(1, 2), (2, 1)}
