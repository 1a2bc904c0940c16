"""The verdict: what was measured against what is aimed at. Judges only full sizes on a CUDA device. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from turnscore_bench.gpu.findings import FedSpeed, Findings, Served
from turnscore_bench.gpu.shapes import MEASURED_QUALITIES
from turnscore_bench.gpu.ways import PACKED, PUBLISHED, PUBLISHED_FP16

MODEL = "dialogpt-medium"
LEAST_BATCH = 16
TURNS_PER_SECOND, FED_P99_MS, FED_RATIO, MOST_OVER_BARE = 10_000, 25.0, 20.0, 1.15


@dataclass(frozen=True)
class Aim:
    """One aim; `is_met` is None where it was not measured, and `found` then says so."""

    text: str
    found: str
    is_met: bool | None


def judge(findings: Findings) -> list[Aim]:
    """Every aim, met or not, for turns of 32 tokens in all and for turns of two rows of 32."""
    reason = findings.conditions.get("not_judged")
    if reason:
        return [Aim(aim.text, f"not judged: {reason}", None) for aim in _aims(Findings())]
    return _aims(findings)


def _aims(findings: Findings) -> list[Aim]:
    return [
        *(aim for tokens in (32, 64) for aim in _encoder_aims(findings.served, tokens)),
        _latency_aim(findings.served),
        *(_ratio_aim(findings.fed, way) for way in (PUBLISHED, PUBLISHED_FP16)),
    ]


def _encoder_aims(served: Iterable[Served], tokens: int) -> list[Aim]:
    batched = [each for each in served if each.bare_turns_per_second and each.turns_per_request >= LEAST_BATCH]
    best = max(
        (each for each in batched if each.turn_tokens == tokens and not each.failed),
        key=lambda each: each.turns_per_second,
        default=None,
    )
    kind = f"BERT-base, turns of {tokens} tokens (two rows of {tokens // 2}), {LEAST_BATCH} and more a request"
    texts = [
        f"{kind}: {TURNS_PER_SECOND:,} turns/s and more",
        f"the same, time over the bare runtime's: {MOST_OVER_BARE}",
    ]
    if best is None or best.over_bare is None:
        return [_missing(text) for text in texts]
    where = f"{best.clients} clients, {best.turns_per_request} a request, {best.workers} workers"
    return [
        Aim(texts[0], f"{best.turns_per_second:,.0f} ({where})", best.turns_per_second >= TURNS_PER_SECOND),
        Aim(texts[1], f"{best.over_bare:.2f} ({where})", best.over_bare <= MOST_OVER_BARE),
    ]


def _latency_aim(served: Iterable[Served]) -> Aim:
    wanted = f"requests/s at random, {MEASURED_QUALITIES[-1]} qualities"
    found = next((each for each in served if each.model == MODEL and each.load.endswith(wanted)), None)
    text = (
        f"{MODEL}, {MEASURED_QUALITIES[-1]} qualities, 100 context tokens, 50 requests/s: p99 under {FED_P99_MS:g} ms"
    )
    if found is None:
        return _missing(text)
    lost = f", {found.failed + found.refused} not answered" if found.failed + found.refused else ""
    return Aim(text, f"{found.p99_ms:.1f} ms{lost}", found.p99_ms < FED_P99_MS and not lost)


def _ratio_aim(fed: Iterable[FedSpeed], published: str) -> Aim:
    text = f"{MODEL}, {MEASURED_QUALITIES[-1]} qualities: {FED_RATIO:g} times the way `{published}` and more"
    found = {each.way: each for each in fed if (each.model, each.qualities) == (MODEL, MEASURED_QUALITIES[-1])}
    if published not in found or PACKED not in found:
        return _missing(text)
    ratio = found[published].p50_ms / found[PACKED].p50_ms
    return Aim(text, f"{ratio:.1f}", ratio >= FED_RATIO)


def _missing(text: str) -> Aim:
    return Aim(text, "not measured", None)
