"""The CPUs this process may use: its affinity and its cgroup's quota, never the machine's count."""

import os
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
_CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cpus() -> int:
    """CPUs the process may keep busy, at least 1; a quota of 1.5 CPUs counts as 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, allowed if quota is None else min(allowed, int(quota)))


def _cgroup_quota() -> float | None:
    """CPUs the cgroup grants, or None where it sets no limit."""
    for parts in (_words(_CGROUP_V2), _words(_CGROUP_V1_QUOTA) + _words(_CGROUP_V1_PERIOD)):
        if len(parts) == 2 and parts[0].isdecimal() and parts[1].isdecimal():
            return int(parts[0]) / int(parts[1])
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
