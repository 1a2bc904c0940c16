"""deploy/observability: of metrics that exist; every alert fires and clears; dashboards as their script writes them."""

import importlib
import json
import re
import runpy
from pathlib import Path

import pytest
from prometheus_client import metrics as prometheus_metrics
from support.deployments import FOLDER, RULES, run_promtool
from turnscore_assessment.drift import report
from turnscore_service import metrics

RUNBOOK = Path(__file__).parents[3] / "docs" / "metrics.md"
OF_PROMETHEUS = {"job", "instance", "le"}
RECORDED = {"bin", "against", "served"}
# Metrics of other exporters, which the dashboards say they need.
OF_OTHERS = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"}


SCRIPT = runpy.run_path(str(FOLDER / "dashboards.py"))
DASHBOARDS, FILES = SCRIPT["DASHBOARDS"], SCRIPT["FILES"]
EVERY = [rule for rules in RULES.values() for rule in rules]
ALERTS = [rule["alert"] for rule in EVERY if "alert" in rule]


def series_in_code():
    """Every series as Prometheus has it, with its labels."""
    found = {}
    for value in vars(metrics).values():
        if isinstance(value, prometheus_metrics.MetricWrapperBase):
            endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(value._type, ("",))
            found |= {value._name + ending: set(value._labelnames) for ending in endings}
    return found


def expressions():
    yield from (rule["expr"] for rule in EVERY)
    for dashboard in DASHBOARDS.values():
        yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])


def misfits_of(expr):
    """Series that nobody exports or records, and labels that none of the expression's series has."""
    known = series_in_code()
    recorded = {rule["record"] for rule in EVERY if "record" in rule}
    recorded |= {"turnscore:baseline_share", "turnscore:baseline_dialogues"}  # of `turnscore drift baseline --rules`
    named = set(re.findall(r"\b(?:turnscore[_:]|DCGM_)[A-Za-z0-9_:]+", expr))
    wrong = named - set(known) - recorded - OF_OTHERS
    labels = set(re.findall(r'([a-z_]+)(?:=~|!~|!=|=)"', expr))
    for group in re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", expr):
        labels |= {each.strip() for each in group.split(",")}
    if named & OF_OTHERS:
        return wrong
    of_series = set().union(*(known.get(each, {"scorer", "model", "tenant"} | RECORDED) for each in named))
    return wrong | (labels - of_series - OF_PROMETHEUS)


def test_the_dashboards_are_what_the_script_writes():
    kept = {path.name: path.read_text() for path in (FOLDER / "dashboards").iterdir()}
    assert kept == FILES, "run `make generate WHAT=observability`"


def test_every_expression_asks_for_what_is_exported():
    assert {expr: misfits for expr in expressions() if (misfits := misfits_of(expr))} == {}


def lost(sent, kept, path):
    """Where what Grafana's types kept differs from what was sent."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            yield from lost(value, kept.get(name, "(nothing)"), f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for place, (mine, its) in enumerate(zip(sent, kept, strict=True)):
            yield from lost(mine, its, f"{path}.{place}")
    elif sent != kept:
        yield path


def through_grafana(dashboard):
    """The fields of a dashboard that Grafana's own types do not know."""
    reason = "`make deploy-tools` installs Grafana's types"
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins", reason=reason)
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder")
    models = importlib.import_module("grafana_foundation_sdk.models.dashboard")
    plugins.register_default_plugins()
    kept = json.loads(json.dumps(models.Dashboard.from_json(dashboard), cls=encoder.JSONEncoder))
    return list(lost(dashboard, kept, ""))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_knows_every_field_of_a_dashboard(name):
    dashboard = DASHBOARDS[name]
    assert through_grafana(dashboard) == []
    [first, *_] = dashboard["panels"]
    assert through_grafana({**dashboard, "panels": [{**first, "tilte": "x"}]}) == [".panels.0.tilte"]


