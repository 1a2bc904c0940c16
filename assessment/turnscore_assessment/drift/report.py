"""The report on drift: a table for a terminal, a page of HTML, and a baseline as rules for Prometheus."""

import json
from collections.abc import Iterable, Sequence

from turnscore_assessment.drift.findings import DriftFinding, find_shares
from turnscore_assessment.drift.live_values import BINS, LiveValues
from turnscore_assessment.rendering import Page, Section, Table

_HEADER = ("scorer", "model", "against", "dialogues", "turns", "index", "limit", "verdict")
_SHARES = ("", "now", "baseline")


def build_page(findings: Sequence[DriftFinding], command: str) -> Page:
    """Every comparison, then for each bundle the shares of its bins and what else was counted."""
    drifted = [each.live.model for each in findings if each.has_drifted]
    return Page(
        title="Drift of scores",
        summary=[f"Drifted: {', '.join(drifted)}." if drifted else "Nothing drifted beyond what chance explains."],
        sections=[
            Section(
                heading="Comparisons",
                tables=[Table("", _HEADER, _rows(findings))],
                paragraphs=[f"warning: {each.live.model}: {warning}" for each in findings for warning in each.warnings],
            ),
            *map(_make_section, findings),
        ],
        command=command,
    )


def _make_section(finding: DriftFinding) -> Section:
    return Section(
        heading=f"{finding.live.scorer}: {finding.live.model}",
        tables=[
            Table("Share of turns by percentile", _SHARES, _share_rows(finding)),
            Table("What else was counted", _SHARES, _other_rows(finding)),
        ],
    )


def make_rules(baseline: Iterable[LiveValues]) -> str:
    """The baseline as recording rules: the drift rules of deploy/observability compare with these series."""
    lines = ["groups:", "  - name: turnscore-baseline", "    rules:"]
    for each in baseline:
        if any(each.bins):
            labels = {"scorer": each.scorer, "model": each.model}
            lines += _rule("turnscore:baseline_dialogues", each.dialogues, labels)
            for place, share in enumerate(find_shares(each.bins)):
                lines += _rule("turnscore:baseline_share", share, {**labels, "bin": bin_name(place)})
    return "\n".join(lines) + "\n"


def bin_name(place: int) -> str:
    """A bin's label: the percentile that it goes up to."""
    return str(100 * (place + 1) // BINS)


def _rule(record: str, value: float, labels: dict[str, str]) -> list[str]:
    named = ", ".join(f"{name}: {json.dumps(value)}" for name, value in labels.items())
    return [f"      - record: {record}", f"        expr: vector({value:.10g})", f"        labels: {{{named}}}"]


def _rows(findings: Iterable[DriftFinding]) -> list[tuple[str, ...]]:
    return [
        (
            each.live.scorer,
            each.live.model,
            compared.against,
            f"{each.live.dialogues:,.0f}",
            f"{each.live.turns:,.0f}",
            f"{compared.index:.4f}",
            f"{compared.limit:.4f}",
            compared.verdict,
        )
        for each in findings
        for compared in each.comparisons
    ]


def _share_rows(finding: DriftFinding) -> list[tuple[str, ...]]:
    baseline = finding.baseline
    now = find_shares(finding.live.bins)
    before = find_shares(baseline.bins) if baseline is not None else None
    return [
        (f"up to {bin_name(place)}", f"{share:.1%}", "-" if before is None else f"{before[place]:.1%}")
        for place, share in enumerate(now)
    ]


def _other_rows(finding: DriftFinding) -> list[tuple[str, ...]]:
    now, before = _others(finding.live), None if finding.baseline is None else _others(finding.baseline)
    return [(name, value, "-" if before is None else before[name]) for name, value in now.items()]


def _others(values: LiveValues) -> dict[str, str]:
    return {
        "labelled turns that are low": _share(values.low, values.labelled),
        "turns that were not read whole": _share(values.cut, values.turns),
        "turns hardly in the model's language": _share(values.foreign, values.turns),
        "turns whose score is not a number": _share(values.not_computable, values.turns + values.not_computable),
        "tokens per character": f"{values.tokens / values.chars:.3f}" if values.chars else "-",
    }


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"
