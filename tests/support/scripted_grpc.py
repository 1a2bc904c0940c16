"""A gRPC server of a test's own making: it gives the answers it was told to, as turnscore or as anything else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from turnscore_service.api.grpc.endpoints import status_of
from turnscore_wire import ErrorCode, ErrorDetail, ErrorReply, ModelsReply
from turnscore_wire.v1 import to_message

MODELS = to_message(ModelsReply.model_validate({"request_id": "r", "models": [], "limits": {}})).SerializeToString()


Answer = bytes | tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]


@asynccontextmanager
async def scripted(*answers: Answer) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers, one a call and the last one for ever, and tells the calls' metadata."""
    script, calls = list(answers), []

    async def respond(data: bytes, context: Any) -> bytes:
        calls.append(dict(context.invocation_metadata()))
        answer = script.pop(0) if len(script) > 1 else script[0]
        if not isinstance(answer, bytes):
            await context.abort(*answer)
        return answer

    class AnyCall(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(respond)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((AnyCall(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}", calls
    await server.stop(None)


def told(code: ErrorCode, retry_after_ms: int | None = None) -> Answer:
    """The status of an error of turnscore's, with its details."""
    detail = ErrorDetail(code=code, message="because", field="response", retry_after_ms=retry_after_ms)
    return status_of(ErrorReply(error=detail, request_id="r-9"))


def bare(code: grpc.StatusCode, *trailers: tuple[str, str | bytes], details: str = "a library's words") -> Answer:
    """A status without details, as gRPC libraries and proxies give it."""
    return code, details, trailers
