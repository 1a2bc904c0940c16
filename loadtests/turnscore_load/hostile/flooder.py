"""Flooder: many connections from one address that send full batches without a pause. A process of its own.

`python -m turnscore_load.hostile.flooder PORT ADDRESS CONNECTIONS SECONDS SCORER fresh|known` prints what came of them.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count

import uvloop

from turnscore_load.raw_http import RawReply, open_connection, post_bytes
from turnscore_load.traffic import Traffic, TrafficSettings

BATCH_TURNS = 256
"""What `TURNSCORE_LIMITS__MAX_ITEMS` allows by default."""
_BODIES = 8
_MARK = b"0@0@0@0@"


async def flood(port: int, address: str, connections: int, seconds: float, bodies: Iterator[bytes]) -> Counter[int]:
    """How many replies of each status came; 0 stands for none. A refused caller comes again at once."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    statuses: Counter[int] = Counter()

    async def one_connection() -> None:
        while loop.time() < end:
            try:
                connection = await open_connection(port, address)
            except OSError:
                statuses[0] += 1
                await asyncio.sleep(0.1)
                continue
            while connection.is_open and loop.time() < end:
                replied: asyncio.Future[RawReply] = loop.create_future()
                connection.send(post_bytes("/v1/score_batch", port, next(bodies)), replied.set_result)
                give_up = loop.call_at(end + 1, connection.abort, "the flood is over")
                statuses[(await replied).status] += 1
                give_up.cancel()
            connection.close()

    await asyncio.gather(*(one_connection() for _ in range(connections)))
    return statuses


def batches(scorer: str, *, fresh: bool) -> Iterator[bytes]:
    """Full batches without end; no turn of a fresh one was asked before, a known one always has the same turns."""
    traffic = Traffic(TrafficSettings(scorers=(scorer,), deadline_ms=10_000))
    made = []
    for _ in range(_BODIES if fresh else 1):
        items = [traffic.next_ask().item for _ in range(BATCH_TURNS)]
        for item in items:
            item["response"] = f"{_MARK.decode()} {item['response']}"
        made.append(json.dumps({"items": items}).encode())
    for number in count():
        mark = b"%08d" % (number if fresh else 0)
        yield made[number % len(made)].replace(_MARK, mark)


def main() -> None:
    port, address, connections, seconds, scorer, kind = sys.argv[1:]
    bodies = batches(scorer, fresh=kind == "fresh")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        statuses = runner.run(flood(int(port), address, int(connections), float(seconds), bodies))
    sys.stdout.write(json.dumps(statuses))


if __name__ == "__main__":
    main()
