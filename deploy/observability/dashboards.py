"""The dashboards: panels over turnscore's metrics and the recorded series. `write.py` writes them as Grafana's JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 36  # as Grafana's SDK for 10.1 has it; later ones read it
_JOB = 'job=~"$job"'
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart: queries with their legends, and the unit by Grafana's word for it."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    line: float | None = None
    """A threshold that is drawn."""
    lowest: float | None = 0
    """Where the axis begins; None where values may lie below 0."""
    description: str = ""


def _quantiles(series: str, by: str, *, selector: str = "") -> list[tuple[str, str]]:
    """The median, 95th and 99th percentile of a histogram."""
    picked = ", ".join(filter(None, (_JOB, selector)))
    return [
        (
            f"histogram_quantile({share}, sum by ({by}, le) (rate({series}_bucket{{{picked}}}[$__rate_interval])))",
            f"{{{{{by}}}}} p{share * 100:g}",
        )
        for share in (0.5, 0.95, 0.99)
    ]


def _rate(series: str, by: str, *, selector: str = "") -> tuple[str, str]:
    picked = ", ".join(filter(None, (_JOB, selector)))
    legend = " ".join(f"{{{{{each}}}}}" for each in by.split(", "))
    return f"sum by ({by}) (rate({series}{{{picked}}}[$__rate_interval]))", legend


def _total(series: str, by: str = "") -> tuple[str, str]:
    return (f"sum by ({by}) ({series}{{{_JOB}}})", f"{{{{{by}}}}}") if by else (f"sum({series}{{{_JOB}}})", series)


def _recorded(series: str, by: str, selector: str = "") -> tuple[str, str]:
    picked = ", ".join(filter(None, (_JOB, selector)))
    return f"{series}{{{picked}}}", " ".join(f"{{{{{each}}}}}" for each in by.split(", "))


SERVICE = [
    Panel(title="Calls per second", queries=[_rate("turnscore_requests_total", "transport, call")], unit="reqps"),
    Panel(title="Calls by code", queries=[_rate("turnscore_requests_total", "code")], unit="reqps"),
    Panel(title="Time of a call", queries=_quantiles("turnscore_request_seconds", "call"), unit="s"),
    Panel(
        title="Failed calls", queries=[_recorded("turnscore:failed_share:1h", "job")], unit="percentunit", line=0.001
    ),
    Panel(title="Slow scores", queries=[_recorded("turnscore:slow_share:1h", "job")], unit="percentunit", line=0.01),
    Panel(title="Ready processes", queries=[_total("turnscore_ready", "instance")]),
    Panel(title="Wait for a batch", queries=_quantiles("turnscore_queue_seconds", "scorer"), unit="s", line=0.5),
    Panel(title="Time of a batch", queries=_quantiles("turnscore_inference_seconds", "scorer"), unit="s"),
    Panel(title="Time to tokenize", queries=_quantiles("turnscore_tokenize_seconds", "scorer"), unit="s"),
    Panel(title="Turns in flight", queries=[_total("turnscore_items_in_flight", "scorer")]),
    Panel(title="Queued turns", queries=[_total("turnscore_queued_items", "scorer")]),
    Panel(title="Refused turns", queries=[_rate("turnscore_refused_items_total", "scorer, reason")], unit="ops"),
    Panel(
        title="Calls shed undecoded", queries=[_rate("turnscore_requests_shed_total", "transport, call")], unit="reqps"
    ),
    Panel(title="Turns by outcome", queries=[_rate("turnscore_items_total", "scorer, outcome")], unit="ops"),
    Panel(title="Turns by API key", queries=[_rate("turnscore_key_turns_total", "key, outcome")], unit="ops"),
    Panel(title="Stages replaced", queries=[_rate("turnscore_stage_deaths_total", "stage")], unit="ops"),
    Panel(title="Wasted turns", queries=[_rate("turnscore_wasted_items_total", "scorer")], unit="ops"),
]

VALUES = [
    Panel(
        title="Drift from the baseline",
        queries=[_recorded("turnscore:drift_ratio", "model", 'against="baseline"')],
        line=1,
        description="The stability index over its limit: above 1, chance does not explain it. docs/compare.md.",
    ),
    Panel(
        title="Distance from the bundle's curve",
        queries=[_recorded("turnscore:drift_ratio", "model", 'against="bundle"')],
        line=1,
    ),
    Panel(title="Dialogues per day", queries=[_recorded("turnscore:dialogues:1d", "model")], line=100),
    Panel(
        title="Share of turns by percentile, a day",
        queries=[_recorded("turnscore:score_share:1d", "model, bin")],
        unit="percentunit",
        line=0.1,
    ),
    Panel(
        title="Mean percentile",
        queries=[
            (
                f"sum by (model) (rate(turnscore_score_percentile_sum{{{_JOB}}}[1h])) / "
                f"sum by (model) (rate(turnscore_score_percentile_count{{{_JOB}}}[1h]))",
                "{{model}}",
            )
        ],
    ),
    Panel(title="Live turns by label", queries=[_rate("turnscore_live_turns_total", "model, label")], unit="ops"),
    Panel(title="Share of low", queries=[_recorded("turnscore:low_share:6h", "model")], unit="percentunit"),
    Panel(title="Not read whole", queries=[_recorded("turnscore:cut_share:6h", "model")], unit="percentunit"),
    Panel(
        title="Hardly in the model's language",
        queries=[_recorded("turnscore:foreign_share:6h", "model")],
        unit="percentunit",
        line=0.05,
    ),
    Panel(title="Warnings", queries=[_rate("turnscore_warned_turns_total", "model, warning")], unit="ops"),
    Panel(title="Tokens per character", queries=[_recorded("turnscore:tokens_per_char:6h", "model")]),
    Panel(
        title="Not computable",
        queries=[_recorded("turnscore:not_computable_share:6h", "model")],
        unit="percentunit",
        line=0.001,
    ),
    Panel(title="Live turns by tenant", queries=[_rate("turnscore_live_turns_total", "tenant")], unit="ops"),
    Panel(title="Model switches", queries=[_rate("turnscore_model_switches_total", "outcome")], unit="ops"),
    Panel(
        title="Candidate versions: turns of shadows",
        queries=[_rate("turnscore_shadow_turns_total", "model, outcome")],
        unit="ops",
        description="full, late: no idle moment, the shadow is shed first. failed: see the log. docs/rollouts.md.",
    ),
    Panel(
        title="Candidate versions: mean percentile, shadow less served",
        queries=[_recorded("turnscore:shadow_shift:6h", "model, served")],
        lowest=None,
    ),
    Panel(
        title="Candidate versions: more than 10 percentiles apart",
        queries=[_recorded("turnscore:shadow_far_share:6h", "model, served")],
        unit="percentunit",
    ),
    Panel(
        title="Candidate versions: labels that flip",
        queries=[_recorded("turnscore:shadow_flipped_share:6h", "model, served")],
        unit="percentunit",
    ),
    Panel(
        title="Candidate versions: rank correlation, least of the workers",
        queries=[
            (f"min by (model, served) (turnscore_shadow_rank_correlation{{{_JOB}}})", "{{model}} {{served}}"),
        ],
        lowest=None,
    ),
    Panel(title="Candidate versions: CPUs of shadows", queries=[_rate("turnscore_shadow_cpu_seconds_total", "model")]),
    Panel(
        title="Candidate versions: live turns by version",
        queries=[_rate("turnscore_live_turns_total", "scorer, model")],
        unit="ops",
        description="Two of one scorer while a split is on.",
    ),
]

CACHE = [
    Panel(title="Hits", queries=[_rate("turnscore_cache_hits_total", "scorer, level")], unit="ops"),
    Panel(title="Misses", queries=[_rate("turnscore_cache_misses_total", "scorer, cause")], unit="ops"),
    Panel(
        title="Turns that joined another's work", queries=[_rate("turnscore_cache_joins_total", "scorer")], unit="ops"
    ),
    Panel(title="Round trips", queries=_quantiles("turnscore_cache_seconds", "operation"), unit="s"),
    Panel(title="Errors", queries=[_rate("turnscore_cache_errors_total", "operation, cause")], unit="ops"),
    Panel(
        title="Breaker (2: not in use)",
        queries=[(f"max by (operation) (turnscore_cache_breaker_state{{{_JOB}}})", "{{operation}}")],
        line=2,
    ),
    Panel(title="Dropped writes", queries=[_rate("turnscore_cache_dropped_writes_total", "cause")], unit="ops"),
    Panel(title="Memory in the processes", queries=[_total("turnscore_cache_local_bytes", "instance")], unit="bytes"),
]

CONVERSATIONS = [
    Panel(title="Open", queries=[_total("turnscore_open_conversations", "instance")]),
    Panel(title="Messages by outcome", queries=[_rate("turnscore_conversation_turns_total", "outcome")], unit="ops"),
    Panel(
        title="From a turn to its scores",
        queries=_quantiles("turnscore_conversation_turn_seconds", "job"),
        unit="s",
    ),
    Panel(
        title="Ended by code",
        queries=[_rate("turnscore_requests_total", "code", selector='call="conversation"')],
        unit="ops",
    ),
    Panel(title="Dialogues begun", queries=[_rate("turnscore_live_dialogues_total", "model")], unit="ops"),
]

GPU = [
    Panel(title="Batches in the runtime", queries=[_total("turnscore_running_batches", "scorer")]),
    Panel(title="Concurrent batches", queries=[_total("turnscore_concurrent_batches", "scorer")]),
    Panel(title="Turns in a batch", queries=_quantiles("turnscore_batch_items", "scorer")),
    Panel(title="Tokens in a batch", queries=_quantiles("turnscore_batch_tokens", "scorer")),
    Panel(title="Padding", queries=_quantiles("turnscore_batch_padding_ratio", "scorer"), unit="percentunit"),
    Panel(
        title="Batches too large for the device",
        queries=[_rate("turnscore_out_of_memory_batches_total", "scorer")],
        unit="ops",
    ),
    Panel(title="Tokens in flight", queries=[_total("turnscore_tokens_in_flight", "scorer")]),
    Panel(title="Tokens queued", queries=[_total("turnscore_queued_tokens", "scorer")]),
    Panel(
        title="GPU use (DCGM exporter)",
        queries=[("avg by (Hostname, gpu) (DCGM_FI_DEV_GPU_UTIL)", "{{Hostname}} {{gpu}}")],
        unit="percent",
        description="Needs NVIDIA's DCGM exporter in the same Prometheus.",
    ),
    Panel(
        title="GPU memory (DCGM exporter)",
        queries=[("max by (Hostname, gpu) (DCGM_FI_DEV_FB_USED) * 1048576", "{{Hostname}} {{gpu}}")],
        unit="bytes",
        description="Needs NVIDIA's DCGM exporter in the same Prometheus.",
    ),
]


def _chart(place: int, panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.line is not None:
        steps.append({"color": "red", "value": panel.line})
    return {
        "id": place + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {
            "x": _WIDTH * (place % _PER_ROW),
            "y": _HEIGHT * (place // _PER_ROW),
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                **({} if panel.lowest is None else {"min": panel.lowest}),
                "custom": {"thresholdsStyle": {"mode": "off" if panel.line is None else "line"}},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for number, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _dashboard(uid: str, title: str, panels: Sequence[Panel]) -> Json:
    job: Json = {
        "name": "job",
        "label": "job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(turnscore_ready, job)", "refId": "job"},
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["turnscore"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}, job]},
        "panels": [_chart(place, panel) for place, panel in enumerate(panels)],
    }


DASHBOARDS: dict[str, Json] = {
    "service": _dashboard("turnscore-service", "turnscore: service", SERVICE),
    "values": _dashboard("turnscore-values", "turnscore: models and values", VALUES),
    "cache": _dashboard("turnscore-cache", "turnscore: cache", CACHE),
    "conversations": _dashboard("turnscore-conversations", "turnscore: conversations", CONVERSATIONS),
    "gpu": _dashboard("turnscore-gpu", "turnscore: batches and GPU", GPU),
}
