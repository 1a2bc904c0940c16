"""What `make replicas` says was kept, of runs that are made up."""

import pytest
from turnscore_load.replicas.callers import Crowd, Heard
from turnscore_load.replicas.run import EVENTS, Outcome, checks, report


def outcomes(**failing: int) -> list[Outcome]:
    """A run of every event; `failing` is how many failed by event and caller, or how many values differ."""

    def heard(event: str, caller: str) -> Heard:
        return Heard(took_ms=[5.0] * 100, failures=["ReadError"] * failing.get(f"{event.split()[0]}_{caller}", 0))

    def outcome(event: str, name: str, proxy_retries: bool) -> Outcome:
        crowd = Crowd(url="", per_second=4.0, conversations=1)
        crowd.raw, crowd.client, crowd.talk = heard(name, "raw"), heard(name, "client"), heard(name, "talk")
        return Outcome(event=event, proxy_retries=proxy_retries, crowd=crowd, differing=failing.get("differing", 0))

    return [*(outcome(each, each, False) for each in EVENTS), outcome("kill -9 of one", "retried", True)]


def unkept(**failing: int) -> list[str]:
    return [each.claim for each in checks(outcomes(**failing)) if not each.is_kept]


def test_a_run_without_a_failure_keeps_everything():
    assert unkept() == []
    assert unkept(kill_raw=6) == []  # one that was in flight, and those until the proxy has noticed


@pytest.mark.parametrize(
    ("failing", "claim"),
    [
        ({"rolling_raw": 1}, "rolling restart: nothing fails"),
        ({"kill_raw": 7}, "kill -9: at the raw door at most those in flight"),
        ({"retried_raw": 1}, "a proxy that tries again: none"),
        ({"kill_talk": 1}, "through our client and in conversations nothing fails"),
        ({"Redis_client": 1}, "through our client and in conversations nothing fails"),
        ({"differing": 1}, "every value is that of one service alone"),
    ],
)
def test_each_promise_is_refused_by_what_breaks_it(failing: dict[str, int], claim: str):
    assert claim in unkept(**failing)


def test_the_report_names_what_failed():
    assert "| kill -9 of one | 2 of 102 (ReadError); 5 ms |" in report(outcomes(kill_raw=2), 90.0)
