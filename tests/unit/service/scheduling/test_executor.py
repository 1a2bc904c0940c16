"""Executors that hang are replaced."""

import asyncio
import threading
import time

import pytest
from support.conditions import until
from turnscore_core.errors import FailedScoringError, NotReadyError
from turnscore_service import metrics
from turnscore_service.lifecycle.health import Health
from turnscore_service.scheduling.executor import ExecutorWatch, SupervisedExecutor


class Hang:
    """Work that hangs until it is let go."""

    def __init__(self):
        self.gate = threading.Event()
        self.calls = 0

    def __call__(self):
        self.calls += 1
        assert self.gate.wait(60)
        return "done"


@pytest.fixture
def hang():
    hang = Hang()
    yield hang
    hang.gate.set()


def ready_health():
    health = Health()
    health.become("ready")
    return health


async def test_an_exit_in_a_thread_is_an_error_of_that_work_alone():
    def leave():
        raise SystemExit(3)

    stage = SupervisedExecutor("s", 1, lambda: None)
    with pytest.raises(RuntimeError, match="SystemExit"):
        await stage.run(leave)
    assert await stage.run(str, 1) == "1"
    stage.close()


async def test_work_that_hangs_fails_and_is_counted_and_what_waits_behind_it_is_done(hang):
    stage = SupervisedExecutor("counted", 1, lambda: None, ExecutorWatch(stall_seconds=0.05))
    name, labels = "turnscore_stage_deaths_total", {"stage": "counted"}
    assert metrics.REGISTRY.get_sample_value(name, labels) == 0  # without it Prometheus' increase() misses the first
    hung, waiting = stage.run(hang), stage.run(str, 1)
    with pytest.raises(FailedScoringError, match="counted stopped answering"):
        await hung
    assert await waiting == "1"
    assert metrics.REGISTRY.get_sample_value(name, labels) == 1
    stage.close()


async def test_a_dead_stage_is_not_ready_until_its_proof_has_run(hang):
    health = ready_health()
    stage = SupervisedExecutor(
        "s", 1, hang, ExecutorWatch(stall_seconds=0.05, on_death=health.lose, on_revival=health.regain)
    )
    hung = stage.run(hang)
    await until(lambda: not health.is_ready)
    assert "s" in health.not_ready().message
    await until(lambda: hang.calls == 2)
    assert not health.is_ready
    hang.gate.set()
    await until(lambda: health.is_ready)
    assert isinstance(hung.exception(), FailedScoringError)
    stage.close()


async def test_a_thread_that_works_is_not_hurt_by_one_that_hangs(hang):
    other = Hang()
    stage = SupervisedExecutor(
        "s", 2, lambda: None, ExecutorWatch(stall_seconds=1.0, on_death=lambda _: other.gate.set())
    )
    hung = stage.run(hang)
    await asyncio.sleep(0.75)  # the other's work begins later: were it not so, the test would only prove less
    working = stage.run(other)
    with pytest.raises(FailedScoringError):
        await hung
    assert await working == "done"
    stage.close()


async def test_a_stage_that_keeps_dying_is_given_up(hang):
    given_up = []
    stage = SupervisedExecutor("s", 1, hang, ExecutorWatch(stall_seconds=0.02, on_unrecoverable=given_up.append))
    with pytest.raises(FailedScoringError):
        await stage.run(hang)
    await until(lambda: given_up)
    assert given_up == ["s"]
    with pytest.raises(NotReadyError):
        await stage.run(str, 1)


async def test_a_process_that_stood_still_has_no_hung_work(hang):
    """As under SIGSTOP: the clock goes on, and neither the work nor the loop that looks after it does."""
    deaths = []
    stage = SupervisedExecutor("s", 1, lambda: None, ExecutorWatch(stall_seconds=1.0, on_death=deaths.append))
    work = stage.run(hang)
    await until(lambda: hang.calls)
    time.sleep(1.5)
    looks = asyncio.get_running_loop().time() + 0.05  # the late look has come, the next has not
    await until(lambda: asyncio.get_running_loop().time() >= looks)
    hang.gate.set()
    assert await work == "done"
    assert deaths == []
    stage.close()
