"""The client for threads is what its twin for asyncio gives, and nothing else passes."""

import shutil

import pytest
import sync_twins


@pytest.fixture
def package(tmp_path):
    for folder in ("_async", "_sync"):
        shutil.copytree(sync_twins.PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyc"))
    return tmp_path


def test_the_committed_files_are_what_the_twins_give(capsys):
    assert sync_twins.main(["--check"]) == 0, capsys.readouterr().out


def test_a_change_by_hand_is_refused_and_undone(package, capsys):
    changed = package / "_sync" / "calls.py"
    before = changed.read_text()
    changed.write_text(before.replace("if delay is None", "if not delay"))
    (package / "_sync" / "client.py").unlink()
    (package / "_sync" / "stray.py").write_text("STRAY = 1\n")
    assert sync_twins.main(["--check"], package) == 1
    told = capsys.readouterr().out
    assert "-                if not delay:" in told
    assert "+class TurnScoreClient(Calls):" in told
    assert "-STRAY = 1" in told
    assert sync_twins.main([], package) == 0
    assert changed.read_text() == before
    assert sync_twins.main(["--check"], package) == 0


@pytest.mark.parametrize("line", ["asyncio.create_task", "# in its event loop", "x = is_async", "anyio.aio"])
def test_a_line_without_a_twin_is_refused_and_nothing_is_written(package, line, capsys):
    before = (package / "_sync" / "calls.py").read_text()
    source = package / "_async" / "calls.py"
    source.write_text(f"{source.read_text()}\n\n{line}\n")
    assert sync_twins.main([], package) == 1
    assert "what becomes of" in capsys.readouterr().out
    assert (package / "_sync" / "calls.py").read_text() == before
