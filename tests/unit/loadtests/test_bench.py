"""The bare runtime and the comparison of servers: ideal batches, right values, ratios of medians."""

import pytest
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_load.bare_runtime import BareRuntime, BatchPlan
from turnscore_load.contenders import EngagementRows
from turnscore_load.scenarios.bench import BARE, ServerComparison, ratios
from turnscore_load.traffic import LENGTH_MIXES
from turnscore_wire import Turn


def test_the_bare_runtime_gives_the_service_s_values_in_the_order_of_the_turns():
    rows = EngagementRows()
    items = [*rows.traffic.items(LENGTH_MIXES["mixed"], 12), {"context": [], "response": "an opening"}]
    scorer = load_scorer(rows.bundle, "cpu-int8", threads=1).scorer
    asked = [TurnToScore([Turn(**turn) for turn in item["context"]], item["response"]) for item in items]
    expected = [score.value for pack in scorer.encode(asked) for score in scorer.score([pack])]
    found = BareRuntime(str(rows.graph), 1).run_batches(rows.of(items), BatchPlan(max_tokens=512, runs=2, threads=1))
    assert found["values"] == pytest.approx(expected, abs=1e-4)
    assert len(set(found["values"])) > 1
    assert found["cpu_seconds"] > 0


def test_a_comparison_holds_medians_and_their_ratios_and_no_number_for_what_was_not_measured():
    rows = [
        *[(BARE, 0, {"cpu_ms": cpu}) for cpu in (7.0, 8.0, 90.0)],
        *[(BARE, 1, {"p50_ms": p50}) for p50 in (6.0, 6.5, 99.0)],
        *[("turnscore", 32, {"cpu_ms": cpu, "wall_ms": 10.0}) for cpu in (9.5, 10.0, 11.0)],
        ("turnscore", 1, {"cpu_ms": 20.0, "wall_ms": 20.0, "p50_ms": 7.5}),
        ("other", 32, {"wall_ms": 40.0}),
    ]
    found = ServerComparison(
        labels={"turnscore": "turnscore", "other": "another"},
        rows=[{"contender": each, "mix": "mixed", "clients": clients, **more} for each, clients, more in rows],
    )
    assert "| mixed | 32 | turnscore | 1.25 | - | 4.0 |" in ratios(found)
    assert "| mixed | 1 | turnscore | 2.50 | 1.0 | - |" in ratios(found)
