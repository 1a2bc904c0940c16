"""Drift and shadows: the same counts from metrics and files, an index that chance does not raise, and reports."""

import json
import re
from dataclasses import replace

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from scipy import stats
from support.files import invoke, write_lines
from turnscore_assessment.commands.drift import app
from turnscore_assessment.drift import report, sources
from turnscore_assessment.drift.sources import BINS, LiveValues, collect, read_baseline, read_file, write_baseline
from turnscore_assessment.errors import AssessmentError, BadFileError
from turnscore_assessment.rendering import to_html
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scoring import Deadline, Item, Outcome
from turnscore_service import metrics
from turnscore_service.scheduling.score_metrics import ScoreMetrics
from turnscore_wire import Score, TokenCount, Turn
from typer.testing import CliRunner

counts = st.lists(st.integers(0, 5000), min_size=BINS, max_size=BINS)


def score(percentile, model, **more):
    tokens = TokenCount(used=3, dropped=more.pop("dropped", 0), truncated=False)
    return Score(value=percentile, percentile=percentile, details={}, model=model, tokens=tokens, cached=True, **more)


def live(bins, dialogues, **more):
    return LiveValues(
        scorer="quality", model=more.pop("model", "quality:1"), bins=bins, dialogues=dialogues, turns=sum(bins), **more
    )


@given(counts, counts)
def test_the_index_is_nothing_for_equal_shares_and_something_for_others(bins, others):
    assert report.measure_stability(bins, report.find_shares(bins)) == pytest.approx(0, abs=1e-12)
    index = report.measure_stability(bins, report.find_shares(others))
    assert index >= 0
    assert (index > 1e-12) == (not np.allclose(report.find_shares(bins), report.find_shares(others), atol=1e-12))


def test_the_limit_is_passed_by_chance_as_often_as_promised():
    generator = np.random.default_rng(0)
    found = [
        report.measure_stability(generator.multinomial(500, (0.1,) * 10)) > report.find_limit(500) for _ in range(4000)
    ]
    assert stats.binomtest(sum(found), 4000, 0.01).pvalue > 0.001


def draw_bins(generator, dialogues, shift=0.0):
    """Some eight turns a dialogue, of whose variance the dialogue explains a fifth."""
    rows = []
    for turns in generator.poisson(7, dialogues) + 1:
        scores = generator.normal(0, 0.2**0.5) + generator.normal(shift, 0.8**0.5, turns)
        rows.append(np.histogram(stats.norm.cdf(scores), bins=BINS, range=(0, 1))[0])
    return np.array(rows)


def count_alarms(usual, changed, windows, *, by_dialogues=False):
    """The share of windows of 500 changed dialogues that alarm against as many usual ones, both drawn for each."""
    generator, alarms = np.random.default_rng(1), 0
    for _ in range(windows):
        values = []
        for dialogues in (changed, usual):
            rows = dialogues[generator.integers(0, len(dialogues), 500)]
            bins, products = rows.sum(axis=0).astype(float), rows.T @ rows
            products = [] if by_dialogues else products.astype(float).tolist()
            found = {"bins": bins.tolist(), "dialogues": len(rows), "turns": bins.sum(), "products": products}
            values.append(LiveValues(scorer="", model="", **found))
        [finding] = report.find_drift(values[:1], values[1:])
        alarms += finding.comparisons[-1].verdict is report.DriftVerdict.DRIFTED
    return alarms / windows


def test_a_small_shift_is_found_where_dialogues_were_counted_one_by_one():
    """A shift of .2 standard deviations of a turn's score, which the limit of dialogues' number does not see."""
    generator = np.random.default_rng(0)
    usual, lower = draw_bins(generator, 4000), draw_bins(generator, 4000, -0.2)
    assert count_alarms(usual, lower, 100) >= 0.9
    assert count_alarms(usual, lower, 100, by_dialogues=True) < 0.1
    assert count_alarms(usual, usual, 200) <= stats.binom.ppf(0.99, 200, 0.01) / 200


