"""Statuses that gRPC libraries and proxies give: which are tried again, after which delay, as which error."""

import grpc
import pytest
from support.transports import MODELS, bare, scripted
from turnscore_client import (
    ConnectionFailedError,
    DeadlineExceededError,
    NotFoundError,
    OverloadedError,
    UnexpectedReplyError,
)
from turnscore_client.testing import ManualClock


@pytest.mark.parametrize(
    ("code", "error_class", "is_tried_again"),
    [
        (grpc.StatusCode.UNAVAILABLE, ConnectionFailedError, True),
        (grpc.StatusCode.CANCELLED, ConnectionFailedError, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceededError, False),
        (grpc.StatusCode.INVALID_ARGUMENT, UnexpectedReplyError, False),
        (grpc.StatusCode.UNIMPLEMENTED, NotFoundError, False),
    ],
)
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
        with pytest.raises(UnexpectedReplyError) as raised:
            await call(address, "models")
    assert raised.value.body_start == "<html>"
