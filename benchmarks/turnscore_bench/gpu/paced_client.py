"""The load generator of an open loop, in a process of its own: requests that arrive at random, whatever becomes of
those before them. Prints what it measured as JSON.

    python -m turnscore_bench.gpu.paced_client JOB.json
"""

import asyncio
import json
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uvloop
from turnscore_load.raw_http import RawConnection, RawReply, open_connection, post_bytes

from turnscore_bench.harness.load_client import Tally


async def drive(port: int, path: str, bodies: Iterable[str], per_second: float, seed: int = 0) -> dict[str, Any]:
    """Sends all bodies, the gaps between them exponential (a Poisson process); times count from when each was due."""
    loop, chance, tally = asyncio.get_running_loop(), random.Random(seed), Tally()
    idle: list[RawConnection] = []
    started_at = due_at = loop.time()
    calls = []
    for body in bodies:
        due_at += chance.expovariate(per_second)
        await asyncio.sleep(max(0.0, due_at - loop.time()))
        calls.append(loop.create_task(_call(post_bytes(path, port, body.encode()), due_at, idle, tally, port)))
    await asyncio.gather(*calls)
    return {"wall_seconds": loop.time() - started_at, **vars(tally)}


async def _call(request: bytes, due_at: float, idle: list[RawConnection], tally: Tally, port: int) -> None:
    loop = asyncio.get_running_loop()
    connection = idle.pop() if idle else await open_connection(port)
    replied: asyncio.Future[RawReply] = loop.create_future()
    connection.send(request, replied.set_result)
    reply = await replied
    tally.count(reply.status or 500, reply.body or reply.why.encode())
    tally.latencies_ms.append(1000 * (loop.time() - due_at))
    if connection.is_open:
        idle.append(connection)


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(uvloop.run(drive(**job))))
