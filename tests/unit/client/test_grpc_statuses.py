"""Statuses over gRPC, turnscore's and other people's: which are tried again, after which delay, as which error."""

import grpc
import pytest
from support.transports import MODELS, bare, scripted, told
from turnscore_client import (
    ConnectionFailedError,
    DeadlineExceededError,
    NotFoundError,
    OverloadedError,
    TurnScoreError,
    UnexpectedReplyError,
)
from turnscore_client.testing import ManualClock
from turnscore_wire import ERROR_TABLE, ErrorCode


@pytest.mark.parametrize("code", list(ErrorCode))
async def test_turnscores_statuses_are_tried_again_as_the_table_says(call, code):
    clock = ManualClock()
    async with scripted(told(code, retry_after_ms=70), MODELS) as (address, calls):
        if ERROR_TABLE[code].is_retryable:
            await call(address, "models", client={"clock": clock})
            assert 0.07 <= clock.sleeps[0] <= 0.077
        else:
            with pytest.raises(TurnScoreError) as raised:
                await call(address, "models", client={"clock": clock})
            assert (raised.value.code, raised.value.request_id, clock.sleeps) == (code, "r-9", [])
    assert len(calls) == 1 + ERROR_TABLE[code].is_retryable


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (grpc.StatusCode.UNAVAILABLE, ConnectionFailedError),
        (grpc.StatusCode.CANCELLED, ConnectionFailedError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
    ],
)
async def test_a_librarys_status_of_a_call_that_did_not_get_there_is_tried_again(call, code, error_class):
    clock = ManualClock()
    async with scripted(bare(code), bare(code), MODELS) as (address, calls):
        await call(address, "models", client={"clock": clock})
        assert len(calls) == 3
    async with scripted(bare(code)) as (address, calls):
        with pytest.raises(error_class):
            await call(address, "models", client={"clock": clock, "max_retries": 1})
        assert len(calls) == 2


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceededError),
        (grpc.StatusCode.INVALID_ARGUMENT, UnexpectedReplyError),
        (grpc.StatusCode.UNIMPLEMENTED, NotFoundError),
    ],
)
async def test_any_other_status_of_a_library_is_raised_at_once(call, code, error_class):
    async with scripted(bare(code), MODELS) as (address, calls):
        with pytest.raises(error_class):
            await call(address, "models", client={"clock": ManualClock()})
    assert len(calls) == 1


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
