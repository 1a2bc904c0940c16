"""The bare runtime and the comparison of servers: ideal batches, right values, ratios of medians."""

import pytest
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_load.bare_runtime import BareRuntime, BatchPlan
from turnscore_load.contenders import EngagementRows
from turnscore_load.scenarios.bench import BARE, Measurement, ServerComparison, ratios
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


def measured(contender: str, clients: int, turns: int, wall: float, cpu: float, **more: float) -> Measurement:
    return Measurement(
        contender=contender, mix="mixed", clients=clients, turns=turns, wall_seconds=wall, cpu_seconds=cpu, **more
    )  # type: ignore[arg-type]


COMPARISON = ServerComparison(
    labels={"turnscore": "turnscore", "other": "another"},
    measurements=[
        *(measured(BARE, 0, 100, 0.5, cpu) for cpu in (0.7, 0.8, 9.0)),
        *(measured("turnscore", 32, 200, 2.0, cpu, client_cpu_seconds=0.5, refused=3) for cpu in (1.9, 2.0, 2.2)),
        measured("turnscore", 1, 50, 1.0, 1.0, p50_ms=7.5),
        measured("turnscore", 8, 0, 1.0, 1.0),  # nothing was answered
        measured("other", 32, 100, 4.0, 5.0),
    ],
    bare_single_p50_ms={"mixed": [6.0, 6.5, 99.0]},
)


def test_a_comparison_holds_medians_and_their_ratios_and_no_number_for_what_was_not_measured():
    cell = COMPARISON.cell("turnscore", "mixed", 32)
    assert cell is not None
    assert (cell["cpu_ms"], cell["wall_ms"], cell["turns_per_second"], cell["refused"]) == (10.0, 10.0, 100.0, 3)
    assert cell["client_share"] == pytest.approx(0.2)
    assert COMPARISON.served_over_bare("turnscore", "mixed", 32) == pytest.approx(10 / 8)
    assert COMPARISON.throughput_over("turnscore", "other", "mixed", 32) == pytest.approx(4.0)
    assert COMPARISON.latency_above_bare("turnscore", "mixed") == pytest.approx(1.0)
    assert COMPARISON.cell("turnscore", "mixed", 8) is None
    assert COMPARISON.throughput_over("turnscore", "other", "mixed", 1) is None
    assert "| mixed | 32 | turnscore | 1.25 | - | 4.0 |" in ratios(COMPARISON)
