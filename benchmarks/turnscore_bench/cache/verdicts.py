"""Verdicts: each target of the cache, what was measured of it, and whether it was met. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from turnscore_bench.cache.samples import Findings, Sample
from turnscore_bench.cache.ways import Question

HIT_SHARE = {"engagement": 1 / 3, "fed": 1 / 20}
"""Most that a Redis hit may cost of a miss."""
MISS_OVERHEAD = 1.05
NEARLY_TWICE = 1.8
"""Least throughput at 50 % repeats over none: a hit that costs a tenth allows 1.82. Chosen."""
CLOSED_MS = 60.0


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One claim about one condition."""

    claim: str
    where: str
    measured: str
    target: str
    is_met: bool | None
    """None where it is reported, and not judged."""

    @property
    def word(self) -> str:
        return {True: "met", False: "**missed**", None: "-"}[self.is_met]


def judge(findings: Findings) -> list[Verdict]:
    """Every target of which something was measured."""
    return [*_costs(findings), *_latencies(findings), *_answers(findings)]


def describe(question: Question) -> str:
    """`fed, 16 turns per request, 32 clients`"""
    size = (
        "one turn per request" if question.turns_per_request == 1 else f"{question.turns_per_request} turns per request"
    )
    return f"{question.scorer}, {size}, {question.clients} client{'s' * (question.clients > 1)}"


def _costs(findings: Findings) -> Iterator[Verdict]:
    for question in findings.questions():
        where = describe(question)
        share = HIT_SHARE[question.scorer]
        hit = findings.ratio("hit_redis", "miss_redis", question, lambda each: each.cpu_ms)
        if hit is not None:
            claim = "CPU of a Redis hit over a miss"
            yield Verdict(
                claim=claim,
                where=where,
                measured=f"1/{1 / max(hit, 1e-3):.1f}",
                target=f"at most 1/{1 / share:.0f}",
                is_met=hit <= share,
            )
        for way, label in (("miss_local", "in-process level"), ("miss_both", "both levels")):
            miss = findings.ratio(way, "off", question, lambda each: each.cpu_ms)
            if miss is not None:
                claim = f"CPU of a miss over no cache, {label}"
                yield Verdict(
                    claim=claim,
                    where=where,
                    measured=f"{miss:.3f}",
                    target=f"at most {MISS_OVERHEAD}",
                    is_met=miss <= MISS_OVERHEAD,
                )
        twice = findings.ratio("half_both", "off", question, _throughput)
        if twice is not None:
            claim = "Throughput at 50 % repeats over no cache and none"
            yield _throughput_verdict(claim, question, twice)


def _throughput_verdict(claim: str, question: Question, twice: float) -> Verdict:
    if question.clients == 1:  # leaves CPUs idle
        return Verdict(
            claim=claim,
            where=describe(question),
            measured=f"{twice:.2f}",
            target="none: one client's is its latency",
            is_met=None,
        )
    return Verdict(
        claim=claim,
        where=describe(question),
        measured=f"{twice:.2f}",
        target=f"at least {NEARLY_TWICE}",
        is_met=twice >= NEARLY_TWICE,
    )


def _throughput(sample: Sample) -> float:
    return 1 / sample.wall_ms


def _latencies(findings: Findings) -> Iterator[Verdict]:
    healthy = findings.healthy_p99s()
    if not healthy:
        return
    spread = max(healthy) - min(healthy)
    for state in (each for each in findings.states() if not each.startswith("healthy")):
        rise = median(findings.p99s(state)) - median(healthy)
        most, target = spread, f"nothing: at most the healthy rounds' spread, {spread:.1f} ms"
        if "closed" in state:
            most, target = CLOSED_MS, f"at most {CLOSED_MS:.0f} ms"
        yield Verdict(
            claim="Rise of p99", where=f"Redis {state}", measured=f"{rise:+.1f} ms", target=target, is_met=rise <= most
        )


def _answers(findings: Findings) -> Iterator[Verdict]:
    failed = findings.failures()
    yield Verdict(
        claim="Requests not answered with scores",
        where="all of the run",
        measured=f"{failed}",
        target="0",
        is_met=failed == 0,
    )
