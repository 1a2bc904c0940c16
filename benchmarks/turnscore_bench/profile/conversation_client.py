"""The load generator of live conversations: WebSockets on which a user's turn and a system turn alternate.

    python -m turnscore_bench.profile.conversation_client JOB.json

Takes the same job as `load_client`, each body the turns of one exchange, and prints what it counted as JSON.
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

EXCHANGES = 8
"""Of one conversation. Chosen: people's chats with a chatbot have about so many."""


async def drive(port: int, path: str, bodies: Iterable[str], clients: int, keeps_replies: bool) -> dict[str, Any]:
    """Says all exchanges over that many conversations at once. Raises ValueError where one is answered otherwise."""
    waiting, replies = deque(map(json.loads, bodies)), list[str]()
    answered = len(waiting)
    started_at = time.perf_counter()
    address = f"ws://127.0.0.1:{port}{path}"
    await asyncio.gather(*(_converse_all(address, waiting, replies) for _ in range(clients)))
    wall = time.perf_counter() - started_at
    return {"wall_seconds": wall, "answered": answered, "replies": replies if keeps_replies else []}


async def _converse_all(address: str, waiting: "deque[Any]", replies: list[str]) -> None:
    while waiting:
        async with connect(address, compression=None) as connection:
            for _ in range(EXCHANGES):
                if waiting:
                    exchange = waiting.popleft()
                    await _say(connection, exchange["context"][0]["speaker"], exchange["context"][0]["text"], "ack")
                    replies.append(await _say(connection, "system", exchange["response"], "scored"))


async def _say(connection: ClientConnection, speaker: str, text: str, expected: str) -> str:
    await connection.send(json.dumps({"turn": {"speaker": speaker, "text": text}}))
    reply = str(await connection.recv())
    if not json.loads(reply).get(expected):
        raise ValueError(f"a turn was answered with {reply[:200]}")
    return reply


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(asyncio.run(drive(**job))))
