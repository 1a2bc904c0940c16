"""The gate: every budget can be broken, alone; what Locust counted is read right."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from turnscore_load.users.budgets import Budget, broken_budgets, read_budgets
from turnscore_load.users.locust_run import BUDGETS
from turnscore_load.users.report import Measured, measure, report, statistics_name
from turnscore_load.users.shapes import SHAPES

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
