"""The dashboards: panels over turnscore's metrics and the recorded series.

`make generate WHAT=observability` writes them as Grafana's JSON.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT, _PER_ROW = 8, 7, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 36  # as Grafana's SDK for 10.1 has it; later ones read it
_JOB = 'job=~"$job"'
Json = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """One chart: queries with their legends, and the unit by Grafana's word for it."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    line: float | None = None  # A threshold that is drawn.
    lowest: float | None = 0  # where the axis begins; None where values may lie below 0
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
    Panel("Calls per second", [_rate("turnscore_requests_total", "transport, call")], "reqps"),
    Panel("Calls by code", [_rate("turnscore_requests_total", "code")], "reqps"),
    Panel("Time of a call", _quantiles("turnscore_request_seconds", "call"), "s"),
    Panel("Failed calls", [_recorded("turnscore:failed_share:1h", "job")], "percentunit", line=0.001),
    Panel("Slow scores", [_recorded("turnscore:slow_share:1h", "job")], "percentunit", line=0.01),
    Panel("Ready processes", [_total("turnscore_ready", "instance")]),
    Panel("Wait for a batch", _quantiles("turnscore_queue_seconds", "scorer"), "s", line=0.5),
    Panel("Time of a batch", _quantiles("turnscore_inference_seconds", "scorer"), "s"),
    Panel("Time to tokenize", _quantiles("turnscore_tokenize_seconds", "scorer"), "s"),
    Panel("Turns in flight", [_total("turnscore_items_in_flight", "scorer")]),
    Panel("Queued turns", [_total("turnscore_queued_items", "scorer")]),
    Panel("Refused turns", [_rate("turnscore_refused_items_total", "scorer, reason")], "ops"),
    Panel("Calls shed undecoded", [_rate("turnscore_requests_shed_total", "transport, call")], "reqps"),
    Panel("Turns by outcome", [_rate("turnscore_items_total", "scorer, outcome")], "ops"),
    Panel("Turns by API key", [_rate("turnscore_key_turns_total", "key, outcome")], "ops"),
    Panel("Stages replaced", [_rate("turnscore_stage_deaths_total", "stage")], "ops"),
    Panel("Wasted turns", [_rate("turnscore_wasted_items_total", "scorer")], "ops"),
]

VALUES = [
    Panel(
        "Drift from the baseline",
        [_recorded("turnscore:drift_ratio", "model", 'against="baseline"')],
        line=1,
        description="The stability index over its limit: above 1, chance does not explain it. docs/compare.md.",
    ),
    Panel(
        "Distance from the bundle's curve", [_recorded("turnscore:drift_ratio", "model", 'against="bundle"')], line=1
    ),
    Panel("Dialogues per day", [_recorded("turnscore:dialogues:1d", "model")], line=100),
    Panel(
        "Share of turns by percentile, a day",
        [_recorded("turnscore:score_share:1d", "model, bin")],
        "percentunit",
        line=0.1,
    ),
    Panel(
        "Mean percentile",
        [
            (
                f"sum by (model) (rate(turnscore_score_percentile_sum{{{_JOB}}}[1h])) / "
                f"sum by (model) (rate(turnscore_score_percentile_count{{{_JOB}}}[1h]))",
                "{{model}}",
            )
        ],
    ),
    Panel("Live turns by label", [_rate("turnscore_live_turns_total", "model, label")], "ops"),
    Panel("Share of low", [_recorded("turnscore:low_share:6h", "model")], "percentunit"),
    Panel("Not read whole", [_recorded("turnscore:cut_share:6h", "model")], "percentunit"),
    Panel(
        "Hardly in the model's language", [_recorded("turnscore:foreign_share:6h", "model")], "percentunit", line=0.05
    ),
    Panel("Warnings", [_rate("turnscore_warned_turns_total", "model, warning")], "ops"),
    Panel("Tokens per character", [_recorded("turnscore:tokens_per_char:6h", "model")]),
    Panel("Not computable", [_recorded("turnscore:not_computable_share:6h", "model")], "percentunit", line=0.001),
    Panel("Live turns by tenant", [_rate("turnscore_live_turns_total", "tenant")], "ops"),
    Panel("Model switches", [_rate("turnscore_model_switches_total", "outcome")], "ops"),
    Panel(
        "Candidate versions: turns of shadows",
        [_rate("turnscore_shadow_turns_total", "model, outcome")],
        "ops",
        description="full, late: no idle moment, the shadow is shed first. failed: see the log. docs/rollouts.md.",
    ),
    Panel(
        "Candidate versions: mean percentile, shadow less served",
        [_recorded("turnscore:shadow_shift:6h", "model, served")],
        lowest=None,
    ),
    Panel(
        "Candidate versions: more than 10 percentiles apart",
        [_recorded("turnscore:shadow_far_share:6h", "model, served")],
        "percentunit",
    ),
    Panel(
        "Candidate versions: labels that flip",
        [_recorded("turnscore:shadow_flipped_share:6h", "model, served")],
        "percentunit",
    ),
    Panel(
        "Candidate versions: rank correlation, least of the workers",
        [(f"min by (model, served) (turnscore_shadow_rank_correlation{{{_JOB}}})", "{{model}} {{served}}")],
        lowest=None,
    ),
    Panel("Candidate versions: CPUs of shadows", [_rate("turnscore_shadow_cpu_seconds_total", "model")]),
    Panel(
        "Candidate versions: live turns by version",
        [_rate("turnscore_live_turns_total", "scorer, model")],
        "ops",
        description="Two of one scorer while a split is on.",
    ),
]

