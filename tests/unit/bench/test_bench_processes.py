import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.conditions import wait_until
from turnscore_bench.harness.machine import describe
from turnscore_bench.harness.processes import Server, StartError, run_quietly
from turnscore_load.address import free_port

SERVE = """
import http.server, subprocess, sys
{first}
handler = http.server.SimpleHTTPRequestHandler
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
"""


@contextmanager
def started(folder: Path, first: str, program: str = sys.executable) -> Iterator[Server]:
    port = free_port()
    server = Server([program, "-c", SERVE.format(first=first), str(port)], folder, {}, port)
    try:
        server.wait_until_ready("/")
        yield server
    finally:
        server.stop()


def burn(seconds: float) -> str:
    """The arguments of a process that uses that much CPU."""
    code = f"import time\nwhile time.process_time() < {seconds}: pass"
    return f"[sys.executable, '-c', {code!r}]"


def test_a_program_is_found_from_where_the_benchmark_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = Path(sys.executable)
    monkeypatch.chdir(python.parent.parent)
    with started(tmp_path, "", f"{python.parent.name}/{python.name}") as server:
        assert psutil.Process(server.pid).cwd() == str(tmp_path)


def test_cpu_seconds_hold_children_that_have_ended(tmp_path: Path) -> None:
    with started(tmp_path, f"subprocess.run({burn(0.3)})") as server:
        assert server.cpu_seconds() >= 0.3


def test_cpu_seconds_hold_children_that_live_and_pausing_stops_them(tmp_path: Path) -> None:
    with started(tmp_path, f"subprocess.Popen({burn(600)})") as server:
        [child] = psutil.Process(server.pid).children()
        assert server.cpu_seconds() >= sum(child.cpu_times()[:2])
        server.pause()
        wait_until(lambda: child.status() == psutil.STATUS_STOPPED)
        server.resume()
        wait_until(lambda: child.status() != psutil.STATUS_STOPPED)
    assert not child.is_running()


def test_a_server_that_ends_at_once_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = Server([sys.executable, "-c", "raise SystemExit('no model here')"], tmp_path, {}, free_port())
    with pytest.raises(StartError, match="no model here"):
        server.wait_until_ready("/")
    server.stop()


def test_settings_of_the_caller_do_not_reach_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNSCORE_WORKERS", "7")
    code = "import os; raise SystemExit(sorted(name for name in os.environ if name.startswith('TURNSCORE_')))"
    server = Server([sys.executable, "-c", code], tmp_path, {"TURNSCORE_MODELS": "x"}, free_port())
    with pytest.raises(StartError, match=r"\['TURNSCORE_MODELS'\]"):
        server.wait_until_ready("/")


def test_a_command_that_fails_is_told_with_what_it_wrote() -> None:
    with pytest.raises(StartError, match="not today"):
        run_quietly([sys.executable, "-c", "raise SystemExit('not today')"])


def test_the_machine_is_told_with_the_features_that_int8_lives_on(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: AMD EPYC 9R14\nflags\t\t: fpu avx512_vnni\n")
    assert describe(2, cpuinfo) == "2 cores of AMD EPYC 9R14 (AVX-512 VNNI)"
    assert describe(4, tmp_path / "none") == "4 cores of an unknown CPU"
