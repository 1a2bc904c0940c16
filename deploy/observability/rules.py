"""The rules: what Prometheus records of turnscore's metrics, and when it alerts. `write.py` writes them as YAML.

docs/metrics.md has a paragraph for each alert. Every number here is chosen unless it says otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from turnscore_assessment.drift.report import CHI_SQUARED, LEAST_DIALOGUES, bin_name
from turnscore_assessment.drift.sources import BINS

RUNBOOK = "docs/metrics.md"
# Codes of calls that the service, and not the caller, is to blame for.
FAILURES = "internal|not_ready|overloaded|deadline_exceeded"
ERROR_OBJECTIVE = 0.999
SLOW_SECONDS = "0.25"  # A bucket of turnscore_request_seconds.
LATENCY_OBJECTIVE = 0.99
BURN_WINDOWS = ("5m", "30m", "1h", "6h")
DRIFT_WINDOW = "1d"
_BUNDLE = "job, scorer, model"
_PAIR = f"{_BUNDLE}, served"
FAR = "10.0"  # percentiles, a bucket of turnscore_shadow_percentile_shift, as in turnscore_assessment.drift.report
_STEP = 100 // BINS


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule: a series that is recorded, or an alert."""

    expr: str
    record: str = ""
    alert: str = ""
    wait: str = ""  # how long it must hold
    labels: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""


def _recorded(record: str, expr: str, **labels: str) -> Rule:
    return Rule(record=record, expr=expr, labels=labels)


def _alert(alert: str, expr: str, wait: str, severity: str, summary: str) -> Rule:
    return Rule(alert=alert, expr=expr, wait=wait, labels={"severity": severity}, summary=summary)


def _budgets() -> list[Rule]:
    """The shares of calls that failed, and that were slow, by window; a share without calls is not recorded."""
    found = []
    for window in BURN_WINDOWS:
        calls = f"sum by (job) (rate(turnscore_requests_total[{window}])) > 0"
        failed = f'sum by (job) (rate(turnscore_requests_total{{code=~"{FAILURES}"}}[{window}]))'
        found.append(_recorded(f"turnscore:failed_share:{window}", f"({failed} or 0 * ({calls})) / ({calls})"))
        scored = f'sum by (job) (rate(turnscore_request_seconds_count{{call="score"}}[{window}])) > 0'
        quick = f'sum by (job) (rate(turnscore_request_seconds_bucket{{call="score", le="{SLOW_SECONDS}"}}[{window}]))'
        found.append(_recorded(f"turnscore:slow_share:{window}", f"1 - {quick} / ({scored})"))
    return found


def _burns(name: str, series: str, objective: float, what: str) -> list[Rule]:
    """Alerts on a budget of 30 days: burnt in 2 days (both of 1 h and 5 min), or in 5 (6 h and 30 min).

    The factors are those of Google's SRE workbook, chapter 5.
    """
    found = []
    for suffix, factor, long, short, severity in (
        ("Fast", 14.4, "1h", "5m", "page"),
        ("Slow", 6, "6h", "30m", "ticket"),
    ):
        limit = f"{factor * (1 - objective):.6g}"
        expr = f"{series}:{long} > {limit} and {series}:{short} > {limit}"
        found.append(_alert(f"Turnscore{name}Budget{suffix}", expr, "2m", severity, f"{what} for {long}"))
    return found