def test_metrics_and_a_file_of_the_same_scores_have_the_same_counts(tmp_path):
    percentiles = [0.0, 3.0, 10.0, 10.1, 55.0, 99.9, 100.0]
    more = [{"label": "low"}, {"label": "fair"}, {"warnings": ["not_in_language"]}]
    more += [{"dropped": 2}, {}, {}, {}]
    scored = [score(each, "drift-test:1", **own) for each, own in zip(percentiles, more, strict=True)]
    said = ScoreMetrics({})
    context = []
    for each in scored:
        item = Item(turn=TurnToScore(context, ""), asked={"combined": None}, deadline=Deadline(0))
        said.count(item, Outcome(scores={"combined": each}))
        context = [Turn(speaker="system", text="x")]
    served = generate_latest(metrics.registry()).decode()
    turns = [{"speaker": "user", "text": "hi"}]
    turns += [{"speaker": "system", "text": "x", "scores": {"combined": each.model_dump()}} for each in scored]
    path = write_lines(tmp_path / "scores.jsonl", {"line": 1, "turns": turns})
    families = sources.text_string_to_metric_families(served)
    samples = [(each.name, each.labels, each.value) for family in families for each in family.samples]
    [of_metrics] = [each for each in collect(samples) if each.model == "drift-test:1"]
    [of_file] = read_file(path)
    assert of_file.products == np.outer(of_file.bins, of_file.bins).tolist()
    assert replace(of_file, products=[]) == of_metrics
    assert of_metrics.bins == [3, 1, 0, 0, 0, 1, 0, 0, 0, 2]
    assert (of_metrics.dialogues, of_metrics.low, of_metrics.labelled, of_metrics.cut) == (1, 1, 2, 1)


def test_only_enough_dialogues_and_the_same_model_are_judged():
    skewed, even = [500.0] + [10.0] * 9, [50.0] * 10
    [found] = report.find_drift([live(skewed, 99)], [live(even, 500)])
    assert [each.verdict for each in found.comparisons] == [report.DriftVerdict.TOO_FEW] * 2
    [found] = report.find_drift([live(skewed, 100)], [live(even, 500)])
    assert [each.verdict for each in found.comparisons] == [report.DriftVerdict.DRIFTED] * 2
    [found] = report.find_drift([live(even, 100)], [live(skewed, 500)])
    assert [each.verdict for each in found.comparisons] == [report.DriftVerdict.STABLE, report.DriftVerdict.DRIFTED]
    [found] = report.find_drift([live(even, 100, model="quality:2")], [live(skewed, 500)])
    assert [each.against for each in found.comparisons] == ["bundle"]
    assert "take a new one with quality:2" in found.warnings[0]


def test_where_all_turns_are_in_one_bin_the_limit_is_that_of_as_many_dialogues():
    bins = [0.0] * 4 + [300.0] + [0.0] * 5
    same = live(bins, 150, products=(np.outer(bins, bins) / 150).tolist())
    [found] = report.find_drift([same], [same])
    assert [each.limit for each in found.comparisons] == [report.find_limit(150), report.find_limit(150, 150)]
    assert [each.verdict for each in found.comparisons] == [report.DriftVerdict.DRIFTED, report.DriftVerdict.STABLE]


def test_a_broken_baseline_is_refused_by_its_field(tmp_path):
    path = tmp_path / "baseline.json"
    write_baseline(path, [live([1.0] * 10, 3)])
    content = json.loads(path.read_text())
    content["values"][0]["bins"][4] = -1
    path.write_text(json.dumps(content))
    with pytest.raises(BadFileError, match=r"values\.0\.bins\.4"):
        read_baseline(path)
    path.write_text("[]")
    with pytest.raises(BadFileError, match="not a baseline"):
        read_baseline(path)


def test_the_command_keeps_a_baseline_and_finds_what_drifted(tmp_path):
    def rows(low, high):
        scores = [score(each, "quality:1").model_dump() for each in np.linspace(low, high, 120)]
        return [{"context": [], "response": "secret words", "scores": {"quality": each}} for each in scores]

    before = write_lines(tmp_path / "before.jsonl", *rows(1, 99))
    after = write_lines(tmp_path / "after.jsonl", *rows(1, 30))
    kept, rules, page = tmp_path / "baseline.json", tmp_path / "rules.yml", tmp_path / "drift.html"
    run = CliRunner().invoke
    assert run(app, ["baseline", str(kept), "--scores", str(before), "--rules", str(rules)]).exit_code == 0
    assert [each.dialogues for each in read_baseline(kept)] == [120]
    compared = ["--baseline", str(kept), "--check"]
    assert run(app, ["report", "--scores", str(before), *compared]).exit_code == 0
    found = run(app, ["report", "--scores", str(after), *compared, "--html", str(page)])
    assert (found.exit_code, found.output.count("DRIFTED")) == (3, 2)
    assert "Drifted: quality:1." in page.read_text()
    assert "secret" not in kept.read_text() + rules.read_text() + page.read_text() + found.output
    few = write_lines(tmp_path / "few.jsonl", *rows(1, 99)[:20])
    assert run(app, ["report", "--scores", str(few), *compared, "--html", str(page)]).exit_code == 0
    assert "No verdict: too few dialogues." in page.read_text()
    assert run(app, ["report"]).exit_code == 2
    assert run(app, ["report", "--scores", str(after), "--metrics", "http://x"]).exit_code == 2


