"""`turnscore score --to`: each row's scores go to the tool before the row is written, and no row is forgotten."""

import json
from pathlib import Path

import pytest
from support.files import run_command, write_lines
from support.studies import AGGREGATES, SPAN, TRACE, scored
from turnscore_client import InvalidRequestError
from turnscore_client.integrations import TurnIds
from turnscore_client.writers import ScoreEntry, ScoreWriter
from turnscore_client.writers._entries import row_entries

PLACE = TurnIds(trace_id=TRACE, span_id=SPAN, session_id="chat 7")


def turn_row(**more: object) -> dict:
    return {"line": 1, **json.loads(scored(PLACE).reply.model_dump_json()), **more}


def test_a_turn_s_row_is_placed_by_the_ids_that_its_line_carried():
    [entry] = row_entries(turn_row(trace_id=TRACE, span_id=SPAN, session_id="chat 7"))
    assert (entry.ids, entry.value, entry.is_session) == (PLACE, 0.25, False)
    assert not list(row_entries(turn_row(id="mine")))
    assert not list(row_entries({"line": 7, "error": {"code": "internal"}, "trace_id": TRACE}))


@pytest.mark.parametrize("kind", ["turns", "messages"])
def test_a_dialogue_s_row_has_entries_of_its_turns_and_of_its_session(kind):
    scores = turn_row()["scores"]
    row = {
        "line": 1,
        "session_id": "chat 7",
        kind: [{"role": "user"}, {"scores": scores, "trace_id": TRACE}, {"scores": scores}, {"trace_id": "unscored"}],
        "dialogue": {name: each.model_dump() for name, each in AGGREGATES.items()},
    }
    turn, session = row_entries(row)
    assert (turn.ids, turn.is_session) == (TurnIds(trace_id=TRACE, session_id="chat 7"), False)
    assert (session.ids, session.is_session) == (TurnIds(session_id="chat 7"), True)


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

    def __init__(self, room: int = 1000) -> None:
        self.entries: list[ScoreEntry] = []
        self.room = room
        self.is_closed = False

    def write(self, entry: ScoreEntry) -> None:
        if len(self.entries) >= self.room:
            raise ConnectionError("no route to the tool")
        self.entries.append(entry)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    tool = Tool()
    monkeypatch.setattr("turnscore_client.writers.open_writer", lambda name: tool)
    return tool


@pytest.fixture
def history(tmp_path: Path) -> Path:
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
