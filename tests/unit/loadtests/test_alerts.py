"""The scenario `observability`: its rules, the causes of alerts, and what it reports of a silent one."""

from pathlib import Path

from turnscore_load.alert_causes import FACTORS, LAST, OF_THE_BOT, ON_SERVICES, WITHIN_IT, alerts_of, shorten
from turnscore_load.scenarios.observability import AlertsRun, ShownAlert, check, report

RULES = (Path(__file__).parents[3] / "deploy" / "observability" / "rules" / "turnscore.yml").read_text()


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
    silent = check(outcomes("TurnscoreDrift"), RULES)
    assert (silent.found, silent.holds) == ("TurnscoreDrift", False)
    found = AlertsRun(shown=outcomes("TurnscoreDrift"), others={("TurnscoreAbsent", "")}, seconds=200)
    page = "\n".join(report(found, RULES))
    assert "| TurnscoreDrift | NONE | - | - | - | 1440 |" in page
    assert f"| TurnscoreAbsent | {LAST.what} | 3 s | {LAST.remedy} | 6 s | {FACTORS['turnscore-service']:g} |" in page
    assert "Other alerts that fired: TurnscoreAbsent (no job)." in page
