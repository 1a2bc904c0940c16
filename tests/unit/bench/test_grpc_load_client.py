import json
from collections import Counter
from typing import Any

import grpc
from turnscore_bench.harness.grpc_load_client import drive
from turnscore_wire.v1.turnscore_pb2 import ScoreReply, ScoreRequest
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerServicer, add_TurnScorerServicer_to_server

PATH = "/turnscore.v1.TurnScorer/Score"


class Echo(TurnScorerServicer):
    """Answers with the response as request id; refuses each request once, and `bad` for good."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    async def Score(self, request: ScoreRequest, context: Any) -> ScoreReply:
        self.seen[request.response] += 1
        if request.response == "bad":
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
        if self.seen[request.response] == 1:
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "1"),))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        return ScoreReply(request_id=request.response)


async def test_every_body_is_sent_until_it_is_answered_and_errors_are_counted() -> None:
    server, echo = grpc.aio.server(), Echo()
    add_TurnScorerServicer_to_server(echo, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        bodies = [json.dumps({"response": each}) for each in ("one", "two", "bad", "three")]
        answer = await drive(port, PATH, bodies, 2, keeps_replies=True)
    finally:
        await server.stop(None)
    replies = [json.loads(reply)["requestId"] for reply in answer["replies"] if reply.startswith("{")]
    assert sorted(replies) == ["one", "three", "two"]
    assert (answer["answered"], answer["refused"], answer["failed_requests"]) == (3, 3, 1)
    assert "INTERNAL" in answer["first_error"]
    assert echo.seen == {"one": 2, "two": 2, "three": 2, "bad": 1}
