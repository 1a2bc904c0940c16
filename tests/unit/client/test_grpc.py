"""gRPC clients over real sockets, and which statuses of libraries and proxies are tried again."""

import asyncio
import socket
import sys
from contextlib import asynccontextmanager

import grpc
import pytest
import turnscore_client
from support.fakes import FakeScorer
from support.transports import MODELS, bare, grpc_server, scripted
from turnscore_client._grpc import _AsyncGrpcStream, open_channel
from turnscore_client.testing import ManualClock


@asynccontextmanager
async def service(settings=None, **scorers):
    async with grpc_server(settings, **(scorers or {"fake": FakeScorer()})) as (server, runtime):
        yield f"127.0.0.1:{server.port}", runtime


async def test_the_service_drops_work_that_the_caller_has_no_time_for(call):
    scorer = FakeScorer()
    scorer.gate.clear()
    async with service(fake=scorer) as (address, _):
        for fields in ({"timeout_seconds": 0.3}, {"deadline_ms": 200, "timeout_seconds": 30.0}):
            with pytest.raises(turnscore_client.DeadlineExceededError) as raised:
                await call(address, "score", response="a b c", request_id="r-1", **fields)
            assert raised.value.request_id == "r-1"
        scorer.gate.set()


async def test_a_service_that_never_answers_ends_in_deadline_exceeded(call):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(turnscore_client.DeadlineExceededError, match=r"0\.2 s"):
            await call(address, "models", client={"timeout_seconds": 0.2})


class StatusesOf:
    """A stream of grpc.aio that ends, as one does that something was written to after its end."""

    def __init__(self, *statuses):
        self.statuses = statuses

    def add_done_callback(self, tell):
        for status in self.statuses:
            self.now = status
            tell(self)

    async def code(self):
        return self.now[0]

    async def details(self):
        return self.now[1]

    async def trailing_metadata(self):
        return None

    async def read(self):
        return grpc.aio.EOF


@pytest.mark.parametrize("order", [1, -1])
async def test_the_status_of_a_failed_write_does_not_stand_for_the_services(order):
    statuses = [(grpc.StatusCode.INTERNAL, "Internal error from Core"), (grpc.StatusCode.UNAVAILABLE, "it left")]
    line = _AsyncGrpcStream(StatusesOf(*statuses[::order]), "here:1")
    with pytest.raises(turnscore_client.ConnectionFailedError, match="it left"):
        await line.receive(lambda: 30.0)


@pytest.mark.parametrize("client", [turnscore_client.TurnScoreGrpcClient, turnscore_client.AsyncTurnScoreGrpcClient])
def test_a_missing_extra_is_named(client, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "turnscore_client._grpc", raising=False)
    with pytest.raises(ImportError, match=r"`grpc` of turnscore-client \(.*: pip install '\./clients\[grpc\]'"):
        client("127.0.0.1:9")


async def test_calls_take_turns_among_all_addresses_of_a_name():
    scorers = [FakeScorer(), FakeScorer()]
    async with service(fake=scorers[0]) as (first, _), service(fake=scorers[1]) as (second, _):
        channel = open_channel(grpc.aio, f"ipv4:{first},{second}", None)
        async with channel, turnscore_client.AsyncTurnScoreGrpcClient(channel=channel) as client, asyncio.timeout(60):
            said = 0
            while min(len(each.encoded) for each in scorers) < 3:  # a new text each: nothing comes from the cache
                said += 1
                await client.score(response=f"text {said}")


LIBRARY_STATUSES = [
    (grpc.StatusCode.UNAVAILABLE, turnscore_client.ConnectionFailedError, True),
    (grpc.StatusCode.CANCELLED, turnscore_client.ConnectionFailedError, True),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, turnscore_client.OverloadedError, True),
    (grpc.StatusCode.DEADLINE_EXCEEDED, turnscore_client.DeadlineExceededError, False),
    (grpc.StatusCode.INVALID_ARGUMENT, turnscore_client.UnexpectedReplyError, False),
    (grpc.StatusCode.UNIMPLEMENTED, turnscore_client.NotFoundError, False),
]


@pytest.mark.parametrize(("code", "error_class", "is_tried_again"), LIBRARY_STATUSES)
async def test_a_library_s_status_is_tried_again_where_the_call_did_not_get_there(
    call, code, error_class, is_tried_again
):
    given = {"clock": ManualClock(), "max_retries": 1}
    async with scripted(bare(code), bare(code), MODELS) as (address, calls):
        with pytest.raises(error_class):
            await call(address, "models", client=given)
        assert len(calls) == 1 + is_tried_again
        if is_tried_again:
            await call(address, "models", client=given)


async def test_the_delay_that_trailers_ask_for_is_kept(call):
    clock = ManualClock()
    for trailers in ((("grpc-retry-pushback-ms", "700"),), (("grpc-retry-pushback-ms", "soon"),)):
        async with scripted(bare(grpc.StatusCode.RESOURCE_EXHAUSTED, *trailers), MODELS) as (address, _):
            await call(address, "models", client={"clock": clock})
    assert 0.7 <= clock.sleeps[0] <= 0.77
    assert clock.sleeps[1] <= 0.1


async def test_an_answer_that_is_no_message_is_told(call):
    async with scripted(b"<html>") as (address, _):
        with pytest.raises(turnscore_client.UnexpectedReplyError) as raised:
            await call(address, "models")
    assert raised.value.body_start == "<html>"
