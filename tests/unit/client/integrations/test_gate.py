"""The gate: one chance more for a low reply, inside a budget; in doubt the first reply stands."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from turnscore_client.integrations import QualityGate
from turnscore_client.integrations import _gate as module
from turnscore_client.testing import MockTurnScore

ASKED = [{"role": "user", "content": "a secret question"}]
VALUES = {"bad": 0.2, "worse": 0.1, "good": 0.9}


@pytest.fixture
def mock() -> MockTurnScore:
    return MockTurnScore(scores=lambda request: {"quality": VALUES[request.response]})


def with_threads(gate: QualityGate, first: str, again: Callable[[Any], Any]) -> str:
    return gate.choose(ASKED, first, again, str)


def with_asyncio(gate: QualityGate, first: str, again: Callable[[Any], Any]) -> str:
    async def answer(score: Any) -> Any:
        return again(score)

    return asyncio.run(gate.achoose(ASKED, first, answer, str))


@pytest.fixture(params=[with_threads, with_asyncio])
def choose(request: pytest.FixtureRequest):
    return request.param


@pytest.mark.parametrize(
    ("first", "second", "chosen", "asked"),
    [
        ("good", "bad", "good", 0),
        ("bad", "good", "good", 1),
        ("bad", "worse", "bad", 1),  # the second is lower still
        ("bad", "bad", "bad", 1),
        ("bad", None, "bad", 1),
        ("bad", " ", "bad", 1),
    ],
)
def test_a_low_reply_gets_one_chance_more(choose, mock, first, second, chosen, asked):
    gate, scores = QualityGate(0.5, client=mock.client()), []
    assert choose(gate, first, lambda score: (scores.append(score.value), second)[1]) == chosen
    assert scores == [VALUES[first]] * asked
    assert gate.passed + gate.low == 1
    gate.close()


@pytest.mark.parametrize("code", ["overloaded", "internal", "unauthenticated"])
def test_a_service_that_refuses_lets_the_first_reply_pass(choose, mock, code, caplog):
    gate = QualityGate(0.5, client=mock.client(max_retries=0))
    mock.fail_next(code)
    assert choose(gate, "bad", lambda _: pytest.fail("nobody knows that it is low")) == "bad"
    assert gate.unknown == 1
    assert "secret" not in caplog.text
    gate.close()


def test_a_second_answer_that_fails_leaves_the_first(choose, mock, caplog):
    def explode(_: object) -> str:
        raise RuntimeError("a secret answer")

    gate = QualityGate(0.5, client=mock.client())
    assert choose(gate, "bad", explode) == "bad"
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text
    gate.close()


async def test_a_second_answer_that_comes_too_late_is_cancelled(mock):
    gate, is_cancelled = QualityGate(0.5, client=mock.client(), budget_seconds=0.3), False

    async def again(_: object) -> str:
        nonlocal is_cancelled
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        return "good"

    assert await gate.achoose(ASKED, "bad", again, str) == "bad"
    assert is_cancelled
    gate.close()


class HungClient:
    """Answers when the test is over; for threads, its caller bounds the time as a real client does."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.calls = 0

    def score(self, *, timeout_seconds: float, **_: object) -> None:
        self.calls += 1
        self.gate.wait(timeout_seconds)
        raise TimeoutError


def test_a_service_that_hangs_costs_the_budget_and_after_some_times_nothing(choose, monkeypatch):
    monkeypatch.setattr(module._defaults, "GATE_OPEN_SECONDS", 60.0)
    hung = HungClient()
    gate = QualityGate(0.5, client=hung, budget_seconds=0.1)
    for _ in range(3):
        assert choose(gate, "bad", lambda _: "good") == "bad"
    assert hung.calls == 3
    for _ in range(20):
        assert choose(gate, "bad", lambda _: "good") == "bad"
    assert hung.calls == 3
    assert gate.unknown == 23
    hung.gate.set()
    gate.close()


@pytest.mark.parametrize("given", [{"budget_seconds": 0}, {"budget_seconds": float("inf")}, {"url": "nowhere"}])
def test_options_without_sense_are_refused_at_the_start(given):
    with pytest.raises(ValueError, match=r"budget_seconds|url"):
        QualityGate(0.5, **given)
