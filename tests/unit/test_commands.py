"""The commands of all distributions, as they are installed."""

import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

COMMANDS = sorted(
    (each for each in entry_points(group="console_scripts") if each.value.startswith("turnscore")),
    key=lambda each: each.name,
)


def test_there_are_commands_of_every_distribution():
    assert {each.name for each in COMMANDS} >= {
        "turnscore",
        "turnscore-models",
        "turnscore-export",
        "turnscore-assess",
    }


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_every_command_says_its_version(
    command: EntryPoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert command.dist is not None
    monkeypatch.setattr(sys, "argv", [command.name, "--version"])
    with pytest.raises(SystemExit) as ended:
        command.load()()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"{command.dist.name} {command.dist.version}\n")
