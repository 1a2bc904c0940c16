import re

import pytest
from turnscore_core.errors import UnauthenticatedError
from turnscore_service.auth.access import Access, read_keys
from turnscore_service.auth.cli import app
from turnscore_service.settings.api import AuthSettings
from typer.testing import CliRunner


def test_a_new_key_is_let_in_by_the_entry_written_for_it(tmp_path):
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


def keys(*arguments, file, expect=0):
    done = CliRunner().invoke(app, [*arguments, "--file", str(file)])
    assert done.exit_code == expect, done.output
    return done


def in_one_line(done):
    return " ".join(done.output.replace("│", " ").split())


def admitted(file, *given):
    """The name by which each key is let in; None for one that is not."""
    access = Access(AuthSettings(keys_file=file))
    names = []
    for key in given:
        try:
            names.append(access.admit(key).key_name)
        except UnauthenticatedError:
            names.append(None)
    return names


WRITTEN = f"""# keys of the teams
["lab.2"]
sha256 = "{"2" * 64}"

# ask Ann before you touch this
[lab]  # in room 7
sha256 = '{"0" * 64}'  # since May
turns_per_second = 2.5  # agreed
[lab.thresholds]
quality = 0.3

# the last one
[other]
sha256 = "{"1" * 64}"
"""


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text(WRITTEN)
    file.chmod(0o640)
    return file


def test_a_rotation_lets_both_keys_in_until_one_is_revoked_and_keeps_the_rest_of_the_file(file, tmp_path):
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    first = keys("rotate", "lab", file=link).stdout.strip()
    keys("rotate", "lab", file=file, expect=2)
    keys("revoke", "00000000", file=file)
    second = keys("rotate", "lab", file=file).stdout.strip()
    assert admitted(file, first, second) == ["lab", "lab"]
    entry = read_keys(file)["lab"]
    assert (entry.turns_per_second, entry.thresholds) == (2.5, {"quality": 0.3})
    newest = entry.sha256[:8]
    keys("revoke", newest, file=file)
    assert admitted(file, first, second) == ["lab", None]
    assert re.sub(r'sha256 = "[0-9a-f]{64}"  # since May', f"sha256 = '{'0' * 64}'  # since May", file.read_text()) == (
        WRITTEN
    )
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["keys.toml", "link.toml"]


def test_a_revoked_name_is_gone_with_its_tables_and_comments_of_others_stay(file):
    keys("revoke", "lab", file=file)
    text = file.read_text()
    assert sorted(read_keys(file)) == ["lab.2", "other"]
    assert "since May" not in text
    assert "# keys of the teams" in text
    assert "# the last one" in text
    keys("revoke", "11111111", file=file)
    assert sorted(read_keys(file)) == ["lab.2"]
    told = keys("revoke", "lab", file=file, expect=2)
    assert "has no key lab; it has: lab.2" in in_one_line(told)
    keys("revoke", "lab.2", file=file)
    assert admitted(file, "anything") == [None]


def test_a_list_has_names_and_ids_and_no_hash(file):
    made = keys("rotate", "lab", file=file).stdout.strip()
    listed = keys("list", file=file).stdout
    assert re.search(r"^lab +[0-9a-f]{8} \(before: 00000000\)  turns_per_second=2.5  thresholds=", listed, re.MULTILINE)
    assert made not in listed
    assert not re.search("[0-9a-f]{9}", listed)


@pytest.mark.parametrize(
    "text",
    [f'lab = {{ sha256 = "{"0" * 64}" }}\n', f'lab.sha256 = "{"0" * 64}"\n', f'[lab]\n"sha256" = "{"0" * 64}"\n'],
)
def test_what_is_laid_out_otherwise_is_refused_and_left_alone(text, tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text(text)
    for command in ("rotate",) if text.startswith("[") else ("rotate", "revoke"):
        assert "edit it by hand" in in_one_line(keys(command, "lab", file=file, expect=2))
    assert file.read_text() == text


def test_the_file_of_the_settings_is_the_one_that_is_edited(tmp_path):
    variables = {"TURNSCORE_AUTH__KEYS_FILE": str(tmp_path / "keys.toml")}
    assert CliRunner().invoke(app, ["new", "bot"], env=variables).exit_code == 0
    listed = CliRunner().invoke(app, ["list"], env=variables)
    assert (listed.exit_code, listed.stdout.split()[0]) == (0, "bot")


UNREADABLE = [
    (["two words"], None),
    (["a", "--turns-per-second", "0"], None),
    (["other"], WRITTEN),  # the name is taken
    (["b"], "[a\n"),  # the service could not read it
]


@pytest.mark.parametrize(("arguments", "before"), UNREADABLE)
def test_what_the_service_would_not_read_is_not_made(arguments, before, tmp_path):
    file = tmp_path / "keys.toml"
    if before is not None:
        file.write_text(before)
    assert "ts_" not in keys("new", *arguments, file=file, expect=2).stdout
    assert (file.read_text() if file.exists() else None) == before


def test_a_folder_that_takes_no_file_is_said_and_nothing_is_printed_as_a_key(tmp_path):
    assert "ts_" not in keys("new", "a", file=tmp_path / "nowhere" / "keys.toml", expect=2).stdout
