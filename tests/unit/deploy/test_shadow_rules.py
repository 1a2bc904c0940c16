"""The recorded series on shadows are the figures of `turnscore drift shadow`, once enough was compared."""

from pathlib import Path
from typing import Any

from support.deployments import load_written, run_promtool
from turnscore_assessment.drift.shadow import FAR
from turnscore_service import metrics

RULES = load_written("rules")
PAIR = 'job="bot", scorer="quality", model="quality:2", served="quality:1"'


def shadowed(series: str, labels: str, values: str) -> tuple[str, str]:
    return f"turnscore_shadow_{series}{{{PAIR}, {labels}}}", values


def shadow_case() -> dict[str, Any]:
    """40 compared turns an hour: percentiles 5 lower in the mean, one in ten far apart, one label in 20 flips."""
    values = {"shadow_shift": -5.0, "shadow_far_share": 0.1, "shadow_flipped_share": 0.05}
    return {
        "name": "shadow",
        "input_series": [
            {"series": series, "values": counts}
            for series, counts in (
                shadowed("turns_total", 'outcome="compared"', "0+40x30"),
                shadowed("turns_total", 'outcome="late"', "0+400x30"),
                shadowed("percentiles_total", 'by="served"', "0+2000x30"),
                shadowed("percentiles_total", 'by="shadow"', "0+1800x30"),
                shadowed("percentile_shift_bucket", f'le="{RULES.FAR}"', "0+36x30"),
                shadowed("percentile_shift_bucket", 'le="+Inf"', "0+40x30"),
                shadowed("labels_total", 'served_label="fair", shadow_label="fair"', "0+38x30"),
                shadowed("labels_total", 'served_label="fair", shadow_label="low"', "0+2x30"),
            )
        ],
        "promql_expr_test": [
            {
                "expr": f"round(turnscore:{name}:6h, 0.0001)",
                "eval_time": at,
                "exp_samples": [{"labels": f"{{{PAIR}}}", "value": value}] if at == "20h" else [],
            }
            for name, value in values.items()
            for at in ("1h", "20h")  # after an hour there are fewer than 100 turns
        ],
    }


def test_the_series_on_shadows_are_the_reports_figures(tmp_path: Path) -> None:
    run_promtool(tmp_path, "1h", [shadow_case()])


def test_what_is_far_is_the_same_in_the_rules_and_in_the_report() -> None:
    assert float(RULES.FAR) == FAR
    assert FAR in metrics.SHADOW_SHIFT._kwargs["buckets"]
