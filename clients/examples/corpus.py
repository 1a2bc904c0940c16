"""A corpus from a file: JSON lines in, the same lines with their scores out, in order, eight in flight.

    python corpus.py dialogues.jsonl scores.jsonl

A line is `{"context": [{"speaker": "user", "text": "..."}], "response": "..."}` and whatever else it holds. A line that
cannot be scored gets an `error` and stops nothing. Memory does not grow with the file. Needs `pip install
./clients` and a service at TURNSCORE_URL (http://localhost:3000). `turnscore score` does this with more comfort.
"""

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from turnscore_client import AsyncTurnScoreClient, TurnScoreError

IN_FLIGHT = 8


def read_turn(line: str) -> dict[str, Any]:
    """The line's object, which has `context` and `response`; ValueError says what is wrong with another."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if "turns" in fields:
        raise ValueError("it is a dialogue; `turnscore score` takes those")
    for name in ("context", "response"):
        if name not in fields:
            raise ValueError(f"it lacks `{name}`")
    return fields


async def score_line(client: AsyncTurnScoreClient, line: str) -> dict[str, Any]:
    """The line's object with `scores`, or with `error`."""
    fields: dict[str, Any] = {}
    try:
        fields = read_turn(line)
        reply = await client.score(context=fields["context"], response=fields["response"])
    except ValueError as error:
        return {"error": f"not a line to score: {error}"}
    except TurnScoreError as error:
        return {**fields, "error": str(error)}
    return {**fields, "scores": {name: score.value for name, score in reply.scores.items()}}


async def score_lines(client: AsyncTurnScoreClient, lines: Iterable[str]) -> AsyncIterator[dict[str, Any]]:
    """One object a line, in order; a line is read when one of those in flight is done."""
    in_flight: deque[asyncio.Task[dict[str, Any]]] = deque()
    for line in lines:
        if len(in_flight) == IN_FLIGHT:
            yield await in_flight.popleft()
        in_flight.append(asyncio.create_task(score_line(client, line)))
    while in_flight:
        yield await in_flight.popleft()


async def score_file(source: Path, target: Path) -> None:
    """Reads one file and writes the other."""
    async with AsyncTurnScoreClient() as client:
        with source.open(encoding="utf-8") as lines, target.open("w", encoding="utf-8") as out:
            async for scored in score_lines(client, lines):
                out.write(json.dumps(scored, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python corpus.py DIALOGUES.jsonl SCORES.jsonl")
    asyncio.run(score_file(Path(sys.argv[1]), Path(sys.argv[2])))
