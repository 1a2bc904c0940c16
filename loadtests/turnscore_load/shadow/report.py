"""The verdict on a shadow: what callers notice of it, and what it does under an overload. Pure."""

from collections.abc import Sequence
from statistics import median

from turnscore_load.calls import CallRecord, Stage
from turnscore_load.check import Check, check_table
from turnscore_load.markdown import table
from turnscore_load.shadow.run import Round, ShadowRun


def checks(run: ShadowRun) -> list[Check]:
    """What is promised of a shadow."""
    plain, shadowed = _p99s(run.plain), _p99s(run.shadowed)
    compared = sum(each.counts.compared for each in run.shadowed)
    failed = sum(each.counts.failed for each in run.shadowed)
    turns = sum(each.stage.count("answered") for each in run.shadowed)
    share = compared / turns if turns else 0.0
    wanted = run.settings.share
    return [
        Check(
            "every caller is answered, with a shadow and without",
            f"{_failures(run.plain)} and {_failures(run.shadowed)} failed",
            not _failures(run.plain) and not _failures(run.shadowed),
        ),
        Check(
            "callers' p99 with a shadow, median of the rounds, is within the range of the rounds without",
            f"{median(shadowed):.1f} ms; {min(plain):.1f} to {max(plain):.1f} ms",
            median(shadowed) <= max(plain),
        ),
        Check(
            "the shadow compares most of the turns that it is to",
            f"{share:.1%} of {turns} turns, {wanted:.0%} wanted; {failed:.0f} failed",
            share >= 0.5 * wanted and not failed,
        ),
        Check(
            "under an overload nothing is shadowed, though turns were offered",
            f"{run.overloaded.compared:.0f} compared, {run.overloaded.dropped:.0f} dropped",
            run.overloaded.compared == 0 and run.overloaded.dropped > 0,
        ),
    ]


def report(run: ShadowRun, verdicts: Sequence[Check]) -> str:
    """The run as Markdown."""
    counts = [each.counts for each in run.shadowed]
    compared, cpu = sum(each.compared for each in counts), sum(each.cpu_seconds for each in counts)
    rows = []
    for name, rounds in (("without a shadow", run.plain), (f"shadow, {run.settings.share:.0%}", run.shadowed)):
        calls = _together(rounds)
        each_p99 = ", ".join(f"{p99:.1f}" for p99 in _p99s(rounds))
        spent = 1000 * sum(each.cpu_seconds for each in rounds) / max(1, len(calls.calls))
        times = [f"{calls.took_ms(percent, 'answered'):.1f} ms" for percent in (50, 99)]
        rows.append([name, *times, f"{each_p99} ms", f"{spent:.2f} ms"])
    head = ["service", "p50", "p99", "p99 of each round", "CPU per request"]
    own = (
        f"The shadow compared {compared:.0f} turns, {1000 * cpu / max(1.0, compared):.1f} ms of CPU each in its thread."
    )
    overload = (
        f"Overload: {run.overload.count('answered')} answered, {run.overload.count('refused')} refused, "
        f"p99 of the answers {run.overload.took_ms(99, 'answered'):.0f} ms."
    )
    rate = f"{run.per_second:.1f} requests per second at an even rate."
    return "\n\n".join([rate, table(head, rows), own, overload, check_table(verdicts)])


def _p99s(rounds: Sequence[Round]) -> list[float]:
    return [each.stage.took_ms(99, "answered") for each in rounds]


def _failures(rounds: Sequence[Round]) -> int:
    return sum(len(each.stage.calls) - each.stage.count("answered") for each in rounds)


def _together(rounds: Sequence[Round]) -> Stage:
    calls: list[CallRecord] = [call for each in rounds for call in each.stage.calls]
    return Stage(calls, 0.0, sum(each.stage.seconds for each in rounds))
