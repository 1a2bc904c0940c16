"""`loadtests/run.py`: every scenario is found by its name, and the exit code is the verdict of its claims."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import run
from turnscore_load.results import Check
from turnscore_load.scenario import Scenario

ROOT = Path(__file__).parents[3]


@pytest.fixture
def outcome(monkeypatch, tmp_path):
    """The claims of a scenario of the name `latency` that is made up."""
    checks = []

    @dataclass(kw_only=True)
    class Latency(Scenario[int]):
        rounds: int = 1

        def measure(self):
            return self.rounds

        def report(self, found):
            yield f"{found} rounds"

        def checks(self, found):
            return checks

    module = ModuleType("turnscore_load.scenarios.latency")
    Latency.__module__, module.Latency = module.__name__, Latency
    monkeypatch.setattr(run, "import_module", lambda _: module)
    monkeypatch.setattr(run.signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    return checks


def test_every_scenario_is_listed_with_what_it_does(capsys):
    table = (ROOT / "docs" / "benchmarks.md").read_text().partition("| question |")[2].partition("\n\n")[0]
    named = " ".join(row.split("|")[1] for row in table.splitlines()[1:])
    assert set(run.scenarios()) == set(re.findall("`([a-z]+)`", named))
    assert all(len(sentence) > 20 for sentence in run.scenarios().values())
    assert run.main([]) == 0
    assert run.main(["wave"]) == 2
    assert "overload" in capsys.readouterr().out


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (None, 0), (False, 1)])
def test_the_exit_code_is_the_verdict_and_the_figures_are_kept(outcome, holds, code):
    outcome.append(Check("it holds", "so much", holds))
    words = ["latency", "--rounds", "3", "--machine=an abacus", "--results", "kept"]
    assert run.main(words) == code
    stored = json.loads(Path("kept/latency.json").read_text())
    assert (stored["machine"], stored["parts"]) == ("an abacus", ["3 rounds"])
    assert stored["command"].startswith("loadtests/run.py latency --rounds 3")
    assert "| it holds | so much |" in Path("build/load/latency.md").read_text()
