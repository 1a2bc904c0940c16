"""What `make shadow` says was kept, of runs that are made up; and the counts that it reads."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from turnscore_load import service_metrics
from turnscore_load.answers import Answer
from turnscore_load.calls import CallRecord, Stage
from turnscore_load.shadow.report import checks, report
from turnscore_load.shadow.run import Counts, Round, ShadowRun, ShadowSettings, read_counts
from turnscore_load.target import Target


def stage(took_ms: float, failed: int = 0) -> Stage:
    outcomes = ["answered"] * (100 - failed) + ["failed"] * failed
    calls = [
        CallRecord(due_at=number, sent_at=number, done_at=number + took_ms / 1000, answer=Answer(outcome=outcome))
        for number, outcome in enumerate(outcomes)
    ]
    return Stage(calls, 0.0, 10.0)


def rounds(*p99s: float, compared: float = 0.0, failed: int = 0) -> list[Round]:
    counts = Counts(compared=compared, cpu_seconds=compared / 100)
    return [Round(stage=stage(each, failed), cpu_seconds=1.0, counts=counts) for each in p99s]


HONEST = ShadowRun(
    settings=ShadowSettings(rounds=3),
    per_second=10.0,
    plain=rounds(10, 12, 11),
    shadowed=rounds(11, 12, 30, compared=9),
    overload=stage(500),
    overloaded=Counts(dropped=40),
)


def unkept(run: ShadowRun) -> list[str]:
    return [each.claim for each in checks(run) if not each.is_kept]


def test_an_honest_run_keeps_everything():
    assert unkept(HONEST) == []
    assert "| shadow, 10% | 12.0 ms |" in report(HONEST, checks(HONEST))
    assert "27 turns, 10.0 ms of CPU each" in report(HONEST, checks(HONEST))


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"shadowed": rounds(13, 12.5, 11, compared=9)}, "callers' p99"),
        ({"shadowed": rounds(10, 10, 10, compared=9, failed=1)}, "every caller is answered"),
        ({"plain": rounds(10, 12, 11, failed=1)}, "every caller is answered"),
        ({"shadowed": rounds(10, 10, 10, compared=4)}, "the shadow compares"),
        ({"overloaded": Counts(compared=1, dropped=40)}, "under an overload"),
        ({"overloaded": Counts()}, "under an overload"),
    ],
)
def test_each_promise_is_refused_by_what_breaks_it(changed: dict[str, Any], claim: str):
    [broken] = unkept(replace(HONEST, **changed))
    assert broken.startswith(claim)


def test_the_services_counts_are_read_from_its_metrics(monkeypatch: pytest.MonkeyPatch):
    text = "# TYPE turnscore_shadow_turns counter\n" + "".join(
        f'turnscore_shadow_turns_total{{outcome="{outcome}"}} {count}\n'
        for outcome, count in (("compared", 5), ("failed", 1), ("full", 2), ("late", 3))
    )
    text += "# TYPE turnscore_shadow_cpu_seconds counter\nturnscore_shadow_cpu_seconds_total 0.5\n"
    monkeypatch.setattr(service_metrics, "urlopen", lambda *_, **__: BytesIO(text.encode()))
    found = read_counts(Target(port=1, models=(), grpc_port=2))
    assert found == Counts(compared=5, failed=1, dropped=5, cpu_seconds=0.5)
    assert found.since(Counts(compared=2)) == Counts(compared=3, failed=1, dropped=5, cpu_seconds=0.5)