def test_every_alert_has_its_paragraph_in_the_runbook():
    headings = re.findall(r"^### (.+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert headings == ALERTS
    runbooks = [rule["annotations"]["runbook"] for rule in EVERY if "alert" in rule]
    assert runbooks == [f"docs/metrics.md#{alert.lower()}" for alert in ALERTS]


def case(alert, fires, clears, *series):
    """A test of promtool: nothing at first, the alert at one time, and not at the other."""
    expr = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    asked = [
        {"expr": expr, "eval_time": at, "exp_samples": [{"labels": "{}", "value": value}]}
        for at, value in (("0m", 0), (fires, 1), (clears, 0))
    ]
    return {"name": alert, "input_series": series_of(series), "promql_expr_test": asked}


def series_of(given):
    return [{"series": each, "values": values} for each, values in given]


def requests(code, values):
    return f'turnscore_requests_total{{job="bot", transport="http", call="score", code="{code}"}}', values


SCORE = 'job="bot", transport="http", call="score"'
QUALITY = 'job="bot", scorer="quality", model="quality:1", tenant=""'


def slow_calls(slow, count):
    return [
        (f'turnscore_request_seconds_bucket{{{SCORE}, le="0.25"}}', slow),
        (f"turnscore_request_seconds_count{{{SCORE}}}", count),
    ]


def counter(name, labels, values):
    return f'turnscore_{name}{{job="bot"{labels}}}', values


FAST = [  # a value a minute
    case("TurnscoreNotReady", "5m", "12m", ('turnscore_ready{job="bot", instance="a"}', "0x8 1x10")),
    case("TurnscoreAbsent", "6m", "15m", ('turnscore_ready{job="bot", instance="a"}', "_x8 1x10")),
    case("TurnscoreErrorBudgetFast", "65m", "80m", requests("ok", "0+100x90"), requests("internal", "0+5x65 325x25")),
    case("TurnscoreLatencyBudgetFast", "65m", "80m", *slow_calls("0+70x65 4550+100x25", "0+100x90")),
    case("TurnscoreQueueLong", "20m", "40m",
         counter("queue_seconds_bucket", ', scorer="quality", le="0.5"', "0+10x20 200+100x30"),
         counter("queue_seconds_bucket", ', scorer="quality", le="1.0"', "0+100x50"),
         counter("queue_seconds_bucket", ', scorer="quality", le="+Inf"', "0+100x50")),
    case("TurnscoreRefusals", "12m", "30m",
         counter("refused_items_total", ', scorer="quality", reason="full"', "0+3x15 45x30"),
         counter("admitted_items_total", ', scorer="quality"', "0+100x50")),
    case("TurnscoreCacheSick", "7m", "15m", counter("cache_breaker_state", ', operation="read"', "2x8 0x10")),
    *(case(alert, "6m", "30m", counter(name, labels, "0x4 1x40")) for alert, name, labels in (
        ("TurnscoreStageDeaths", "stage_deaths_total", ', stage="quality"'),
        ("TurnscoreOutOfMemory", "out_of_memory_batches_total", ', scorer="quality"'),
        ("TurnscoreKeyFile", "key_file_errors_total", ""),
    )),
]  # fmt: skip

HALF_DAY = [  # a value every five minutes
    case(
        "TurnscoreErrorBudgetSlow", "365m", "400m", requests("ok", "0+500x84"), requests("overloaded", "0+5x73 365x12")
    ),
    case("TurnscoreLatencyBudgetSlow", "365m", "400m", *slow_calls("0+450x73 32850+500x12", "0+500x86")),
]  # fmt: skip


def falling(bins, hours, then, more):
    """Percentiles that fall into the bins, so many an hour, and then into others."""
    found = []
    for place in range(10):
        upto, later = sum(bins[: place + 1]), sum(then[: place + 1])
        values = f"0+{upto}x{hours} {upto * hours + later}+{later}x{more}"
        found.append((f'turnscore_score_percentile_bucket{{{QUALITY}, le="{10 * place + 10}.0"}}', values))
    return [*found, (f"turnscore_live_dialogues_total{{{QUALITY}}}", f"0+10x{hours + more}")]


EVEN, SKEWED = [10] * 10, [55, 5, 5, 5, 5, 5, 5, 5, 5, 5]
BASELINE = [
    ('turnscore:baseline_dialogues{scorer="quality", model="quality:1"}', "500x200"),
    *(
        (f'turnscore:baseline_share{{scorer="quality", model="quality:1", bin="{10 * place + 10}"}}', f"{share}x200")
        for place, share in enumerate(report.find_shares([500] * 10))
    ),
]


def said(label, values):
    return f'turnscore_live_turns_total{{{QUALITY}, label="{label}"}}', values


SLOW = [  # a value an hour
    case("TurnscoreDrift", "30h", "80h", *falling(SKEWED, 40, EVEN, 60), *BASELINE),
    case("TurnscoreMisfit", "30h", "80h", *falling(SKEWED, 40, EVEN, 60)),
    case("TurnscoreLowShare", "130h", "160h", said("fair", "0+90x120 10800+50x10 11300+90x60"),
         said("low", "0+10x120 1200+50x10 1700+10x60")),
    case("TurnscoreForeign", "10h", "40h", said("fair", "0+100x60"),
         (f'turnscore_warned_turns_total{{{QUALITY}, warning="not_in_language"}}', "0+20x20 400x40")),
    case("TurnscoreNotComputable", "10h", "40h", said("fair", "0+100x60"),
         (f"turnscore_not_computable_turns_total{{{QUALITY}}}", "0+1x20 20x40")),
]  # fmt: skip


def index_case():
    """The rules compute what turnscore_assessment.drift does."""
    bins = [24 * each for each in SKEWED]
    index = report.measure_stability(bins)
    asked = []
    for series, against, value in (
        ("turnscore:drift_index:1d", "bundle", index),
        ("turnscore:drift_ratio", "bundle", index / report.find_limit(240)),
        ("turnscore:drift_ratio", "baseline", index / report.find_limit(240, 500)),
    ):
        labels = f'{{job="bot", scorer="quality", model="quality:1", against="{against}"}}'
        found = [{"labels": labels, "value": round(value, 4)}]
        expr = f'round({series}{{against="{against}"}}, 0.0001)'
        asked.append({"expr": expr, "eval_time": "30h", "exp_samples": found})
    given = [*falling(SKEWED, 40, EVEN, 1), *BASELINE]
    return {"name": "index", "input_series": series_of(given), "promql_expr_test": asked}


def test_every_alert_has_a_case():
    assert sorted(each["name"] for each in [*FAST, *HALF_DAY, *SLOW]) == sorted(ALERTS)


@pytest.mark.parametrize(("step", "cases"), [("1m", FAST), ("5m", HALF_DAY), ("1h", [*SLOW, index_case()])])
def test_every_alert_fires_and_clears(tmp_path, step, cases):
    run_promtool(tmp_path, step, cases)


PAIR = 'job="bot", scorer="quality", model="quality:2", served="quality:1"'


def shadowed(series, labels, values):
    return f"turnscore_shadow_{series}{{{PAIR}, {labels}}}", values


def shadow_case():
    """40 compared turns an hour: percentiles 5 lower in the mean, one in ten far apart, one label in 20 flips."""
    values = {"shadow_shift": -5.0, "shadow_far_share": 0.1, "shadow_flipped_share": 0.05}
    given = [
        shadowed("turns_total", 'outcome="compared"', "0+40x30"),
        shadowed("turns_total", 'outcome="late"', "0+400x30"),
        shadowed("percentiles_total", 'by="served"', "0+2000x30"),
        shadowed("percentiles_total", 'by="shadow"', "0+1800x30"),
        shadowed("percentile_shift_bucket", f'le="{report.FAR:.1f}"', "0+36x30"),
        shadowed("percentile_shift_bucket", 'le="+Inf"', "0+40x30"),
        shadowed("labels_total", 'served_label="fair", shadow_label="fair"', "0+38x30"),
        shadowed("labels_total", 'served_label="fair", shadow_label="low"', "0+2x30"),
    ]
    asked = []
    for name, value in values.items():
        found = [{"labels": f"{{{PAIR}}}", "value": value}]
        # after an hour there are fewer than 100 turns
        for at, samples in (("1h", []), ("20h", found)):
            asked.append({"expr": f"round(turnscore:{name}:6h, 0.0001)", "eval_time": at, "exp_samples": samples})
    return {"name": "shadow", "input_series": series_of(given), "promql_expr_test": asked}


def test_the_series_on_shadows_are_the_reports_figures(tmp_path):
    run_promtool(tmp_path, "1h", [shadow_case()])


def test_the_rules_numbers_are_the_reports():
    ratios = [rule["expr"] for rule in EVERY if rule.get("record") == "turnscore:drift_ratio"]
    assert all(f"{report.CHI_SQUARED:.6f}" in expr and f">= {report.LEAST_DIALOGUES})" in expr for expr in ratios)
    [far] = [rule["expr"] for rule in EVERY if rule.get("record") == "turnscore:shadow_far_share:6h"]
    assert f'le="{report.FAR:.1f}"' in far
    assert report.FAR in metrics.SHADOW_SHIFT._kwargs["buckets"]
