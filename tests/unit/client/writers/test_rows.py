"""`turnscore score --to`: each row's scores go to the tool before the row is written, and no row is forgotten."""

import pytest
from support.files import run_command, write_lines
from turnscore_client import InvalidRequestError
from turnscore_client.writers import ScoreWriter
from turnscore_client.writers._entries import row_entries


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"trace_id": 7}, "trace_id"), ({"dialogue": {}, "turns": [{"scores": {}, "span_id": ["a"]}]}, "turns.0.span_id")],
)
def test_ids_that_are_no_texts_are_refused_by_their_place(wrong, field):
    with pytest.raises(InvalidRequestError) as refused:
        list(row_entries(wrong))
    assert refused.value.field == field


class Tool(ScoreWriter):
    """A tool that takes `room` entries and then no more."""

    def __init__(self, room=1000):
        self.entries = []
        self.room = room
        self.is_closed = False

    def write(self, entry):
        if len(self.entries) >= self.room:
            raise ConnectionError("no route to the tool")
        self.entries.append(entry)

    def close(self):
        self.is_closed = True


@pytest.fixture
def tool(monkeypatch):
    tool = Tool()
    monkeypatch.setattr("turnscore_client.writers.open_writer", lambda name: tool)
    return tool


@pytest.fixture
def history(tmp_path):
    lines = [{"response": f"answer {place}", "trace_id": f"trace {place}"} for place in range(20)]
    turns = [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello", "span_id": "span 20"}]
    lines.append({"turns": turns, "session_id": "chat 7"})
    return write_lines(tmp_path / "history.jsonl", *lines)


def test_history_is_written_to_the_tool_and_to_the_output(tool, mock, history, tmp_path):
    done = run_command(mock, "score", history, "--output", tmp_path / "scores.jsonl", "--to", "langfuse")
    assert done.exit_code == 0, done.output
    assert [entry.ids.trace_id for entry in tool.entries[:20]] == [f"trace {place}" for place in range(20)]
    rest = [(entry.ids.span_id, entry.ids.session_id, entry.is_session) for entry in tool.entries[20:]]
    assert rest == [("span 20", "chat 7", False), (None, "chat 7", True)]
    assert tool.is_closed
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 21
    assert "22 scores written to langfuse" in done.stderr


def test_a_tool_that_is_gone_stops_the_run_and_the_same_command_goes_on(tool, mock, history, tmp_path):
    tool.room = 7
    arguments = (history, "--output", tmp_path / "scores.jsonl", "--to", "langfuse")
    stopped = run_command(mock, "score", *arguments)
    assert stopped.exit_code == 3, stopped.output
    assert "langfuse: no route to the tool" in stopped.stderr
    assert len((tmp_path / "scores.jsonl").read_text().splitlines()) == 7
    tool.room = 1000
    assert run_command(mock, "score", *arguments).exit_code == 0
    assert [entry.ids.trace_id for entry in tool.entries[:20]] == [f"trace {place}" for place in range(20)]  # each once


def test_a_tool_that_there_is_not_is_a_usage_error(mock, history, tmp_path):
    done = run_command(mock, "score", history, "--output", tmp_path / "scores.jsonl", "--to", "langfues")
    assert done.exit_code == 2
    assert not (tmp_path / "scores.jsonl").exists()
