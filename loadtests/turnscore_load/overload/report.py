"""Overload report: whether the service stayed honest under overload, as sentences and tables. Pure."""

from collections import Counter
from collections.abc import Sequence

from turnscore_load.answers import Outcome
from turnscore_load.calls import CallRecord, Stage, percentile
from turnscore_load.check import Check, check_table
from turnscore_load.markdown import table
from turnscore_load.overload.run import OverloadRun
from turnscore_load.steadiness import growths

LEAST_GOODPUT_SHARE = 0.9
MOST_NORMAL_P50 = 1.25
MOST_NORMAL_P95 = 1.5
"""How much slower the probes after the overload may be than those before it, for noise. Chosen."""
MOST_LATE_MS = 250.0
"""How late the generator may send (99 of 100 calls) for the run to count. Chosen: a quarter of the default deadline."""
MOST_FOREIGN_CPUS = 0.25
"""CPUs that other programs may use before the report warns. Chosen."""
_PROBES_IN_A_ROW = 10
_OUTCOMES: tuple[Outcome, ...] = ("answered", "refused", "expired", "failed")


def checks(run: OverloadRun) -> list[Check]:
    """Every claim; the run passes when all are kept."""
    deadline = run.settings.deadline_ms
    share = run.overload.goodput(deadline) / run.peak_goodput if run.peak_goodput else 0.0
    p99 = run.overload.took_ms(99, "answered")
    failed = Counter(call.answer.why for call in run.overload.calls if call.answer.outcome == "failed")
    late = percentile((call.late_ms for call in run.overload.calls), 99)
    return [
        Check(
            "goodput within 10 % of the peak",
            f"{run.overload.goodput(deadline):.1f} of {run.peak_goodput:.1f} a second, {100 * share:.0f} %",
            share >= LEAST_GOODPUT_SHARE,
        ),
        Check(
            f"p99 of the accepted within the deadline of {deadline} ms",
            f"{p99:.0f} ms",
            0 < p99 <= deadline,
        ),
        Check(
            "every request answered with 200, 429 or 504",
            ", ".join(f"{count} x {why}" for why, count in failed.most_common(5)) or f"all {len(run.overload.calls)}",
            not failed,
        ),
        *_steadiness_checks(run),
        *_recovery_checks(run),
        Check(
            f"the generator kept up (99 of 100 calls sent within {MOST_LATE_MS:.0f} ms)",
            f"{late:.0f} ms",
            late <= MOST_LATE_MS,
        ),
    ]


def _steadiness_checks(run: OverloadRun) -> list[Check]:
    """Memory and threads; the number of connections is the generator's doing."""
    seconds = run.settings.seconds
    first, last = (seconds / 6, seconds * 5 / 12), (seconds * 3 / 4, seconds)
    return [
        Check(f"{growth.figure.name} flat", str(growth).partition(": ")[2], growth.is_kept)
        for growth in growths(run.samples, first, last)
        if growth.figure.name != "file handles"
    ]


def _recovery_checks(run: OverloadRun) -> list[Check]:
    after_seconds = run.settings.recovery_seconds
    late = [call for call in run.recovery.calls if call.due_at - run.recovery.began_at >= after_seconds]
    limits = {50: MOST_NORMAL_P50, 95: MOST_NORMAL_P95}
    normal = {percent: run.normal.took_ms(percent, "answered") for percent in limits}
    found = {percent: percentile((call.took_ms for call in late), percent) for percent in limits}
    answered = bool(late) and all(call.answer.outcome == "answered" for call in late)
    return [
        Check(
            f"normal latency {after_seconds:g} s after",
            f"p50 {found[50]:.0f} ms (before: {normal[50]:.0f}), p95 {found[95]:.0f} ms (before: {normal[95]:.0f}); "
            f"{_normal_again(run.recovery, MOST_NORMAL_P50 * normal[50])}",
            answered and all(found[each] <= limits[each] * normal[each] for each in limits),
        )
    ]


def _normal_again(recovery: Stage, most_ms: float) -> str:
    """When the first of ten probes in a row was made of which at least half were as quick as before."""
    calls: Sequence[CallRecord] = recovery.calls
    for place in range(len(calls) - _PROBES_IN_A_ROW + 1):
        row = calls[place : place + _PROBES_IN_A_ROW]
        if sum(call.answer.outcome == "answered" and call.took_ms <= most_ms for call in row) * 2 >= len(row):
            return f"from {max(0.0, calls[place].due_at - recovery.began_at):.2f} s on"
    return "never again"


def report(run: OverloadRun, found: Sequence[Check]) -> str:
    """The run as Markdown."""
    deadline = run.settings.deadline_ms
    stages = [(f"{step.clients} clients", step.stage) for step in run.steps]
    stages.append((f"{run.peak.clients} clients, longer: the peak", run.peak.stage))
    stages.append((f"{len(run.overload.calls) / run.overload.seconds:.0f} a second, open loop", run.overload))
    rows = []
    for name, stage in stages:
        counts = [str(stage.count(outcome)) for outcome in _OUTCOMES]
        times = [stage.took_ms(50, "answered"), stage.took_ms(99, "answered"), stage.took_ms(99, "refused")]
        rows.append([name, f"{stage.goodput(deadline):.1f}", *counts, *(f"{each:.0f}" for each in times)])
    head = ["load", "good/s", *_OUTCOMES, "p50 ms", "p99 ms", "p99 ms of refusals"]
    return "\n\n".join([table(head, rows, texts=1), check_table(found), _cpu_use(run)])


def _cpu_use(run: OverloadRun) -> str:
    """Who used the machine during the overload."""
    first, *_, last = (each for each in run.samples if each.seconds <= run.settings.seconds)
    seconds, generator = last.seconds - first.seconds, run.generator_cpu_share
    service = (last.cpu_seconds - first.cpu_seconds) / seconds
    others = (last.machine_cpu_seconds - first.machine_cpu_seconds) / seconds - service - generator
    used = f"CPUs used: {service:.2f} by the service, {generator:.2f} by the generator, {others:.2f} by others."
    return (
        used if others < MOST_FOREIGN_CPUS else f"{used} The machine was not idle: the figures are not to be trusted."
    )
