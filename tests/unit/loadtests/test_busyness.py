"""Busyness: a missed budget on a machine with other work is said to say little."""

import os

import psutil
import pytest
from turnscore_load.busyness import Busyness, BusynessWatch

BROKEN = ["flood: p95 was 1800 ms, the budget is 800 ms"]


@pytest.mark.parametrize(
    ("busyness", "is_said"),
    [
        (Busyness(load_before=7.4, cpus=2, steal_share=0.0), True),
        (Busyness(load_before=0.3, cpus=2, steal_share=0.2), True),
        (Busyness(load_before=0.9, cpus=2, steal_share=0.04), False),
    ],
)
def test_a_busy_machine_is_said_where_a_budget_was_broken(busyness: Busyness, is_said: bool):
    assert ("busy with other work" in busyness.remark(BROKEN)) is is_said
    assert busyness.remark([]) == ""


def test_the_watch_reads_the_load_before_the_run_and_the_steal_during_it(monkeypatch: pytest.MonkeyPatch):
    times = psutil.cpu_times()
    monkeypatch.setattr(os, "getloadavg", lambda: (5.0, 1.0, 1.0))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    watch = BusynessWatch()
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0))
    monkeypatch.setattr(psutil, "cpu_times", lambda: times._replace(steal=times.steal + 1000.0))
    seen = watch.read()
    assert (seen.load_before, seen.cpus) == (5.0, 2)
    assert seen.steal_share > 1.0
