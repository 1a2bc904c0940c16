"""gRPC by itself: bytes, ids, deadlines, callers that leave, sizes, compression."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from support.conditions import until
from support.fakes import FakeScorer, sample
from support.transports import error_of, grpc_server, grpc_stub, settings_with
from turnscore_service.api.grpc.endpoints import SERVICE, deadline_of
from turnscore_wire import Limits
from turnscore_wire.v1 import turnscore_pb2

ScoreRequest = turnscore_pb2.ScoreRequest
A_TURN = ScoreRequest(response="one two")


def requests(call: str, code: str) -> float:
    return sample("requests_total", transport="grpc", call=call, code=code)


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


def raw(channel: grpc.aio.Channel, method: str = "Score") -> Any:
    """A call that sends and receives plain bytes."""
    return channel.unary_unary(f"/{SERVICE}/{method}")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x2a\x02\xff\xff",  # field 5, response, with bytes that are not UTF-8
        b"\x12\xc8\x01" + b"\x0a" * 200,
    ],
)
async def test_bytes_that_are_no_message_are_refused_and_counted(data: bytes):
    before = requests("score", "invalid_request")
    async with (
        grpc_server(fake=FakeScorer()) as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        told = error_of(await refusal(raw(channel)(data)))
    assert (told.error.code, told.error.field) == ("invalid_request", "body")
    assert requests("score", "invalid_request") == before + 1


def withheld(channel: grpc.aio.Channel) -> Any:
    """A call whose message never comes: to the server it looks like any other."""
    return channel.stream_unary(f"/{SERVICE}/Score")()


async def test_a_call_without_its_message_ends_like_a_body_that_does_not_come():
    before = requests("score", "deadline_exceeded")
    async with (
        grpc_server(settings_with(default_deadline_ms=200), fake=FakeScorer()) as (server, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        told = error_of(await refusal(withheld(channel)))
    assert (told.error.code, told.error.field) == ("deadline_exceeded", "body")
    assert requests("score", "deadline_exceeded") == before + 1


async def test_calls_beyond_the_bound_are_refused_over_however_many_connections():
    async with AsyncExitStack() as stack:
        settings = settings_with(grpc={"max_concurrent_calls": 3})
        server, _ = await stack.enter_async_context(grpc_server(settings, fake=FakeScorer()))
        options = [("grpc.use_local_subchannel_pool", 1)]
        target = f"127.0.0.1:{server.port}"
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=options)) for _ in range(4)
        ]
        waiting = [withheld(channel) for channel in channels[:3]]
        await until(lambda: server._endpoints.in_flight.count == 3)
        assert (await refusal(raw(channels[3])(b""))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in waiting:
            call.cancel()
        await until(lambda: server._endpoints.in_flight.count == 0)
        assert await raw(channels[3])(A_TURN.SerializeToString())


async def test_options_nested_too_deeply_are_refused():
    request = ScoreRequest(response="a")
    inner = request.options["fake"]
    for _ in range(200):
        inner = inner.get_or_create_struct("known")
    async with grpc_stub(fake=FakeScorer()) as (stub, _):
        told = error_of(await refusal(stub.Score(request)))
    assert (told.error.code, told.error.field) == ("invalid_request", "body")


async def test_a_message_beyond_the_limit_is_too_large():
    settings = settings_with(limits=Limits(max_body_bytes=300))
    async with grpc_stub(settings, fake=FakeScorer()) as (stub, _):
        error = await refusal(stub.Score(ScoreRequest(response="a " * 200)))
    assert error.code() == grpc.StatusCode.OUT_OF_RANGE
    assert (error_of(error).error.code, error_of(error).error.field) == ("too_large", "body")


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_the_transport_breaks_off_what_is_far_too_large_before_it_is_decompressed(compression: grpc.Compression):
    settings = settings_with(grpc={"max_message_bytes": 1000})
    async with grpc_stub(settings, fake=FakeScorer()) as (stub, _):
        error = await refusal(stub.Score(ScoreRequest(response="a" * 100_000), compression=compression))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.Score(A_TURN)).scores["fake"].value == 0.02


# The deadline leaves time for the call to arrive on a busy machine.
@pytest.mark.parametrize(("timeout", "code"), [(3.0, "deadline_exceeded"), (None, "departed")])
async def test_work_of_a_call_that_is_cut_is_dropped_and_counted_by_why(timeout: float | None, code: str):
    scorer, before = FakeScorer(), requests("score", code)
    async with grpc_stub(fake=scorer) as (stub, _):
        scorer.gate.clear()
        first = stub.Score(A_TURN)
        await asyncio.to_thread(scorer.started.wait)
        cut = stub.Score(ScoreRequest(response="never computed " * 5), timeout=timeout)
        await until(lambda: sample("items_in_flight", scorer="fake") == 2)
        if timeout is None:
            cut.cancel()
        await until(lambda: requests("score", code) == before + 1)
        scorer.gate.set()
        assert (await first).scores["fake"].value == 0.02
        assert (await stub.Score(ScoreRequest(response="a"))).scores["fake"].value == 0.01
    assert scorer.batches == [[2], [1]]


class Left:
    """A call's context that knows only how much time is left."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    def time_remaining(self) -> float | None:
        return self.seconds


@pytest.mark.parametrize(("left", "own_ms", "expected"), [(None, None, 10.0), (2.0, 3000, 2.0), (4.0, 3000, 3.0)])
def test_the_earlier_of_both_deadlines_holds(left: float | None, own_ms: int | None, expected: float):
    deadline = deadline_of(Left(left), own_ms, default_ms=10_000)
    assert deadline.remaining_seconds() == pytest.approx(expected, abs=0.1)
