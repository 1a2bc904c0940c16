"""Scoring behind the chatbot's back: it waits for nothing, gets no error, and no text of it is logged."""

import os
import socket
import subprocess
import sys
import threading

import pytest
from turnscore_client import BackgroundScorer
from turnscore_client._background import RecentMessages
from turnscore_client.integrations import TurnIds

DIALOGUE = [
    {"role": "system", "content": "you are a pirate"},
    {"role": "user", "content": "a secret question"},
    {"role": "assistant", "content": "a secret answer"},
]
IDS = TurnIds(trace_id="t", span_id="s", session_id="chat 7")


class HeldClient:
    """A client whose answers wait until the test lets them go."""

    def __init__(self, mock):
        self._client = mock.client(max_retries=0)
        self.gate = threading.Event()

    def score(self, **fields):
        assert self.gate.wait(30)
        return self._client.score(**fields)


@pytest.fixture
def told():
    return []


@pytest.fixture
def watch(mock, told):
    watch = BackgroundScorer(client=mock.client(max_retries=0), on_scored=told.append)
    yield watch
    watch.close()


def test_a_turn_is_scored_in_its_context_and_told_with_its_ids(watch, mock, told):
    assert watch.submit(DIALOGUE, IDS)
    assert watch.wait_until_idle(30)
    [scored] = told
    assert scored.tag == IDS
    assert scored.reply.scores["engagement"].value == 0.5
    [request] = mock.requests
    assert request.body["context"] == [{"speaker": "user", "text": "a secret question"}]
    assert request.body["response"] == "a secret answer"
    assert (watch.scored, watch.failed, watch.dropped) == (1, 0, 0)


UNSCORED = [
    [],
    [{"role": "user", "content": "hi"}],
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}],
]


@pytest.mark.parametrize("messages", UNSCORED)
def test_what_is_no_turn_of_the_chatbot_is_not_scored(watch, mock, told, messages):
    assert watch.submit(messages)
    assert watch.wait_until_idle(30)
    assert (mock.requests, told) == ([], [])


def test_what_finds_no_room_is_dropped_and_counted_at_once(mock, told):
    held = HeldClient(mock)
    watch = BackgroundScorer(client=held, on_scored=told.append, max_waiting=3, concurrency=1)
    assert [watch.submit(DIALOGUE) for _ in range(5)] == [True, True, True, False, False]
    assert (watch.dropped, told) == (2, [])
    held.gate.set()
    assert watch.wait_until_idle(30)
    assert watch.submit(DIALOGUE)
    watch.close()
    assert len(told) == 4


@pytest.mark.parametrize("broken", ["messages", "convert", "on_scored"])
def test_nothing_that_breaks_reaches_the_chatbot_or_the_log(mock, caplog, broken):
    def explode(*_):
        raise ValueError("a secret answer")

    watch = BackgroundScorer(client=mock.client(), on_scored=explode if broken == "on_scored" else None)
    watch.submit(7 if broken == "messages" else DIALOGUE, convert=explode if broken == "convert" else None)
    assert watch.wait_until_idle(30)
    watch.close()
    assert any(record.levelname == "ERROR" for record in caplog.records)
    assert "secret" not in caplog.text


def test_the_log_names_the_conversation_and_the_turn(mock, caplog):
    with caplog.at_level("INFO"):
        watch = BackgroundScorer(client=mock.client(max_retries=0))
        for ids in (IDS, TurnIds(session_id="chat 8"), TurnIds()):
            watch.submit(DIALOGUE, ids)
            assert watch.wait_until_idle(30)
        watch.close()
    lines = [record.getMessage().split(": ", 1) for record in caplog.records if "background" in record.name]
    assert [names for names, _ in lines] == [
        "conversation chat 7, turn s", "conversation chat 8, turn 2", "conversation -, turn 2",
    ]  # fmt: skip
    assert all(told.startswith("engagement value=0.5 ") for _, told in lines)
    assert "secret" not in caplog.text


def test_the_log_s_place_counts_what_is_too_long_ago_to_be_sent(mock, caplog):
    tool = [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "b"}]
    recent = RecentMessages()
    for message in DIALOGUE[1:] * 50:
        recent.append(message)
    watch = BackgroundScorer(client=mock.client(max_retries=0))
    with caplog.at_level("INFO"):
        for messages in ([DIALOGUE[0], *tool, *DIALOGUE[1:] * 50], recent):
            watch.submit(messages)
            assert watch.wait_until_idle(30)
    watch.close()
    told = [record.getMessage() for record in caplog.records if "background" in record.name]
    assert [each.split(":")[0] for each in told] == ["conversation -, turn 100"] * 2
    assert {len(request.body["context"]) for request in mock.requests} == {63}


def test_a_service_that_is_down_is_one_warning_a_minute_without_a_text(caplog):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    watch = BackgroundScorer(url=f"http://127.0.0.1:{port}", timeout_seconds=0.2)
    for _ in range(3):
        assert watch.submit(DIALOGUE)
    assert watch.wait_until_idle(30)
    watch.close()
    assert watch.failed == 3
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "connection_failed" in warning.getMessage() or "deadline_exceeded" in warning.getMessage()
    assert "secret" not in caplog.text


def test_a_program_s_end_waits_a_moment_for_the_last_turns(mock):
    program = (
        "import sys, time\n"
        "from turnscore_client.testing import MockTurnScore\n"
        "from turnscore_client import BackgroundScorer\n"
        "client = MockTurnScore().client()\n"
        "score = client.score\n"
        "client.score = lambda **given: (time.sleep(0.3), score(**given))[1]\n"
        "show = lambda scored: sys.stdout.write(f'{scored.reply is not None}')\n"
        "watch = BackgroundScorer(client=client, on_scored=show)\n"
        "watch.submit([{'role': 'assistant', 'content': 'bye'}])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_scores_too(mock):
    program = (
        "import os, sys\n"
        "from turnscore_client.testing import MockTurnScore\n"
        "from turnscore_client import BackgroundScorer\n"
        "said = [{'role': 'assistant', 'content': 'hi'}]\n"
        "watch = BackgroundScorer(client=MockTurnScore().client(), on_scored=lambda _: None)\n"
        "watch.submit(said); assert watch.wait_until_idle(30)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    watch.submit(said)\n"
        "    os._exit(0 if watch.wait_until_idle(30) and watch.scored == 2 else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=120, check=True)


@pytest.mark.parametrize(
    "wrong", [{"max_waiting": 0}, {"concurrency": -1}, {"url": "localhost"}, {"timeout_seconds": 0}]
)
def test_options_without_sense_are_refused_at_the_start(wrong):
    with pytest.raises(ValueError, match=r"max_waiting|concurrency|url|timeout_seconds"):
        BackgroundScorer(**wrong)


def test_the_chatbots_active_span_goes_with_the_turn(watch, mock, told):
    from opentelemetry import trace

    span = trace.NonRecordingSpan(
        trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
    )
    with trace.use_span(span):
        watch.submit(DIALOGUE)
    assert watch.wait_until_idle(30)
    assert mock.requests[0].headers["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert told[0].tag == TurnIds(trace_id=f"{0xABC:032x}", span_id=f"{0xDEF:016x}")
