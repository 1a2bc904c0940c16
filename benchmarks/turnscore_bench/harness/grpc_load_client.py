"""The load generator of the gRPC door, in a process of its own: a connection for each client, messages made beforehand.
Takes the same job as `load_client` and prints the same.

    python -m turnscore_bench.harness.grpc_load_client JOB.json
"""

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToJson, Parse
from turnscore_wire.v1.turnscore_pb2 import ScoreReply, ScoreRequest

from turnscore_bench.harness.load_client import REFUSED_WAIT_MS, Tally

_REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
_PUSHBACK = "grpc-retry-pushback-ms"


async def drive(port: int, path: str, bodies: Iterable[str], clients: int, keeps_replies: bool) -> dict[str, Any]:
    """Sends all bodies, each the JSON form of a score request, over that many connections."""
    requests = deque(Parse(body, ScoreRequest()).SerializeToString() for body in bodies)
    tally = Tally(keeps_replies=keeps_replies)
    options = [("grpc.use_local_subchannel_pool", 1)]  # else all channels would share a connection
    channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(clients)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    cpu, started_at = time.process_time(), time.perf_counter()
    await asyncio.gather(*(_call_all(channel.unary_unary(path), requests, tally) for channel in channels))
    wall, cpu = time.perf_counter() - started_at, time.process_time() - cpu
    await asyncio.gather(*(channel.close() for channel in channels))
    return {"wall_seconds": wall, "client_cpu_seconds": cpu, **vars(tally)}


async def _call_all(call: Any, requests: "deque[bytes]", tally: Tally) -> None:
    while requests:
        request = requests.popleft()
        while (wait_ms := await _call(call, request, tally)) is not None:
            await asyncio.sleep(wait_ms / 1000)


async def _call(call: Any, request: bytes, tally: Tally) -> float | None:
    """Counts one call; the milliseconds to wait before the next attempt where it was refused."""
    sent_at = time.perf_counter()
    try:
        reply = await call(request)
    except grpc.aio.AioRpcError as error:
        if error.code() in _REFUSED:
            tally.count(429, b"")
            pushback = dict(error.trailing_metadata() or ()).get(_PUSHBACK)
            return float(pushback) if pushback else REFUSED_WAIT_MS
        tally.count(500, str(error.code()).encode())
    else:
        body = MessageToJson(ScoreReply.FromString(reply)).encode() if tally.keeps_replies else b""
        tally.count(200, body)
    tally.latencies_ms.append(1000 * (time.perf_counter() - sent_at))
    return None


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(json.dumps(asyncio.run(drive(**job))))
