"""What `make switches` says was kept, of a run that is made up, and the versions that it makes."""

import json
from pathlib import Path

import pytest
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_load.switches.bundles import copy_as, damage, falsify
from turnscore_load.switches.report import checks, report
from turnscore_load.switches.run import Found, Period, SwitchesSettings
from turnscore_models import CorruptBundleError, MismatchedGraphError, read_bundle

MEMORY = {"before_bytes": 300 << 20, "between_bytes": 400 << 20, "after_bytes": 300 << 20}


def reports(outcome: str, count: int, model: str = "engagement:90.0.0") -> list[dict[str, object]]:
    memory = MEMORY if outcome == "switched" else None
    return [{"outcome": outcome, "models": {"engagement": model}, "seconds": 2.0, "memory": memory}] * count


def run() -> Found:
    found = Found(settings=SwitchesSettings(serve=Path(), folder=Path(), count=3), carries=100.0, per_second=40.0)
    found.quiet = Period(took_ms=[10.0] * 100, asked=100)
    found.switched = Period(took_ms=[19.0] * 100, asked=100, reports=reports("switched", 3))
    found.refused = Period(took_ms=[12.0] * 100, asked=100, reports=reports("refused", 3))
    found.resident = [300 << 20] * 8
    return found


def unkept(found: Found) -> list[str]:
    return [each.claim for each in checks(found) if not each.is_kept]


def test_a_run_in_which_nobody_noticed_keeps_everything():
    assert unkept(run()) == []
    assert "| alone | 0 | 100 | 0 | 10 ms | 10 ms | 10 ms |" in report(run())


def test_each_promise_is_refused_by_what_breaks_it():
    found = run()
    found.switched.reports[0] = reports("refused", 1)[0]
    found.refused.reports = reports("switched", 3, "engagement:90.1.1")
    found.switched.failures = ["status 503"]
    found.switched.took_ms += [21.0] * 2
    found.refused.took_ms += [21.0] * 2
    found.resident[-2:] = [360 << 20] * 2
    assert unkept(found) == [each.claim for each in checks(found)]
    assert "1, status 503" in report(found)


def test_the_versions_that_must_be_refused_are_and_the_others_are_not(tmp_path: Path):
    good = copy_as("90.0.1", tmp_path / "good")
    assert read_bundle(good).manifest.reference == "engagement:90.0.1"
    with pytest.raises(CorruptBundleError):
        read_bundle(damage(copy_as("90.1.0", tmp_path / "damaged")))
    falsified = read_bundle(falsify(copy_as("90.1.1", tmp_path / "falsified")))
    with pytest.raises(MismatchedGraphError, match="self-test turn 0"):
        load_scorer(falsified, choose_variant(falsified))
    assert json.loads((good / "manifest.json").read_text())["version"] == "90.0.1"
