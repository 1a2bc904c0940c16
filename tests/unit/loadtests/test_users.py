"""Runs of Locust's users: mix and shape, and budgets each of which can be broken, alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from turnscore_load.users.budgets import (
    BUDGETS,
    DEFAULT_MIX,
    MAX_SECONDS,
    MAX_USERS,
    SHAPES,
    Budget,
    LoadShape,
    Measured,
    broken_budgets,
    measure,
    read_budgets,
    read_mix,
    report,
    statistics_name,
)  # fmt: skip

BUDGET = Budget(
    p50_ms=10, p95_ms=20, p99_ms=30, max_failed_share=0.01, max_refused_share=0.02, max_expired_share=0.03,
    min_answered_per_second=9,
)  # fmt: skip
KEPT = Measured(kind="flood", seconds=10, answered=94, failed=1, refused=2, expired=3, p50_ms=10, p95_ms=20, p99_ms=30)


def test_a_run_exactly_within_its_budget_breaks_nothing():
    assert BUDGET.broken_by(KEPT) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"p50_ms": 11}, "p50"),
        ({"p95_ms": 21}, "p95"),
        ({"p99_ms": 31}, "p99"),
        ({"failed": 2, "refused": 1}, "failed"),
        ({"refused": 3, "expired": 2}, "refused"),
        ({"expired": 4, "refused": 1}, "expired"),
        ({"seconds": 11}, "per second"),
        ({"answered": 0}, "not one"),
    ],
)
def test_each_budget_is_broken_alone(change: Mapping[str, int], word: str):
    [sentence] = BUDGET.broken_by(replace(KEPT, **change))
    assert word in sentence
    assert sentence.startswith("flood: ")


def test_a_kind_without_a_budget_is_told():
    [sentence] = broken_budgets({"steady": {"batch": BUDGET}}, "steady", [KEPT])
    assert sentence == "flood: there is no budget for it in steady"


@pytest.mark.parametrize(
    "text",
    [
        "[wave.flood]\np50_ms = 1",
        "[steady.flood]\np50_ms = 1",
        "[steady.flood]\np50_ms = 1\np95_ms = 1\np99_ms = 1\nmax_failed_share = 2\nmax_refused_share = 0\n"
        "max_expired_share = 0\nmin_answered_per_second = 1",
    ],
)
def test_a_wrong_budget_is_refused(tmp_path: Path, text: str):
    (tmp_path / "budgets.toml").write_text(text)
    with pytest.raises(ValidationError):
        read_budgets(tmp_path / "budgets.toml")


def test_every_shape_has_a_budget_for_every_kind_of_user():
    budgets = read_budgets(BUDGETS)
    assert set(budgets) == set(SHAPES)
    assert all(set(kinds) == {"conversation", "flood", "batch", "grpc", "stream"} for kinds in budgets.values())


@dataclass
class Entry:
    """What Locust's StatsEntry offers."""

    name: str
    num_requests: int
    times: dict[float, int] = field(default_factory=dict)

    def get_response_time_percentile(self, percent: float) -> int:
        return self.times[percent]


def test_refusals_and_failures_stand_beside_the_answers():
    entries = [
        Entry(statistics_name("flood", "answered"), 7, {0.5: 1, 0.95: 2, 0.99: 3}),
        Entry(statistics_name("flood", "refused"), 5),
        Entry(statistics_name("flood", "expired"), 4),
        Entry(statistics_name("flood", "failed"), 2),
        Entry(statistics_name("batch", "refused"), 1),
    ]
    flood, batch, conversation = measure(entries, ["flood", "batch", "conversation"], seconds=2)
    assert flood == Measured(
        kind="flood", seconds=2, answered=7, refused=5, expired=4, failed=2, p50_ms=1, p95_ms=2, p99_ms=3
    )
    assert flood.answered_per_second == 3.5
    assert (batch.answered, batch.refused, conversation.calls) == (0, 1, 0)


def test_the_table_shows_each_kind_and_what_was_broken():
    text = report([KEPT, Measured(kind="batch", seconds=10)], ["batch: not one call was answered"])
    assert "| flood | 94 | 2 | 3 | 1 | 9.40 | 10 | 20 | 30 |" in text
    assert "| batch | 0 | 0 | 0 | 0 | 0.00 | - | - | - |" in text
    assert "BROKEN batch: not one call was answered" in text
    assert "BROKEN" not in report([KEPT], [])


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_from_one_user_to_all_of_them_and_ends_in_time(name):
    shape = LoadShape(name, users=20, seconds=100)
    users = [shape.users_at(second / 10) for second in range(1000)]
    assert min(users) >= 1
    assert max(users) == 20
    assert shape.users_at(100) is None


def test_steady_has_all_users_all_the_time():
    assert {LoadShape("steady", 20, 100).users_at(second) for second in range(100)} == {20}


def test_ramp_goes_up_in_equal_steps():
    users = [LoadShape("ramp", 40, 100).users_at(second) for second in range(100)]
    assert sorted(users) == users
    assert sorted(set(users)) == list(range(2, 41, 2))
    assert all(users.count(each) == 5 for each in set(users))


def test_spike_has_a_fifth_of_the_users_but_for_the_middle_third():
    users = [LoadShape("spike", 20, 90).users_at(second) for second in range(90)]
    assert users == [4] * 30 + [20] * 30 + [4] * 30


def test_soak_keeps_all_users_after_a_short_rise():
    users = [LoadShape("soak", 20, 1000).users_at(second) for second in range(1000)]
    assert users[0] == 1
    assert set(users[50:]) == {20}


@pytest.mark.parametrize(
    ("name", "users", "seconds"),
    [
        ("steady", 0, 10),
        ("steady", MAX_USERS + 1, 10),
        ("steady", 1, 0),
        ("steady", 1, MAX_SECONDS + 1),
        ("wave", 1, 1),
    ],
)
def test_a_shape_beyond_the_bounds_is_refused(name, users: int, seconds: float):
    with pytest.raises(ValueError, match="must be"):
        LoadShape(name, users, seconds)


KINDS = ("conversation", "flood", "batch")


def test_a_mix_names_users_of_each_kind():
    assert read_mix("conversation=24, flood=1,batch=0", KINDS) == {"conversation": 24, "flood": 1}
    assert set(read_mix(DEFAULT_MIX, KINDS)) == set(KINDS)


@pytest.mark.parametrize("text", ["", "flood", "flood=", "flood=-1", "flood=1,flood=2", "crowd=1", "flood=0"])
def test_a_mix_that_makes_no_sense_is_refused(text: str):
    with pytest.raises(ValueError, match="mix"):
        read_mix(text, KINDS)
