"""Tables: everything measured, as Markdown. Measures nothing."""

from statistics import median

from turnscore_bench.cache.samples import Findings
from turnscore_bench.cache.verdicts import describe, judge
from turnscore_bench.cache.ways import WAYS, Question
from turnscore_bench.harness.page import number, table


def write_tables(findings: Findings) -> str:
    """The targets, the costs of every way, latencies under faults, and what two processes compute twice."""
    parts = [*dict.fromkeys(findings.captions.values()), "### Targets", targets(findings)]
    for question in findings.questions():
        parts += [f"### {describe(question).capitalize()}", _costs(findings, question)]
    parts += [
        "### A failing Redis",
        _faults(findings),
        "### What a lock across processes would save, and cost",
        _locks(findings),
    ]
    return "\n\n".join(parts)


def targets(findings: Findings) -> str:
    """Every target with its verdict."""
    rows = [[each.claim, each.where, each.measured, each.target, each.word] for each in judge(findings)]
    return table(["", "where", "measured", "target", ""], rows, texts=5)


def _costs(findings: Findings, question: Question) -> str:
    rows = []
    for way in WAYS:
        found = [each for each in findings.samples if (each.way, each.question) == (way.key, question)]
        if not found:
            continue
        values = (
            [each.cpu_ms for each in found],
            [each.redis_ms for each in found],
            [1000 / each.wall_ms for each in found],
            [each.p50_ms for each in found],
            [each.p99_ms for each in found],
        )
        rows.append([way.label, *(number(median(each), 0 if place == 2 else 2) for place, each in enumerate(values))])
    return table(["", "CPU ms per turn", "CPU ms of Redis", "turns/s", "p50 ms", "p99 ms"], rows, texts=1)


def _faults(findings: Findings) -> str:
    rows = []
    for state in findings.states():
        found = [each for each in findings.faults if each.state == state]
        p99s = findings.p99s(state)
        middle = [number(median(each.p50_ms for each in found), 1), number(median(p99s), 1)]
        rows.append([state, *middle, f"{number(min(p99s), 1)} to {number(max(p99s), 1)}", number(len(found), 0)])
    return table(["Redis", "p50 ms", "p99 ms", "p99 by round", "rounds"], rows, texts=1)


def _locks(findings: Findings) -> str:
    rows = [
        [
            each.traffic,
            *(number(count, 0) for count in (each.turns, each.distinct, each.computed)),
            *(f"{each.share:.1%}", number(1000 * each.cpu_seconds / each.turns, 2)),
        ]
        for each in findings.duplicates
    ]
    head = ["", "turns", "distinct", "computed", "repeats computed again", "CPU ms per turn"]
    duplicates = table(head, rows, texts=1)
    costs = ", ".join(f"{us:.0f} µs with {callers} at once" for callers, us in findings.lock_us.items())
    return f"{duplicates}\n\nCPU of one lock (`SET NX PX` through redis-py, of the caller alone): {costs}."
