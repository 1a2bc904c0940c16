"""The simulation of docs/studies.md, made small: designs recover the order, and their intervals hold the truth."""

import pytest
import simulate_designs as simulation
from simulate_designs import StudySize, measure_recovery
from turnscore_assessment.designs.form import DesignKind

SIZE = StudySize(raters=16, per_rater=12, dialogues=24)
STUDIES = 16


@pytest.mark.parametrize("kind", [DesignKind.CONTINUOUS, DesignKind.BEST_WORST])
def test_each_design_recovers_the_order_and_its_intervals_cover(kind: DesignKind) -> None:
    for found in measure_recovery(kind, STUDIES, SIZE, truth_raters=80):
        assert found.rank_correlation > 0.78, found.method
        assert found.in_order > 0.84, found.method
        assert found.coverage > 0.88, found.method
        assert found.false_alarms <= 0.2, found.method


def test_systems_without_a_difference_are_not_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail: a design that saw nothing would put half of the pairs in order."""
    blind = simulation.SimulatedRaters

    class Blind(blind):  # type: ignore[valid-type, misc]
        def __init__(self, key: object, seed: int) -> None:
            super().__init__(key, seed, (0.0,) * 5)

    monkeypatch.setattr(simulation, "SimulatedRaters", Blind)
    found = measure_recovery(DesignKind.LIKERT, STUDIES, SIZE, truth_raters=50)[0]
    assert 0.2 < found.in_order < 0.8
    assert found.seen < 0.1
