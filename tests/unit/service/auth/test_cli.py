from pathlib import Path

import pytest
from turnscore_service.auth.access import Access
from turnscore_service.auth.cli import app
from turnscore_service.settings.api import AuthSettings
from typer.testing import CliRunner


def test_a_new_key_is_let_in_by_the_entry_written_for_it(tmp_path: Path):
    file = tmp_path / "keys.toml"
    runner = CliRunner()
    keys = [
        runner.invoke(app, ["new", name, "--file", str(file), *options]).stdout.strip()
        for name, options in (("chatbot", ()), ("lab.2", ("--turns-per-second", "2.5")))
    ]
    access = Access(AuthSettings(keys_file=file))
    callers = [access.admit(key) for key in keys]
    assert [caller.key_name for caller in callers] == ["chatbot", "lab.2"]
    assert callers[0].budget is None
    assert callers[1].budget is not None
    assert not any(key in file.read_text() for key in keys)


@pytest.mark.parametrize("arguments", [["two words"], ["a", "--turns-per-second", "0"]])
def test_what_the_service_would_not_read_is_not_made(arguments: list[str], tmp_path: Path):
    file = tmp_path / "keys.toml"
    done = CliRunner().invoke(app, ["new", *arguments, "--file", str(file)])
    assert done.exit_code == 2
    assert not file.exists()


def test_a_name_that_the_file_has_already_is_refused(tmp_path: Path):
    file = tmp_path / "keys.toml"
    CliRunner().invoke(app, ["new", "a", "--file", str(file)])
    done = CliRunner().invoke(app, ["new", "a", "--file", str(file)])
    assert done.exit_code == 2
    Access(AuthSettings(keys_file=file))


def test_a_file_that_the_service_could_not_read_is_left_alone(tmp_path: Path):
    file = tmp_path / "keys.toml"
    file.write_text("[a\n")
    done = CliRunner().invoke(app, ["new", "b", "--file", str(file)])
    assert done.exit_code == 2
    assert file.read_text() == "[a\n"
