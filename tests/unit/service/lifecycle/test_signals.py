"""Signals: SIGHUP reloads, SIGTERM drains before it stops; and the line with which a start ends."""

import asyncio
import os
import signal
import socket
import subprocess
import sys

import pytest
from support.conditions import until
from turnscore_service import metrics
from turnscore_service.lifecycle import signals
from turnscore_service.lifecycle.health import Health
from turnscore_service.lifecycle.process import is_last_ready, served_url
from turnscore_service.lifecycle.signals import drain_before_stopping, hang_up_children, reload_on_hangup


@pytest.fixture(autouse=True)
def _handlers():
    before = {each: signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup children would ignore it too, and could not trap it
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize("has_terminal", [True, False])
async def test_a_hangup_reloads(has_terminal, monkeypatch):
    monkeypatch.setattr(signals, "_has_terminal", lambda: has_terminal)
    reloads = []

    async def reload():
        reloads.append(None)

    reload_on_hangup(reload)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: len(reloads) == 1)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


def test_a_supervisor_passes_it_to_the_children_that_take_it_and_spares_the_others():
    taking = 'trap "exit 7" HUP; echo ready; while :; do sleep 0.05; done'
    with (
        subprocess.Popen(["sh", "-c", taking], stdout=subprocess.PIPE) as takes,
        subprocess.Popen(["sleep", "300"]) as does_not,
    ):
        takes.stdout.readline()
        hang_up_children()
        assert takes.wait(60) == 7
        assert does_not.poll() is None
        does_not.kill()


@pytest.fixture
def handed_on():
    """The signals that reach the handler which stood before."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


async def nothing():
    pass


async def test_sigterm_in_the_middle_of_a_metrics_write_drains_and_does_not_lock_up(handed_on):
    health = Health(state="ready")
    drain_before_stopping(lambda: health.become("draining"), nothing, drain_seconds=0, shutdown_seconds=60)
    try:
        with metrics.READY._value._lock:  # what a write to this gauge holds, and what draining needs
            signal.raise_signal(signal.SIGTERM)
        await until(lambda: handed_on == [signal.SIGTERM])
        assert health.state == "draining"
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


async def test_conversations_end_then_the_server_stops_then_it_waits_no_longer(handed_on):
    done = []

    async def end_conversations():
        done.append(list(handed_on))

    drain_before_stopping(lambda: done.append("drain"), end_conversations, drain_seconds=0.02, shutdown_seconds=0.02)
    try:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert handed_on == []
        await until(lambda: handed_on == [signal.SIGTERM, signal.SIGINT])
        assert done == ["drain", []]  # conversations end before the server stops
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


def test_one_worker_is_the_last_that_is_ready_whatever_restarts(tmp_path):
    told = [is_last_ready(worker, 3, tmp_path) for worker in (0, 0, 2, 1, 1, 0)]
    assert told == [False, False, False, True, False, False]


def test_each_worker_that_cannot_write_into_the_folder_says_that_it_is_ready(tmp_path):
    assert [is_last_ready(worker, 3, tmp_path / "missing") for worker in (0, 1)] == [True, True]


def test_the_address_is_that_of_the_settings_where_bentoml_gave_no_socket():
    assert served_url("127.0.0.1", 3000) == "http://127.0.0.1:3000"
    assert served_url("::1", 3000) == "http://[::1]:3000"


@pytest.mark.parametrize(("words", "scheme"), [([], "http"), (["--ssl-certfile", "cert.pem"], "https")])
def test_the_address_is_that_of_the_socket_that_bentoml_gave(words, scheme, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(sys, "argv", ["worker", "--fd", str(listener.fileno()), *words])
        assert served_url("0.0.0.0", 3000) == f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        assert listener.fileno() > 0  # still open
