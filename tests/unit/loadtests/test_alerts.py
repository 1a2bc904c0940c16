"""The scenario `observability`: its rules, the causes of alerts, and what it reports of a silent one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from turnscore_load.alert_causes import (
    FACTORS,
    LAST,
    OF_THE_BOT,
    ON_SERVICES,
    WITHIN_IT,
    SilentAlertError,
    UnknownGroupError,
    Watch,
    alerts_of,
    shorten,
)
from turnscore_load.scenarios.observability import ShownAlert, check, report

RULES = (Path(__file__).parents[3] / "deploy" / "observability" / "rules" / "turnscore.yml").read_text()
GROUP = """groups:
  - name: turnscore-service
    interval: 30s
    rules:
      - record: turnscore:slow_share:5m
        expr: |-
          1 - rate(quick[5m]) / rate(all[6h])
      - alert: TurnscoreSlow
        for: 10m
      - alert: TurnscoreAtOnce
        for: 0m
  - name: turnscore-values
    interval: 2m
    rules:
      - alert: TurnscoreLow
        expr: |-
          increase(low[7d]) > 0
        for: 30m
"""


def test_windows_waits_and_intervals_are_divided_by_their_group_s_factor_and_names_stay():
    assert shorten(GROUP, {"turnscore-service": 60, "turnscore-values": 1440}) == (
        GROUP.replace("interval: 30s", "interval: 500ms")
        .replace("[5m]", "[5000ms]")
        .replace("[6h]", "[360000ms]")
        .replace("for: 10m", "for: 10000ms")
        .replace("for: 0m", "for: 0ms")
        .replace("interval: 2m", "interval: 500ms")
        .replace("[7d]", "[420000ms]")
        .replace("for: 30m", "for: 1250ms")
    )


def test_a_group_without_a_factor_is_refused():
    with pytest.raises(UnknownGroupError, match="turnscore-values"):
        shorten(GROUP, {"turnscore-service": 60})


def test_every_shipped_alert_has_one_cause():
    """An alert without one fails the scenario: write its cause in loadtests/turnscore_load/alert_causes.py."""
    causes = [*(cause for each in ON_SERVICES for cause in each), OF_THE_BOT, *WITHIN_IT, LAST]
    assert sorted(alert for cause in causes for alert in cause.alerts) == sorted(alerts_of(RULES))
    shorten(RULES)  # every group has its factor


def outcomes(*missing: str) -> list[ShownAlert]:
    return [
        ShownAlert(alert=alert, cause=LAST, fired_seconds=3.4, cleared_seconds=5.6)
        for alert in alerts_of(RULES)
        if alert not in missing
    ]


def test_an_alert_that_was_not_shown_is_named():
    assert check(outcomes(), RULES).holds
    assert (check(outcomes("TurnscoreDrift"), RULES).found, check(outcomes("TurnscoreDrift"), RULES).holds) == (
        "TurnscoreDrift",
        False,
    )
    page = "\n".join(report(outcomes("TurnscoreDrift"), {("TurnscoreAbsent", "")}, 200, RULES))
    assert "| TurnscoreDrift | NONE | - | - | - | 1440 |" in page
    assert f"| TurnscoreAbsent | {LAST.what} | 3 s | {LAST.remedy} | 6 s | {FACTORS['turnscore-service']:g} |" in page
    assert "Other alerts that fired: TurnscoreAbsent (no job)." in page


def watch_of(firing: set[tuple[str, str]]) -> Watch:
    process: Any = None
    return Watch(process=process, baseline=Path("none"), firing=frozenset(firing))


async def test_what_fires_already_has_fired_and_what_does_not_in_time_is_named():
    watch = watch_of({("A", "bot"), ("B", "other")})
    assert (await watch.wait_for(frozenset({("A", "bot")}), fires=True, seconds=60)).keys() == {("A", "bot")}
    with pytest.raises(SilentAlertError, match="fired not in 0 s: B"):
        await watch.wait_for(frozenset({("A", "bot"), ("B", "bot")}), fires=True, seconds=0.01)
    with pytest.raises(SilentAlertError, match="cleared not in 0 s: A"):
        await watch.wait_for(frozenset({("A", "bot")}), fires=False, seconds=0.01)


async def test_a_change_is_heard_while_somebody_waits():
    watch = watch_of({("A", "bot")})
    waiting = asyncio.create_task(watch.wait_for(frozenset({("A", "bot")}), fires=False, seconds=60))
    await asyncio.sleep(0)  # it waits
    await watch.take(frozenset())
    assert (await waiting).keys() == {("A", "bot")}