def _drift() -> list[Rule]:
    """The stability index of turnscore_assessment.drift, which a test compares with these rules."""
    window, upto, bins = DRIFT_WINDOW, f"turnscore:score_upto:{DRIFT_WINDOW}", f"turnscore:score_bin:{DRIFT_WINDOW}"
    share, dialogues = f"turnscore:score_share:{window}", f"turnscore:dialogues:{window}"
    found = [
        _recorded(upto, f"sum by ({_BUNDLE}, le) (increase(turnscore_score_percentile_bucket[{window}]))"),
        _recorded(dialogues, f"sum by ({_BUNDLE}) (increase(turnscore_live_dialogues_total[{window}]))"),
    ]
    for place in range(BINS):
        up, below = (f'sum without (le) ({upto}{{le="{_STEP * bound}.0"}})' for bound in (place + 1, place))
        found.append(_recorded(bins, f"clamp_min({up} - {below}, 0)" if place else up, bin=bin_name(place)))
    every = f"sum without (bin) ({bins})"
    known = "on (scorer, model, bin) group_left turnscore:baseline_share"
    index, ratio = f"turnscore:drift_index:{window}", "turnscore:drift_ratio"
    found += [
        _recorded(share, f"({bins} + 0.5) / ignoring (bin) group_left () ({every} + {BINS / 2:g} and {every} > 0)"),
        _recorded(index, f"sum without (bin) (({share} - 0.1) * ln({share} / 0.1))", against="bundle"),
        _recorded(index, f"sum by ({_BUNDLE}) (({share} - {known}) * ln({share} / {known}))", against="baseline"),
        _recorded(
            ratio,
            f'{index}{{against="bundle"}} * on ({_BUNDLE}) group_left () ({dialogues} >= {LEAST_DIALOGUES}) '
            f"/ {CHI_SQUARED:.6f}",
            against="bundle",
        ),
        _recorded(
            ratio,
            f'{index}{{against="baseline"}} / on ({_BUNDLE}) group_left () ({CHI_SQUARED:.6f} * (1 / ({dialogues} >= '
            f"{LEAST_DIALOGUES}) + on (scorer, model) group_left 1 / turnscore:baseline_dialogues))",
            against="baseline",
        ),
    ]
    return found


def _increase(series: str, window: str, labels: str = "") -> str:
    return f"sum by ({_BUNDLE}) (increase(turnscore_{series}_total{labels}[{window}]))"


def _values() -> list[Rule]:
    """Shares of live turns, other than their percentiles; none of fewer than 100 turns."""
    turns, odd = _increase("live_turns", "6h"), _increase("not_computable_turns", "6h")
    foreign = _increase("warned_turns", "6h", '{warning="not_in_language"}')
    found = []
    for window in ("6h", "7d"):
        low = _increase("live_turns", window, '{label="low"}')
        labelled = _increase("live_turns", window, '{label=~"low|fair|good"}')
        found.append(_recorded(f"turnscore:low_share:{window}", f"{low} / ({labelled} >= 100)"))
    return [
        *found,
        _recorded("turnscore:foreign_share:6h", f"{foreign} / ({turns} >= 100)"),
        _recorded("turnscore:cut_share:6h", f"{_increase('cut_turns', '6h')} / ({turns} >= 100)"),
        _recorded("turnscore:not_computable_share:6h", f"{odd} / ({odd} + {turns} >= 100)"),
        _recorded(
            "turnscore:tokens_per_char:6h", f"{_increase('live_tokens', '6h')} / ({_increase('live_chars', '6h')} > 0)"
        ),
    ]


def _shadows() -> list[Rule]:
    """How a version that shadows differs from the one that answers; nothing of fewer than 100 compared turns.

    Nothing alerts on it: a shadow answers nobody.
    """

    def count(series: str, labels: str) -> str:
        return f"sum by ({_PAIR}) (increase(turnscore_shadow_{series}{{{labels}}}[6h]))"

    compared = f"""({count("turns_total", 'outcome="compared"')} >= 100)"""
    labelled = f"""({count("labels_total", 'served_label=~"low|fair|good", shadow_label=~"low|fair|good"')} >= 100)"""
    others = {"low": "fair|good", "fair": "low|good", "good": "low|fair"}
    flips = [
        f'increase(turnscore_shadow_labels_total{{served_label="{was}", shadow_label=~"{other}"}}[6h])'
        for was, other in others.items()
    ]
    flipped = f"sum by ({_PAIR}) ({' or '.join(flips)})"
    shadow, served = (count("percentiles_total", f'by="{by}"') for by in ("shadow", "served"))
    near = count("percentile_shift_bucket", f'le="{FAR}"')
    return [
        _recorded("turnscore:shadow_shift:6h", f"({shadow} - {served}) / {compared}"),
        _recorded("turnscore:shadow_far_share:6h", f"clamp_min(1 - {near} / {compared}, 0)"),
        _recorded("turnscore:shadow_flipped_share:6h", f"({flipped} or 0 * {labelled}) / {labelled}"),
    ]


