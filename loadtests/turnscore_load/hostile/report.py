"""Hostile report: whether the service and its other callers fared as docs/security.md promises. Pure."""

from collections.abc import Sequence

from turnscore_load.check import Check, check_table
from turnscore_load.hostile.attacks import Attack
from turnscore_load.hostile.neighbours import Beside

LEAST_ANSWERED = 0.99
NOISE = 2.0
"""How many times longer than the longest control a health check may take: the service has several threads. Chosen."""
MOST_GROWTH_BYTES = 64 * 1024 * 1024
"""Of the service's memory in one attack, buffers included, of which some stay for the next request. Chosen."""


def bound_ms(beside: Beside) -> float:
    """Twice the quiet p99, and one batch."""
    return 2 * beside.quiet.took_ms(99, "answered") + 1000 * beside.batch_seconds


def checks(besides: Sequence[Beside], attacks: Sequence[Attack], control_seconds: float) -> list[Check]:
    """Every claim; the run passes when all are kept."""
    return [check for each in besides for check in _check_beside(each)] + [
        *(_check_attack(each, control_seconds) for each in attacks)
    ]


def report(found: Sequence[Check], control_seconds: float) -> str:
    """The claims as Markdown, and the control."""
    control = f"On this machine 50 ms of CPU time took up to {1000 * control_seconds:.0f} ms."
    return f"{check_table(found)}\n\n{control}"


def _check_beside(beside: Beside) -> list[Check]:
    bound, calls = bound_ms(beside), beside.flooded.calls
    in_time = sum(call.answer.outcome == "answered" and call.took_ms <= bound for call in calls)
    answered = beside.flooded.count("answered")
    quiet, flooded = (
        f"p50 {stage.took_ms(50, 'answered'):.0f}, p99 {stage.took_ms(99, 'answered'):.0f} ms"
        for stage in (beside.quiet, beside.flooded)
    )
    least = LEAST_ANSWERED * max(1, len(calls))
    return [
        Check(
            f"single turns beside 64 connections of {beside.kind} full batches are answered",
            f"{answered} of {len(calls)}; the flood: {dict(beside.statuses)}",
            answered >= least,
        ),
        Check(
            f"and within twice their quiet p99 plus a batch, {bound:.0f} ms",
            f"{in_time} of {len(calls)}; quiet {quiet}, beside it {flooded}",
            in_time >= least,
        ),
    ]


def _check_attack(attack: Attack, control_seconds: float) -> Check:
    most, waits = NOISE * control_seconds, ", ".join(f"{1000 * each:.0f}" for each in attack.waits_seconds)
    return Check(
        f"{attack.name}: health checks within {1000 * most:.0f} ms, memory within {MOST_GROWTH_BYTES // 2**20} MiB",
        f"{attack.outcome}; {waits} ms; {attack.grown_bytes / 2**20:+.0f} MiB",
        attack.is_right and attack.waited_seconds <= most and attack.grown_bytes <= MOST_GROWTH_BYTES,
    )
