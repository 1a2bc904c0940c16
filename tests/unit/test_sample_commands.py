"""The runner of the documented commands, with commands that only leave a file: what it keeps, and what it clears."""

from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support import sample_commands
from support.sample_commands import run_pages

PAGE, NEXT = "models/engagement.md", "models/sentiment_stop.md"


@pytest.fixture(autouse=True)
def _without_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_commands, "bring_files", lambda folder: None)


def test_a_training_that_was_interrupted_finds_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "CHECKPOINT" / "state"

    def begin(words: Sequence[str], folder: Path) -> CompletedProcess[str]:
        state.mkdir(parents=True)
        raise KeyboardInterrupt

    found: list[bool] = []

    def go_on(words: Sequence[str], folder: Path) -> CompletedProcess[str]:
        found.append(state.exists())
        return CompletedProcess(words, 0, "")

    monkeypatch.setattr(sample_commands, "run_command", begin)
    with pytest.raises(KeyboardInterrupt):
        run_pages(tmp_path, [PAGE])
    monkeypatch.setattr(sample_commands, "run_command", go_on)
    assert run_pages(tmp_path, [PAGE]) == 0
    assert found
    assert all(found)
    found.clear()
    assert run_pages(tmp_path, [PAGE, NEXT]) == 0
    assert found
    assert not any(found), "the next page makes the folder anew, and what ran is not run again"


def test_a_command_that_failed_is_counted_and_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def fail(words: Sequence[str], folder: Path) -> CompletedProcess[str]:
        ran.append(words[0])
        return CompletedProcess(words, 1, "what it said")

    monkeypatch.setattr(sample_commands, "run_command", fail)
    assert run_pages(tmp_path, [NEXT]) == run_pages(tmp_path, [NEXT]) == len(ran) / 2 > 0
