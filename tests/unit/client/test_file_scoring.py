"""File scoring: every line has its outcome, in order, with a bounded number in flight."""

import asyncio
import json
from contextlib import aclosing

import httpx
import pytest
from turnscore_client import AsyncTurnScoreClient, OverloadedError
from turnscore_client._file_scoring import score_line, score_lines
from turnscore_client._line_files import Line
from turnscore_client.testing import MockTurnScore

DIALOGUE = {"turns": [{"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}]}


def line_of(content, number=1):
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Line(number, raw + b"\n", 0)


async def outcome_of(mock, content, scorers=None):
    async with mock.async_client() as client:
        return await score_line(client, line_of(content, 7), scorers)


async def test_a_turn_becomes_its_reply_with_its_line_and_other_keys(mock):
    outcome = await outcome_of(mock, {"id": "d-1", "response": "hello", "context": []})
    assert outcome.error is None
    assert (outcome.written["id"], outcome.written["line"]) == ("d-1", 7)
    assert outcome.written["scores"]["engagement"]["value"] == 0.5


async def test_a_dialogue_becomes_its_reply_with_other_keys(mock):
    outcome = await outcome_of(mock, {**DIALOGUE, "id": 3, "rating": {"amt": 4.5}})
    assert (outcome.written["id"], outcome.written["rating"]) == (3, {"amt": 4.5})
    assert [turn["index"] for turn in outcome.written["turns"]] == [1]
    assert mock.requests[0].path == "/v1/score_dialogue"


async def test_the_lines_own_scorers_go_before_the_commands(mock):
    mock.scores = {"engagement": 0.5, "fed": 0.1}
    assert list((await outcome_of(mock, {"response": "a"}, ["fed"])).written["scores"]) == ["fed"]
    both = {"response": "a", "scorers": ["engagement"]}
    assert list((await outcome_of(mock, both, ["fed"])).written["scores"]) == ["engagement"]


@pytest.mark.parametrize(
    ("content", "message", "field"),
    [
        (b"", "not JSON", None),
        (b'{"response": ', "not JSON", None),
        (b'{"response": NaN}', "not JSON", None),
        (b'{"response": "a", "id": 1e999}', "not JSON: 1e999", None),
        (b'{"response": "a", "id": [-1e999]}', "not JSON: -1e999", None),
        (b"\xff\xfe", "not JSON", None),
        (b"[" * 100_000, "not JSON", None),
        (b"7", "not a JSON object", None),
        ({"context": []}, "either", None),
        ({**DIALOGUE, "response": "a"}, "either", None),
        ({"response": ""}, "", "response"),
        ({"response": "a", "context": None}, "", "context"),
        ({"turns": [{"speaker": "bot", "text": "hi"}]}, "", "turns.0.speaker"),
        ({"turns": None}, "", "turns"),
    ],
)
async def test_a_bad_line_becomes_an_error_and_asks_nothing(mock, content, message, field):
    outcome = await outcome_of(mock, content)
    error = outcome.written["error"]
    assert outcome.written["line"] == 7
    assert error["code"] == "invalid_request"
    assert error.get("field") == field
    assert message in error["message"]
    assert mock.requests == []


async def test_a_failed_line_keeps_its_other_keys(mock):
    mock.fail_next("internal", "broken")
    outcome = await outcome_of(mock, {"id": 5, "response": "a", "line": 99, "error": "old"})
    assert outcome.written == {"id": 5, "line": 7, "error": {"code": "internal", "message": "broken"}}


async def test_an_error_of_an_earlier_run_is_not_carried_into_a_good_line(mock):
    assert "error" not in (await outcome_of(mock, {"response": "a", "error": {"code": "old"}})).written


async def test_a_broken_connection_is_an_error_of_the_line(mock):
    mock.break_next(times=9)
    outcome = await outcome_of(mock, {"response": "a"})
    assert outcome.written["error"]["code"] == "connection_failed"


async def test_a_reply_in_which_a_scorer_failed_is_written_and_counts_as_failed(mock):
    with mock.client() as client:
        reply = client.score(response="a").model_dump(mode="json")
    reply["errors"] = {"fed": {"code": "internal", "message": "broken"}}
    mock.answer_next(200, json.dumps(reply).encode())
    outcome = await outcome_of(mock, {"response": "a"})
    assert outcome.error == "fed: internal: broken"
    assert outcome.written["scores"]["engagement"]["value"] == 0.5


async def test_a_reply_with_a_number_that_json_has_not_is_an_error_of_the_line(mock):
    with mock.client() as client:
        body = client.score(response="a").model_dump_json().replace('"value":0.5', '"value":1e999')
    mock.answer_next(200, body.encode())
    outcome = await outcome_of(mock, {"id": 5, "response": "a"})
    assert (outcome.written["id"], outcome.written["error"]["code"]) == (5, "unexpected_reply")
    json.dumps(outcome.written, allow_nan=False)


class Gate:
    """A service that answers a line only when told to, and counts what waits."""

    def __init__(self) -> None:
        self.mock = MockTurnScore(lambda request: {"engagement": float(request.response)})
        self.waiting: dict[str, asyncio.Event] = {}
        self.most_in_flight = 0
        self.changed = asyncio.Condition()

    async def answer(self, request: httpx.Request) -> httpx.Response:
        event = asyncio.Event()
        async with self.changed:
            self.waiting[json.loads(request.content)["response"]] = event
            self.most_in_flight = max(self.most_in_flight, len(self.waiting))
            self.changed.notify_all()
        await event.wait()
        return self.mock.transport.handle_request(request)

    async def release(self, name: str) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: name in self.waiting)
            self.waiting.pop(name).set()

    def client(self) -> AsyncTurnScoreClient:
        transport = httpx.MockTransport(self.answer)
        return AsyncTurnScoreClient("http://gate.test", transport=transport, timeout_seconds=1000.0)


async def test_outcomes_keep_the_lines_order_whatever_the_order_of_the_answers():
    gate = Gate()
    lines = [line_of({"response": str(number)}, number) for number in range(1, 9)]

    async def release_late_ones_first() -> None:
        for name in ("2", "3", "4", "5", "6", "7", "8", "1"):
            await gate.release(name)

    async with gate.client() as client:
        releasing = asyncio.create_task(release_late_ones_first())
        outcomes = [outcome async for outcome in score_lines(client, lines, None, 2)]
        await releasing
    assert [outcome.line.number for outcome in outcomes] == list(range(1, 9))
    assert [outcome.written["scores"]["engagement"]["value"] for outcome in outcomes] == [*map(float, range(1, 9))]
    assert gate.most_in_flight == 2


async def test_a_slow_line_bounds_how_many_lines_are_read_ahead():
    gate = Gate()
    taken = 0

    def lines():
        nonlocal taken
        for number in range(1, 1001):
            taken = number
            yield line_of({"response": str(number)}, number)

    async with gate.client() as client, aclosing(score_lines(client, lines(), None, 2)) as outcomes:
        first = asyncio.create_task(anext(outcomes))
        for number in range(2, 9):
            await gate.release(str(number))
        assert taken == 9
        await gate.release("1")
        assert (await first).line.number == 1


async def test_leaving_early_cancels_what_is_in_flight():
    gate = Gate()
    lines = [line_of({"response": str(number)}, number) for number in range(1, 9)]
    async with gate.client() as client, asyncio.timeout(30):
        async with aclosing(score_lines(client, lines, None, 4)) as outcomes:
            first = asyncio.create_task(anext(outcomes))
            await gate.release("1")
            await first
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_one_overloaded_moment_fails_no_line():
    attempts: dict[str, int] = {}

    def scores(request):
        attempts[request.response] = attempts.get(request.response, 0) + 1
        if attempts[request.response] == 1:
            raise OverloadedError("full", retry_after_ms=10)
        return {"engagement": 0.5}

    mock = MockTurnScore(scores)
    lines = [line_of({"response": str(number)}, number) for number in range(1, 20)]
    async with mock.async_client() as client:
        outcomes = [outcome async for outcome in score_lines(client, lines, None, 3)]
    assert [outcome.error for outcome in outcomes] == [None] * 19
