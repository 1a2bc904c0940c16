"""What a run of switches found: promises and the page. Pure."""

import platform
from datetime import UTC, datetime
from statistics import median

import psutil

from turnscore_load.calls import percentile
from turnscore_load.check import Check, check_table
from turnscore_load.markdown import table
from turnscore_load.switches.run import Found, Period

MOST_SLOWER = 2.0
"""The p99 during switches over that without. Specified."""
MOST_GROWN = 0.15
"""Of the median memory after the last quarter of all orders over that after the first. Chosen: a version that stayed
would add as much with each order; the allocator's own sway, a tenth from one order to the next, is not told apart."""
_MIB = 1024**2


def checks(found: Found) -> list[Check]:
    """What was promised."""
    ratio = percentile(found.switched.took_ms, 99) / percentile(found.quiet.took_ms, 99)
    refused_ratio = percentile(found.refused.took_ms, 99) / percentile(found.quiet.took_ms, 99)
    failures = found.switched.failures + found.refused.failures
    switched = sum(each["outcome"] == "switched" for each in found.switched.reports)
    refused = sum(each["outcome"] == "refused" for each in found.refused.reports)
    served = {tuple(each["models"].values()) for each in found.refused.reports}
    some = max(1, len(found.resident) // 4)
    grown = median(found.resident[-some:]) / median(found.resident[:some]) - 1
    count = found.settings.count
    broken = sum("90.1." in str(each) for each in served)
    return [
        Check("every switch is made", f"{switched} of {count}", switched == count),
        Check("every broken version is refused", f"{refused} of {count}", refused == count),
        Check("none of them is served", f"{broken} served", not broken),
        Check("no request fails", f"{len(failures)} failed", not failures),
        Check("p99 during switches at most twice the p99 without", f"{ratio:.2f}", ratio <= MOST_SLOWER),
        Check("p99 during refusals at most twice it", f"{refused_ratio:.2f}", refused_ratio <= MOST_SLOWER),
        Check("memory is back where it was", f"{grown:+.1%}", grown <= MOST_GROWN),
    ]


def report(found: Found) -> str:
    """The page that `make switches` prints."""
    seconds = sorted(each["seconds"] for each in found.switched.reports)
    memory = [each["memory"] for each in found.switched.reports if each["memory"]]
    between = max(each["between_bytes"] for each in memory) / _MIB if memory else 0.0
    rows = [
        _row("alone", found.quiet),
        _row("with switches, one after the other", found.switched),
        _row("with refusals, one after the other", found.refused),
    ]
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {psutil.cpu_count()} CPUs ({platform.machine()}), load average of the last 15"
        f" minutes {psutil.getloadavg()[2]:.1f}; engagement; the service carries {found.carries:.0f} requests per"
        f" second, load {found.settings.load:.0%} of that; {found.settings.count} switches and as many refusals.",
        "",
        table(["load", "seconds", "requests", "failed", "p50", "p99", "longest"], rows),
        "",
        f"A switch took {percentile(seconds, 50):.1f} s (the longest {seconds[-1]:.1f}). Memory of the service:"
        f" {found.resident[0] / _MIB:.0f} MiB before, {between:.0f} at most with both versions loaded,"
        f" {found.resident[-1] / _MIB:.0f} after the last.",
        "",
        check_table(checks(found)),
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, period: Period) -> list[str]:
    times = [percentile(period.took_ms, 50), percentile(period.took_ms, 99), max(period.took_ms, default=0.0)]
    failed = ", ".join([str(len(period.failures)), *sorted(set(period.failures))])
    return [name, f"{period.seconds:.0f}", f"{period.asked:,}", failed, *(f"{each:.0f} ms" for each in times)]