CACHE = [
    Panel("Hits", [_rate("turnscore_cache_hits_total", "scorer, level")], "ops"),
    Panel("Misses", [_rate("turnscore_cache_misses_total", "scorer, cause")], "ops"),
    Panel("Turns that joined another's work", [_rate("turnscore_cache_joins_total", "scorer")], "ops"),
    Panel("Round trips", _quantiles("turnscore_cache_seconds", "operation"), "s"),
    Panel("Errors", [_rate("turnscore_cache_errors_total", "operation, cause")], "ops"),
    Panel(
        "Breaker (2: not in use)",
        [(f"max by (operation) (turnscore_cache_breaker_state{{{_JOB}}})", "{{operation}}")],
        line=2,
    ),
    Panel("Dropped writes", [_rate("turnscore_cache_dropped_writes_total", "cause")], "ops"),
    Panel("Memory in the processes", [_total("turnscore_cache_local_bytes", "instance")], "bytes"),
    Panel("Texts whose vectors were kept", [_rate("turnscore_kept_vector_hits_total", "role")], "ops"),
    Panel("Texts that were read", [_rate("turnscore_kept_vector_misses_total", "role")], "ops"),
    Panel("Texts whose vectors made room", [_rate("turnscore_kept_vector_evictions_total", "instance")], "ops"),
    Panel("Memory of kept vectors", [_total("turnscore_kept_vector_bytes", "instance")], "bytes"),
]

CONVERSATIONS = [
    Panel("Open", [_total("turnscore_open_conversations", "instance")]),
    Panel("Messages by outcome", [_rate("turnscore_conversation_turns_total", "outcome")], "ops"),
    Panel("From a turn to its scores", _quantiles("turnscore_conversation_turn_seconds", "job"), "s"),
    Panel("Ended by code", [_rate("turnscore_requests_total", "code", selector='call="conversation"')], "ops"),
    Panel("Dialogues begun", [_rate("turnscore_live_dialogues_total", "model")], "ops"),
]

GPU = [
    Panel("Batches in the runtime", [_total("turnscore_running_batches", "scorer")]),
    Panel("Concurrent batches", [_total("turnscore_concurrent_batches", "scorer")]),
    Panel("Turns in a batch", _quantiles("turnscore_batch_items", "scorer")),
    Panel("Tokens in a batch", _quantiles("turnscore_batch_tokens", "scorer")),
    Panel("Padding", _quantiles("turnscore_batch_padding_ratio", "scorer"), "percentunit"),
    Panel("Batches too large for the device", [_rate("turnscore_out_of_memory_batches_total", "scorer")], "ops"),
    Panel("Tokens in flight", [_total("turnscore_tokens_in_flight", "scorer")]),
    Panel("Tokens queued", [_total("turnscore_queued_tokens", "scorer")]),
    Panel(
        "GPU use (DCGM exporter)",
        [("avg by (Hostname, gpu) (DCGM_FI_DEV_GPU_UTIL)", "{{Hostname}} {{gpu}}")],
        "percent",
        description="Needs NVIDIA's DCGM exporter in the same Prometheus.",
    ),
    Panel(
        "GPU memory (DCGM exporter)",
        [("max by (Hostname, gpu) (DCGM_FI_DEV_FB_USED) * 1048576", "{{Hostname}} {{gpu}}")],
        "bytes",
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
        "gridPos": {"x": _WIDTH * (place % _PER_ROW), "y": _HEIGHT * (place // _PER_ROW), "w": _WIDTH, "h": _HEIGHT},
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
FILES = {f"{name}.json": json.dumps(dashboard, indent=1) + "\n" for name, dashboard in DASHBOARDS.items()}

if __name__ == "__main__":
    for name, content in FILES.items():
        (Path(__file__).parent / "dashboards" / name).write_text(content, encoding="utf-8")
