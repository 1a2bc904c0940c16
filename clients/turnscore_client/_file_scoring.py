"""File scoring: each line of a file through the service, a bounded number at once, one outcome a line, in order.

A line that fails becomes an outcome with an error; nothing about one line stops the others.
"""

import asyncio
import json
import math
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from turnscore_wire import DialogueReply, DialogueRequest, ScoreReply, ScoreRequest

from turnscore_client import _defaults
from turnscore_client._async.client import AsyncTurnScoreClient
from turnscore_client._errors import InvalidRequestError, ServiceError, TurnScoreError, UnexpectedReplyError
from turnscore_client._line_files import Line

Fields = dict[str, Any]

_OUR_KEYS = frozenset({"line", "error"})  # in an output line these are always ours


@dataclass(frozen=True)
class Outcome:
    """What became of one line: the object to write, and the error if there was one."""

    line: Line
    written: Fields
    error: str | None


async def score_lines(
    client: AsyncTurnScoreClient, lines: Iterable[Line], scorers: Sequence[str] | None, concurrency: int
) -> AsyncGenerator[Outcome, None]:
    """One outcome a line, in the lines' order, with at most `concurrency` requests in flight."""
    in_flight = asyncio.Semaphore(concurrency)
    tasks: deque[asyncio.Task[Outcome]] = deque()

    async def score(line: Line) -> Outcome:
        async with in_flight:
            return await score_line(client, line, scorers)

    try:
        for line in lines:
            if len(tasks) == concurrency * _defaults.LINES_AHEAD:
                yield await tasks.popleft()
            tasks.append(asyncio.create_task(score(line)))
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def score_line(client: AsyncTurnScoreClient, line: Line, scorers: Sequence[str] | None) -> Outcome:
    """The outcome of one line. Keys that are not the request's are carried over; the reply's own go before them."""
    carried: Fields = {}
    try:
        fields = _parse(line.raw)
        request_fields = DialogueRequest.model_fields if "turns" in fields else ScoreRequest.model_fields
        carried = {name: value for name, value in fields.items() if name not in request_fields.keys() | _OUR_KEYS}
        asked = {name: value for name, value in fields.items() if name in request_fields}
        if asked.get("scorers") is None:
            asked["scorers"] = scorers
        reply = await _ask(client, asked)
        plain = _plain(reply)
    except TurnScoreError as error:
        return Outcome(line, {**carried, "line": line.number, "error": describe(error)}, str(error))
    written = {**carried, "line": line.number, **plain}
    return Outcome(line, written, _partial_failure(reply))


def describe(error: TurnScoreError) -> Fields:
    """The error as an object of the output, in the wire's form."""
    if isinstance(error, ServiceError):
        return error.detail().model_dump(mode="json", exclude_none=True)
    return {"code": error.code, "message": str(error)}


async def _ask(client: AsyncTurnScoreClient, asked: Fields) -> ScoreReply | DialogueReply:
    if "turns" in asked:
        return await client.score_dialogue(**asked)
    return await client.score(**asked)


def _plain(reply: ScoreReply | DialogueReply) -> Fields:
    """The reply as it is written; UnexpectedReplyError where a number in it is infinite or none."""
    plain = reply.model_dump(mode="json")
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        raise UnexpectedReplyError("the reply holds a number that is not JSON", 200) from None
    return plain


def _partial_failure(reply: ScoreReply | DialogueReply) -> str | None:
    """The first scorer's error of a reply in which others answered."""
    parts = reply.turns if isinstance(reply, DialogueReply) else [reply]
    for part in parts:
        for scorer, error in part.errors.items():
            return f"{scorer}: {error.code}: {error.message}"
    return None


def _parse(raw: bytes) -> Fields:
    try:
        fields = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidRequestError(f"the line is not JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError("the line is not a JSON object")
    if ("turns" in fields) == ("response" in fields):
        raise InvalidRequestError("the line must have either `turns` or `response`")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is larger than a number can be")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
