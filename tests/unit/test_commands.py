"""The command `turnscore`: its sub-commands as they are installed, what its help imports, and what is missing."""

import subprocess
import sys
from importlib.metadata import entry_points, version

from turnscore_client._command import registry
from turnscore_client._command.registry import FOLDERS, GROUP, KNOWN, app
from typer.testing import CliRunner

COMMANDS = sorted(entry_points(group=GROUP), key=lambda each: each.name)


def test_there_is_one_program_of_ours_and_it_is_the_clients():
    """The service's distribution names it too, so that `uvx turnscore` finds it."""
    scripts = [each for each in entry_points(group="console_scripts") if each.value.startswith("turnscore")]
    assert {(each.name, each.value) for each in scripts} == {("turnscore", "turnscore_client._command:main")}
    assert {each.dist.name for each in scripts if each.dist} == {"turnscore-client", "turnscore"}


def test_every_known_command_is_registered_by_the_distribution_that_is_said_to_have_it():
    registered = {each.name: each.dist.name for each in COMMANDS if each.dist}
    assert registered == {name: distribution for name, (distribution, _) in KNOWN.items()}
    assert set(registered.values()) == set(FOLDERS)


def test_the_version_is_that_of_every_distribution():
    done = CliRunner().invoke(app, ["--version"])
    assert done.output.splitlines() == [f"{name} {version(name)}" for name in FOLDERS]


def test_help_names_every_command_and_imports_none_of_them():
    heavy = ("numpy", "scipy", "torch", "bentoml", "onnxruntime", "pyarrow", "turnscore_models")
    program = f"""
import sys
from turnscore_client._command.registry import app
try:
    app(["--help"])
finally:
    sys.stderr.write(" ".join(set(sys.modules) & {set(heavy)!r}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [name for name in KNOWN if f" {name} " not in done.stdout] == []


def test_a_command_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setattr(registry, "entry_points", lambda group: [each for each in COMMANDS if each.name != "train"])
    done = CliRunner().invoke(app, ["train", "quality", "--help"])
    assert (done.exit_code, done.stderr) == (
        2,
        "turnscore: `train` is a command of turnscore-exporters, which is not installed (in a checkout: "
        "pip install ./exporters)\n",
    )
    assert "Commands of turnscore-exporters, which is not installed" in CliRunner().invoke(app, ["--help"]).output


def test_an_unknown_command_is_refused_with_one_that_is_meant():
    done = CliRunner().invoke(app, ["trian"])
    assert (done.exit_code, "'train'" in done.stderr) == (2, True)