def _service_alerts() -> list[Rule]:
    refused = "sum by (job, scorer) (rate(turnscore_refused_items_total[5m]))"
    admitted = "sum by (job, scorer) (rate(turnscore_admitted_items_total[5m]))"
    waits = "histogram_quantile(0.95, sum by (job, scorer, le) (rate(turnscore_queue_seconds_bucket[5m])))"
    return [
        _alert("TurnscoreNotReady", "turnscore_ready == 0", "2m", "page", "{{ $labels.instance }} scores nothing"),
        _alert("TurnscoreAbsent", "absent(turnscore_ready)", "5m", "page", "no turnscore is scraped"),
        *_burns("Error", "turnscore:failed_share", ERROR_OBJECTIVE, "calls fail faster than the budget allows"),
        *_burns(
            "Latency", "turnscore:slow_share", LATENCY_OBJECTIVE, "calls are slow more often than the budget allows"
        ),
        _alert(
            "TurnscoreQueueLong", f"{waits} > 0.5", "10m", "ticket", "turns of {{ $labels.scorer }} wait over 0.5 s"
        ),
        _alert(
            "TurnscoreRefusals",
            f"{refused} / ({refused} + {admitted}) > 0.01",
            "5m",
            "page",
            "turns of {{ $labels.scorer }} are refused: there is no room",
        ),
        _alert(
            "TurnscoreCacheSick",
            "turnscore_cache_breaker_state == 2",
            "5m",
            "ticket",
            "the shared cache is not in use for {{ $labels.operation }}",
        ),
        *(
            _alert(alert, f"increase(turnscore_{series}_total[15m]) > 0", "0m", "ticket", summary)
            for alert, series, summary in (
                ("TurnscoreStageDeaths", "stage_deaths", "stage {{ $labels.stage }} hung or broke and was replaced"),
                (
                    "TurnscoreOutOfMemory",
                    "out_of_memory_batches",
                    "batches of {{ $labels.scorer }} do not fit the device's memory",
                ),
                ("TurnscoreKeyFile", "key_file_errors", "the changed file of API keys cannot be read"),
            )
        ),
    ]


def _value_alerts() -> list[Rule]:
    low = "turnscore:low_share"
    return [
        _alert(
            "TurnscoreDrift",
            'turnscore:drift_ratio{against="baseline"} > 1',
            "30m",
            "ticket",
            "scores of {{ $labels.model }} do not fall as they did in the baseline",
        ),
        _alert(
            "TurnscoreMisfit",
            'turnscore:drift_ratio{against="bundle"} > 1',
            "30m",
            "info",
            "turns are unlike those that the percentiles of {{ $labels.model }} refer to",
        ),
        _alert(
            "TurnscoreLowShare",
            f"{low}:6h > {low}:7d + 0.1 and {low}:6h > 1.5 * {low}:7d",
            "30m",
            "ticket",
            "more turns than usual are low by {{ $labels.model }}",
        ),
        _alert(
            "TurnscoreForeign",
            "turnscore:foreign_share:6h > 0.05",
            "30m",
            "ticket",
            "turns are hardly in the language of {{ $labels.model }}",
        ),
        _alert(
            "TurnscoreNotComputable",
            "turnscore:not_computable_share:6h > 0.001",
            "0m",
            "ticket",
            "{{ $labels.model }} gives what is not a number",
        ),
    ]


# By name: how often the rules are evaluated, and the rules in order. An alert stands in one group with what it reads,
# behind it, so that it never misses a series whose last sample is older than Prometheus looks back (5 minutes).
GROUPS: dict[str, tuple[str, list[Rule]]] = {
    "turnscore-service": ("30s", [*_budgets(), *_service_alerts()]),
    "turnscore-values": ("2m", [*_values(), *_shadows(), *_drift(), *_value_alerts()]),
}
