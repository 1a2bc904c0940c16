from pathlib import Path

import pytest
from turnscore_core.inference import devices as cpu_budget


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cpu_budget, "_CGROUP_V2", tmp_path / "cpu.max")
    monkeypatch.setattr(cpu_budget, "_CGROUP_V1_QUOTA", tmp_path / "quota")
    monkeypatch.setattr(cpu_budget, "_CGROUP_V1_PERIOD", tmp_path / "period")
    monkeypatch.setattr(cpu_budget.os, "sched_getaffinity", lambda _: set(range(8)))
    return tmp_path


@pytest.mark.parametrize(("quota", "cpus"), [("250000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("", 8)])
def test_a_cgroup_v2_quota_bounds_the_cpus(cgroup: Path, quota: str, cpus: int):
    (cgroup / "cpu.max").write_text(quota)
    assert cpu_budget.usable_cpus() == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("300000", 3), ("-1", 8)])
def test_a_cgroup_v1_quota_bounds_the_cpus(cgroup: Path, quota: str, cpus: int):
    (cgroup / "quota").write_text(quota)
    (cgroup / "period").write_text("100000")
    assert cpu_budget.usable_cpus() == cpus


def test_without_a_cgroup_the_affinity_counts(cgroup: Path):
    assert cpu_budget.usable_cpus() == 8
