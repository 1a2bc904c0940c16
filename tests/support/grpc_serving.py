"""gRPC on a free port of this process, and what its errors say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from turnscore_service.api.grpc.server import GrpcServer
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import Settings
from turnscore_wire import ErrorReply
from turnscore_wire.v1 import to_fields, turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub

from support.fakes import loaded_fake


def settings_with(**groups: Any) -> Settings:
    """Settings whose gRPC listens on a free port."""
    return Settings.model_validate({**groups, "grpc": {"port": 0, **groups.get("grpc", {})}})


@asynccontextmanager
async def grpc_server(
    settings: Settings | None = None, beside: CandidateVersions | None = None, **scorers: Any
) -> AsyncIterator[tuple[GrpcServer, Runtime]]:
    """A started server on fakes; `settings` come from `settings_with`."""
    loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
    versions = beside or CandidateVersions()
    runtime = Runtime(settings or settings_with(), load=lambda _: loaded, load_candidate=lambda *_: versions)
    server = GrpcServer(runtime)
    runtime.start()
    await server.start()
    await runtime.wait_until_loaded()
    try:
        yield server, runtime
    finally:
        await server.stop()
        await runtime.stop()


@asynccontextmanager
async def grpc_stub(
    settings: Settings | None = None, beside: CandidateVersions | None = None, **scorers: Any
) -> AsyncIterator[tuple[TurnScorerStub, Runtime]]:
    """The generated stub, on a connection to such a server."""
    async with (
        grpc_server(settings, beside, **scorers) as (server, runtime),
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield TurnScorerStub(channel), runtime


def error_of(error: grpc.aio.AioRpcError) -> ErrorReply:
    """What the trailers of an unsuccessful call say."""
    trailers = dict(error.trailing_metadata() or ())
    status = turnscore_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.message == error.details()
    [detail] = status.details
    assert isinstance(detail, AnyMessage)
    reply = turnscore_pb2.ErrorReply()
    assert detail.Unpack(reply)
    told = ErrorReply.model_validate(to_fields(reply))
    assert trailers["x-request-id"] == told.request_id
    return told