def test_a_prometheus_is_asked_for_each_series_of_the_window(monkeypatch):
    asked = []

    def get(url, *, params, **_):
        if params == {"query": "time()"}:
            return httpx.Response(200, json={"data": {"result": [5, "5"]}}, request=httpx.Request("GET", url))
        assert params["time"] == "5"
        asked.append(params["query"])
        value = {"metric": {"scorer": "quality", "model": "quality:1", "le": "10.0", "label": "low"}, "value": [0, "7"]}
        return httpx.Response(200, json={"data": {"result": [value]}}, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    [found] = collect(sources.query_prometheus("http://p:9090/", "3d", 'job="bot"', "shop"))
    assert (found.bins[0], found.low, found.dialogues) == (7, 7, 7)
    assert len(asked) == len(sources.SERIES)
    assert all('{job="bot", tenant="shop"}[3d]' in each for each in asked)
    monkeypatch.setattr(httpx, "get", lambda url, **_: httpx.Response(500, request=httpx.Request("GET", url)))
    with pytest.raises(AssessmentError, match="500"):
        sources.read_service("http://service:3000")


def test_the_page_and_the_rules_escape_what_they_show():
    odd = live([1.0] * 10, 3, model='<b>"x"')
    assert "<b>" not in to_html(report.build_page(report.find_drift([odd]), "command"))
    labels = re.findall(r"labels: (\{.*\})", report.make_rules([odd]))
    assert len(labels) == 11
    assert all('model: "<b>\\"x\\""' in each for each in labels)


SHADOW = ("quality", "shadow-test:2", "shadow-test:1")
PAIRS = {("low", "low"): 5, ("low", "fair"): 2, ("fair", "low"): 1, ("fair", "fair"): 12, ("none", "fair"): 1}


@pytest.fixture
def service(monkeypatch):
    """A service's metrics: 21 turns compared, 3 dropped; percentiles 2 higher in the mean, five far apart."""
    for outcome, count in {"compared": 21, "full": 2, "late": 1, "failed": 4}.items():
        metrics.SHADOW_TURNS.labels(*SHADOW, outcome).inc(count)
    for by, total in {"served": 1000, "shadow": 1042}.items():
        metrics.SHADOW_PERCENTILES.labels(*SHADOW, by).inc(total)
    for pair, count in PAIRS.items():
        metrics.SHADOW_LABELS.labels(*SHADOW, *pair).inc(count)
    for shift in [5] * 10 + [10] * 6 + [11] * 5:
        metrics.SHADOW_SHIFT.labels(*SHADOW).observe(shift)
    metrics.SHADOW_SECONDS.labels(*SHADOW).inc(0.42)
    metrics.SHADOW_CORRELATION.labels(*SHADOW).set(0.9125)
    lines = generate_latest(metrics.registry()).decode().splitlines(keepends=True)
    text = "".join(line for line in lines if line.startswith("#") or "shadow-test" in line)
    assert all(f"{series}{{" in text for series in (*report.TOTALS, report.CORRELATION)), (
        "what a Prometheus is asked for"
    )
    monkeypatch.setattr(
        httpx, "get", lambda url, **_: httpx.Response(200, text=text, request=httpx.Request("GET", url))
    )


@pytest.mark.usefixtures("service")
def test_the_table_says_what_would_change(tmp_path):
    page = tmp_path / "shadow.html"
    told = invoke(app, ["shadow", "--metrics", "http://service:3000", "--html", str(page)])
    rows = dict(cells for line in told.output.splitlines() if len(cells := re.split(r"  +", line.strip())) == 2)
    told = {
        "turns compared": "21", "turns dropped, as no moment was idle": "3", "turns failed": "4",
        "mean percentile, the shadow's less the served version's": "+2.00",
        "turns whose percentiles differ by more than 10": "23.8%",
        "labels that flip, with Wilson's interval": "15.0% (5.2% to 36.0%)", "CPU per compared turn": "20.0 ms",
    }  # fmt: skip
    assert told.items() <= rows.items()
    assert "shadow-test:2 compared with shadow-test:1" in page.read_text()


def test_a_shadow_of_the_version_that_is_served_now_is_warned_of():
    labels = [{"model": "quality:2", "served": served, "outcome": "compared"} for served in ("quality:1", "quality:2")]
    page = report.build_shadow_page(report.collect_shadows((report.TOTALS[0], each, 5.0) for each in labels), "command")
    assert page.summary[2:] == [
        "warning: quality:2 was served while its shadow ran: if it still is, remove it from TURNSCORE_SHADOW."
    ]


def test_a_service_without_a_shadow_is_said_to_have_none(monkeypatch):
    monkeypatch.setattr(httpx, "get", lambda url, **_: httpx.Response(200, text="", request=httpx.Request("GET", url)))
    told = CliRunner().invoke(app, ["shadow", "--metrics", "http://service:3000"])
    assert (told.exit_code, "TURNSCORE_SHADOW names no version" in told.output) == (1, True)
