"""When work that nobody waits for may begin."""

from dataclasses import dataclass

import pytest
from turnscore_service.scheduling.shadow import Idleness


@dataclass
class Lane:
    waiting: int = 0
    running: int = 0


@pytest.mark.parametrize("cpus", [1, 2, 3, 16])
def test_nothing_in_flight_is_idle(cpus: int):
    assert Idleness([Lane()], lambda: False, cpus).is_idle()


@pytest.mark.parametrize(
    ("cpus", "lanes", "idle"),
    [
        (1, [Lane()], False),
        (2, [Lane(running=1)], False),
        (2, [Lane()], False),  # its tokens are being made
        (3, [Lane(), Lane()], True),
        (3, [Lane(running=1), Lane()], False),
        (16, [Lane(running=10), Lane(running=3)], True),
        (16, [Lane(running=10), Lane(running=4)], False),
        (16, [Lane(running=1), Lane(waiting=1)], False),
    ],
)
def test_beside_callers_there_must_be_cpus_to_spare_and_nobody_waiting(cpus: int, lanes: list[Lane], idle: bool):
    assert Idleness(lanes, lambda: True, cpus).is_idle() is idle
