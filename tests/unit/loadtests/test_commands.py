"""The commands: their exit code is the verdict."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import run as commands
from support.overload_runs import calls, honest_run
from turnscore_load.address import port_of
from turnscore_load.calls import Stage
from turnscore_load.overload.run import OverloadRun, TooMuchError
from turnscore_load.sampling import ProcessesChangedError
from typer.testing import CliRunner, Result


def overload(monkeypatch: pytest.MonkeyPatch, folder: Path, outcome: OverloadRun | Exception) -> Result:
    """What `overload` does when its run has that outcome."""

    @contextmanager
    def found(port: int, bentoml: Path, log: Path, *_: object) -> Iterator[Mock]:
        yield Mock(url=f"http://127.0.0.1:{port}", port=port, models=("fed:1.0.0",), started=None)

    async def measured(*_: object) -> OverloadRun:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(commands.signal, "signal", Mock())
    monkeypatch.setattr(commands, "target", found)
    monkeypatch.setattr(commands, "run_overload", measured)
    return CliRunner().invoke(commands.app, ["overload", "--reports", str(folder)])


def test_an_honest_overload_ends_with_0_and_is_written_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    done = overload(monkeypatch, tmp_path, honest_run())
    assert done.exit_code == 0, done.output
    assert "| goodput within 10 % of the peak |" in (tmp_path / "overload.md").read_text()
    assert (tmp_path / "overload_samples.csv").exists()


def test_an_overload_with_a_broken_claim_ends_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    collapsed = replace(honest_run(), overload=Stage(calls(60, 60, 900), 0, 60))
    done = overload(monkeypatch, tmp_path, collapsed)
    assert done.exit_code == 1
    assert "| NO |" in done.output


@pytest.mark.parametrize("error", [TooMuchError("too many"), ProcessesChangedError("a process ended")])
def test_an_overload_that_cannot_be_judged_ends_with_1(monkeypatch, tmp_path: Path, error: Exception):
    assert overload(monkeypatch, tmp_path, error).exit_code == 1


def test_the_default_host_is_one_that_load_may_go_to():
    assert port_of(f"http://{commands.LOOPBACK}:3000") == 3000


@pytest.mark.parametrize(("shape", "host"), [("load", "example.org"), ("soak", "10.0.0.1"), ("overload", "localhost")])
def test_load_for_another_machine_is_refused(shape: str, host: str, tmp_path: Path):
    done = CliRunner().invoke(commands.app, [shape, "--host", host, "--reports", str(tmp_path)])
    assert done.exit_code != 0
    assert "load goes to http://127.0.0.1:PORT only" in done.output
