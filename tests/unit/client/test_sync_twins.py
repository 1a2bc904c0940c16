"""The client for threads is what its twin for asyncio gives, and nothing else passes."""

import pytest
import sync_twins


def test_the_committed_module_is_what_the_twin_gives(capsys):
    assert sync_twins.main(["--check"]) == 0, capsys.readouterr().out


def test_a_change_by_hand_is_refused_and_undone(tmp_path, monkeypatch, capsys):
    before = sync_twins.TARGET.read_text()
    changed = tmp_path / "_sync.py"
    changed.write_text(before.replace("if delay is None", "if not delay"))
    monkeypatch.setattr(sync_twins, "TARGET", changed)
    assert sync_twins.main(["--check"]) == 1
    assert "-                if not delay:" in capsys.readouterr().out
    assert sync_twins.main([]) == 0
    assert changed.read_text() == before


@pytest.mark.parametrize("line", ["asyncio.create_task", "# in its event loop", "x = is_async", "anyio.aio"])
def test_a_line_without_a_twin_is_refused_and_nothing_is_written(tmp_path, monkeypatch, line, capsys):
    source, target = tmp_path / "_async.py", tmp_path / "_sync.py"
    source.write_text(f"{sync_twins.SOURCE.read_text()}\n\n{line}\n")
    monkeypatch.setattr(sync_twins, "SOURCE", source)
    monkeypatch.setattr(sync_twins, "TARGET", target)
    assert sync_twins.main([]) == 1
    assert "what becomes of" in capsys.readouterr().out
    assert not target.exists()
