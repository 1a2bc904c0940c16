"""What the report says of a shadow: from a service's metrics and from a Prometheus, on pairs made by hand."""

import re
from pathlib import Path

import httpx
import pytest
from turnscore_assessment.commands.drift import app
from turnscore_assessment.drift.report import CORRELATION, TOTALS
from turnscore_service import metrics
from typer.testing import CliRunner

LABELS = {"scorer": "quality", "model": "quality:2", "served": "quality:1"}
PAIRS = [("low", "low")] * 5 + [("low", "fair")] * 2 + [("fair", "low")] + [("fair", "fair")] * 12 + [("none", "fair")]


def exposition() -> str:
    """As /metrics gives it: 21 turns compared, 3 dropped; percentiles 2 higher in the mean, five far apart."""
    own = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
    counts = {pair: PAIRS.count(pair) for pair in PAIRS}
    lines = [
        "# TYPE turnscore_shadow_turns counter",
        *(f'turnscore_shadow_turns_total{{{own},outcome="{outcome}"}} {count}'
          for outcome, count in (("compared", 21), ("full", 2), ("late", 1), ("failed", 4))),
        "# TYPE turnscore_shadow_percentiles counter",
        f'turnscore_shadow_percentiles_total{{{own},by="served"}} 1000',
        f'turnscore_shadow_percentiles_total{{{own},by="shadow"}} 1042',
        "# TYPE turnscore_shadow_labels counter",
        *(f'turnscore_shadow_labels_total{{{own},served_label="{was}",shadow_label="{becomes}"}} {count}'
          for (was, becomes), count in counts.items()),
        "# TYPE turnscore_shadow_percentile_shift histogram",
        *(f'turnscore_shadow_percentile_shift_bucket{{{own},le="{le}"}} {count}'
          for le, count in (("5.0", 10), ("10.0", 16), ("+Inf", 21))),
        "# TYPE turnscore_shadow_cpu_seconds counter",
        f"turnscore_shadow_cpu_seconds_total{{{own}}} 0.42",
        "# TYPE turnscore_shadow_rank_correlation gauge",
        f"turnscore_shadow_rank_correlation{{{own}}} 0.9125",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        httpx, "get", lambda url, **_: httpx.Response(200, text=exposition(), request=httpx.Request("GET", url))
    )


@pytest.mark.usefixtures("service")
def test_the_table_says_what_would_change(tmp_path: Path):
    page = tmp_path / "shadow.html"
    told = CliRunner().invoke(app, ["shadow", "--metrics", "http://service:3000", "--html", str(page)])
    assert told.exit_code == 0, told.output
    rows = dict(cells for line in told.output.splitlines() if len(cells := re.split(r"  +", line.strip())) == 2)
    assert rows == {
        "turns compared": "21",
        "turns dropped, as no moment was idle": "3",
        "turns failed": "4",
        "mean percentile, the shadow's less the served version's": "+2.00",
        "turns whose percentiles differ by more than 10": "23.8%",
        "rank correlation, latest turns": "0.912",
        "labels that flip, with Wilson's interval": "15.0% (5.2% to 36.0%)",
        "become low": "1",
        "become fair": "2",
        "become good": "0",
        "CPU per compared turn": "20.0 ms",
    }
    assert "quality:2 compared with quality:1" in page.read_text()


def test_a_service_without_a_shadow_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(httpx, "get", lambda url, **_: httpx.Response(200, text="", request=httpx.Request("GET", url)))
    told = CliRunner().invoke(app, ["shadow", "--metrics", "http://service:3000"])
    assert (told.exit_code, "TURNSCORE_SHADOW names no version" in told.output) == (1, True)


def test_the_series_that_are_read_are_the_services():
    own = {name for family in metrics.registry().collect() for name in (family.name, *(s.name for s in family.samples))}
    read = {each.removesuffix("_total").removesuffix("_bucket") for each in (*TOTALS, CORRELATION)}
    assert read <= own
