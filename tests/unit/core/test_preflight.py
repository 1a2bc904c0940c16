"""A version is checked in a process of its own: whatever becomes of that, the service goes on and says what became."""

import asyncio
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from support.bundles import LAYOUT, make_quality_bundle
from support.conditions import until, wait_until
from turnscore_core import preflight

REQUEST = preflight.PreflightRequest(folder=Path("nowhere"), lenders=[], options={}, variant="fp32")


def code(text):
    """A command that stands in for the proof."""
    return sys.executable, "-S", "-c", dedent(text)


def order_of(bundle):
    return preflight.PreflightRequest(folder=bundle.folder, lenders=[], options=bundle.manifest.options, variant="fp32")


@pytest.mark.usefixtures("_proof_of_ordinary_priority")
async def test_a_proof_returns_the_digest_of_what_holds_with_the_deployments_options(tmp_path):
    bundle = make_quality_bundle(tmp_path / "next")
    changed = preflight.with_options(bundle, {**bundle.manifest.options, "layout": {**LAYOUT, "response_tokens": 22}})
    assert await preflight.run_preflight("quality:0.0.1", order_of(changed)) == changed.digest
    assert changed.digest != bundle.digest


ENDS = [
    ("import os; os.kill(os.getpid(), 11)", r"the preflight of a:1 was ended by SIGSEGV: its graph crashes here"),
    ("import os; os.kill(os.getpid(), 9)", r"ended by SIGKILL, as the system does where memory is short"),
    ("raise ValueError('a scorer broke')", r"the preflight of a:1 failed: ValueError: a scorer broke; the log has all"),
    ("import os; os.write(2, b'a name \\xff'); os._exit(3)", r"the preflight of a:1 failed: a name \ufffd"),
    ("print('nothing of use')", r"the preflight of a:1 ended without a result"),
]


@pytest.mark.parametrize(("text", "reason"), ENDS)
async def test_a_proof_that_dies_is_a_refusal_that_says_so(text, reason):
    with pytest.raises(preflight.FailedPreflightError, match=reason):
        await preflight.run_preflight("a:1", REQUEST, command=code(text))


async def test_of_a_proof_that_prints_without_end_the_end_is_kept_alone():
    prints = f"""
        import os
        for _ in range(100):
            os.write(1, b"x" * {preflight.MOST_KEPT})
            os.write(2, b"a warning" * 1000)
        os.write(1, b'\\n{{"digest": "checked"}}\\n')
    """
    tracemalloc.start()
    try:
        assert await preflight.run_preflight("a:1", REQUEST, command=code(prints)) == "checked"
        assert tracemalloc.get_traced_memory()[1] < 20 * preflight.MOST_KEPT
    finally:
        tracemalloc.stop()


WAITS = """
    import os, pathlib, signal, sys
    pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()}\\n")
    signal.pause()
"""


def pid_in(file):
    """What the process has written, once it has."""
    text = file.read_text() if file.exists() else ""
    return int(text) if text.endswith("\n") else None


async def test_a_proof_without_end_is_ended_and_leaves_no_zombie():
    before = psutil.Process().children()
    with pytest.raises(
        preflight.FailedPreflightError, match=r"did not end within 0.5 s: its graph hangs, or this machine has no CPU"
    ):
        await preflight.run_preflight("a:1", REQUEST, seconds=0.5, command=code("import signal; signal.pause()"))
    assert psutil.Process().children() == before


async def test_whoever_gives_up_a_proof_ends_its_process_and_leaves_no_zombie(tmp_path):
    file = tmp_path / "pid"
    proving = asyncio.create_task(preflight.run_preflight("a:1", REQUEST, command=(*code(WAITS), str(file))))
    await until(lambda: pid_in(file))
    proving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await proving
    pid = pid_in(file)
    assert pid is not None
    await until(lambda: not psutil.pid_exists(pid))


async def test_a_proof_leaves_callers_the_cpu():
    waits_for_it = f"""
        import os, time
        while os.getpriority(os.PRIO_PROCESS, 0) < {preflight.PRIORITY}:
            time.sleep(0.001)
        print('{{"digest": "checked"}}')
    """
    assert await preflight.run_preflight("a:1", REQUEST, command=code(waits_for_it)) == "checked"


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is Linux's")
def test_a_proof_ends_with_a_service_that_is_killed(tmp_path):
    file = tmp_path / "pid"
    proves = f"""
        import os, pathlib, signal
        from turnscore_core.preflight import end_with_parent
        end_with_parent()
        pathlib.Path({str(file)!r}).write_text(f"{{os.getpid()}}\\n")
        signal.pause()
    """
    serves = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    service = subprocess.Popen([sys.executable, "-S", "-c", serves, dedent(proves)])
    try:
        wait_until(lambda: pid_in(file) or service.poll() is not None)
    finally:
        service.send_signal(signal.SIGKILL)
        service.wait()
    pid = pid_in(file)
    assert pid is not None
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
