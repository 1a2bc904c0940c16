import pytest
from turnscore_bench.servers.results import BARE, Measurement, Results


def measured(contender: str, clients: int, turns: int, wall: float, cpu: float, **more: float) -> Measurement:
    return Measurement(
        contender=contender, mix="mixed", clients=clients, turns=turns, wall_seconds=wall, cpu_seconds=cpu, **more
    )  # type: ignore[arg-type]


@pytest.fixture
def results() -> Results:
    return Results(
        labels={"turnscore": "turnscore", "other": "another"},
        measurements=[
            *(measured(BARE, 0, 100, 0.5, cpu) for cpu in (0.7, 0.8, 9.0)),
            *(measured("turnscore", 32, 200, 2.0, cpu, client_cpu_seconds=0.5, refused=3) for cpu in (1.9, 2.0, 2.2)),
            measured("turnscore", 1, 50, 1.0, 1.0, p50_ms=7.5),
            measured("other", 32, 100, 4.0, 5.0),
        ],
        bare_single_p50_ms={"mixed": [6.0, 6.5, 99.0]},
    )


def test_a_cell_holds_medians_a_turn(results: Results) -> None:
    cell = results.cell("turnscore", "mixed", 32)
    assert cell is not None
    assert (cell.cpu_ms, cell.wall_ms, cell.turns_per_second) == (10.0, 10.0, 100.0)
    assert cell.client_share == pytest.approx(0.2)
    assert cell.refused == 3


def test_ratios_compare_medians_of_one_condition(results: Results) -> None:
    assert results.served_over_bare("turnscore", "mixed", 32) == pytest.approx(10 / 8)
    assert results.throughput_over("turnscore", "other", "mixed", 32) == pytest.approx(4.0)
    assert results.latency_above_bare("turnscore", "mixed") == pytest.approx(1.0)


def test_what_was_not_measured_has_no_number(results: Results) -> None:
    assert results.cell("other", "mixed", 1) is None
    assert results.throughput_over("turnscore", "other", "mixed", 1) is None
    assert results.served_over_bare("turnscore", "short", 32) is None


def test_a_measurement_of_which_nothing_was_answered_counts_for_nothing() -> None:
    assert Results(measurements=[measured("turnscore", 8, 0, 1.0, 1.0)]).cell("turnscore", "mixed", 8) is None
