"""SIGHUP: a reload, but where the terminal was closed; in a supervisor it goes to the workers that take it."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from support.conditions import until
from turnscore_service.lifecycle import signals
from turnscore_service.lifecycle.signals import hang_up_children, pass_hangup_on, reload_on_hangup


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup children would ignore it too, and could not trap it
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize("has_terminal", [True, False])
async def test_a_hangup_reloads(has_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_has_terminal", lambda: has_terminal)
    reloads: list[None] = []

    async def reload() -> None:
        reloads.append(None)

    reload_on_hangup(reload)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: len(reloads) == 1)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


@pytest.mark.parametrize("is_ignored", [False, True])
async def test_a_closed_terminal_ends_the_process_unless_it_was_told_to_ignore_that(
    is_ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    async def reload() -> None:
        happened.append("reloaded")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, happened.append, "ended")
    if is_ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    monkeypatch.setattr(signals, "_has_terminal", lambda: True)
    reload_on_hangup(reload)
    monkeypatch.setattr(signals, "_has_terminal", lambda: False)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: happened)
    assert happened == ["reloaded" if is_ignored else "ended"]
    for each in (signal.SIGHUP, signal.SIGTERM):
        loop.remove_signal_handler(each)


def test_a_supervisor_passes_it_to_the_children_that_take_it_and_spares_the_others() -> None:
    taking = 'trap "exit 7" HUP; echo ready; while :; do sleep 0.05; done'
    with (
        subprocess.Popen(["sh", "-c", taking], stdout=subprocess.PIPE) as takes,
        subprocess.Popen(["sleep", "300"]) as does_not,
    ):
        assert takes.stdout is not None
        takes.stdout.readline()
        hang_up_children()
        assert takes.wait(60) == 7
        assert does_not.poll() is None
        does_not.kill()


def test_bentos_supervisor_does_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from circus.sighandler import SysHandler

    monkeypatch.setattr(SysHandler, "handle_hup", SysHandler.handle_hup)
    passed: list[None] = []
    monkeypatch.setattr(signals, "hang_up_children", lambda: passed.append(None))
    pass_hangup_on()
    SysHandler.handle_hup(object())
    assert passed == [None]
