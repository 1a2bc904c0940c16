"""Entries of scores, the writers that take them by name, and `turnscore score --to`."""

import pytest
from support.files import run_command, write_lines
from support.studies import AGGREGATES, SPAN, TRACE, scored
from turnscore_client import InvalidRequestError, OverloadedError, Scored
from turnscore_client.integrations import TurnIds
from turnscore_client.writers import ScoreWriter, dialogue_entries, open_writer, turn_entries
from turnscore_client.writers._dialogues import DialogueJudge
from turnscore_client.writers._entries import row_entries

PLACE = TurnIds(trace_id=TRACE, span_id=SPAN, session_id="chat 7")


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


def test_a_turn_s_scores_are_entries_with_model_and_percentile():
    [entry] = turn_entries(scored(PLACE).reply.scores, PLACE)
    assert (entry.name, entry.value, entry.label) == ("turnscore.quality", 0.25, "low")
    assert entry.explanation == "12 of 100 reference turns score lower"
    told = {"model": "quality:1.0.0", "percentile": 12.0, "warnings": "repeats_user"}
    assert entry.metadata == {f"turnscore.{name}": each for name, each in told.items()}
    assert entry.labelled["label"] == "low"


def test_a_dialogue_s_scores_are_entries_of_its_session():
    [entry] = dialogue_entries(AGGREGATES, PLACE)
    assert (entry.is_session, entry.value, entry.explanation) == (True, 0.5, "mean of 2 turns, the lowest 0.25")
    assert entry.metadata["turnscore.turns"] == 2


def test_the_same_score_of_the_same_place_has_the_same_key_and_no_other_has():
    def key(value=0.25, **ids):
        [entry] = turn_entries(scored(PLACE, value).reply.scores, TurnIds(**{"trace_id": TRACE, **ids}))
        return entry.key

    [session] = dialogue_entries(AGGREGATES, PLACE)
    assert key() == key(0.75)
    assert len({key(), key(span_id=SPAN), key(trace_id="other"), session.key}) == 4


def test_a_writer_takes_an_integration_s_outcomes():
    writer = Tool()
    writer(scored(PLACE))
    writer(Scored(PLACE, None, OverloadedError("full")))
    writer(Scored("a tag of another kind", scored(PLACE).reply, None))
    assert [entry.ids for entry in writer.entries] == [PLACE]


def test_a_writer_that_there_is_not_is_refused_by_name():
    with pytest.raises(ValueError, match="no writer 'langfues'; there are langfuse, langsmith, mlflow, opik, phoenix"):
        open_writer("langfues")


@pytest.mark.parametrize("name", ["langfuse", "langsmith", "mlflow", "opik", "phoenix"])
def test_a_writer_whose_tool_is_not_installed_names_its_extra(name):
    with pytest.raises(ImportError, match=rf"\[{name}\]"):
        open_writer(name)


def test_a_dialogue_is_judged_by_one_scorer(mock):
    mock.scores = lambda request: {"quality": 0.1 if request.response == "ok." else 0.7}
    judge = DialogueJudge("quality", {"client": mock.client()})
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ok."}]
    judged = judge.judge([*said, said[0], {"role": "assistant", "content": "hello, you!"}])
    assert (judged.value, sorted(judged.turns)) == (pytest.approx(0.4), [1, 3])
    assert judged.as_result()["min"] == 0.1
    assert judge.judge(said[:1]).value is None


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"trace_id": 7}, "trace_id"), ({"dialogue": {}, "turns": [{"scores": {}, "span_id": ["a"]}]}, "turns.0.span_id")],
)
def test_ids_that_are_no_texts_are_refused_by_their_place(wrong, field):
    with pytest.raises(InvalidRequestError) as refused:
        list(row_entries(wrong))
    assert refused.value.field == field


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
