"""OpenTelemetry's collectors, small ones of this process: what they got, as they got it over the wire."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from support.plain_http import Handler, handled_by

_OVER_GRPC = "opentelemetry.proto.collector"


@dataclass
class Collector:
    """What came to it."""

    endpoint: str = ""
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    def take_spans(self, data: bytes) -> None:
        self.raw.append(data)
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.resources.append(resource.resource)
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def take_logs(self, data: bytes) -> None:
        self.raw.append(data)
        for resource in ExportLogsServiceRequest.FromString(data).resource_logs:
            for scope in resource.scope_logs:
                self.logs += scope.log_records


def attributes_of(span_or_log: Any) -> dict[str, Any]:
    """Its attributes as plain values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span_or_log.attributes}


@contextmanager
def http_collector() -> Iterator[Collector]:
    """Over HTTP, on a free port."""
    collector = Collector()

    class Traces(Handler):
        def do_POST(self) -> None:
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            take = {"/v1/traces": collector.take_spans, "/v1/logs": collector.take_logs}[self.path]
            take(self.body())
            self.answer(200)

    with handled_by(Traces) as collector.endpoint:
        yield collector


@contextmanager
def grpc_collector() -> Iterator[Collector]:
    """Over gRPC, on a free port."""
    collector = Collector()

    def method(take: Any, reply: Any) -> Any:
        def export(data: bytes, context: grpc.ServicerContext) -> Any:
            collector.headers.append({key: str(value) for key, value in context.invocation_metadata()})
            take(data)
            return reply

        return grpc.unary_unary_rpc_method_handler(export, response_serializer=lambda each: each.SerializeToString())

    traces = {"Export": method(collector.take_spans, ExportTraceServiceResponse())}
    logs = {"Export": method(collector.take_logs, ExportLogsServiceResponse())}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(f"{_OVER_GRPC}.trace.v1.TraceService", traces),
            grpc.method_handlers_generic_handler(f"{_OVER_GRPC}.logs.v1.LogsService", logs),
        )
    )
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
