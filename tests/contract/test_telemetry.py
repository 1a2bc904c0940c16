"""Telemetry: calls of every transport arrive at a collector as spans and events, and nothing of what was said."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from support.fakes import POISON, FakeScorer
from support.plain_http import Handler, handled_by
from support.transports import serve_transports
from turnscore_service.settings.service import Settings
from turnscore_service.telemetry.recorder import MissingExporterError, require_exporter
from turnscore_wire.v1 import turnscore_pb2
from turnscore_wire.v1.turnscore_pb2_grpc import TurnScorerStub
from websockets.asyncio.client import connect

OVER_GRPC = "opentelemetry.proto.collector"


@dataclass
class Collector:
    """What came to it."""

    endpoint: str = ""
    raw: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[Any] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)

    def take_spans(self, data):
        self.raw.append(data)
        for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.resources.append(resource.resource)
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def take_logs(self, data):
        self.raw.append(data)
        for resource in ExportLogsServiceRequest.FromString(data).resource_logs:
            for scope in resource.scope_logs:
                self.logs += scope.log_records


def attributes_of(span_or_log):
    """Its attributes as plain values."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span_or_log.attributes}


@contextmanager
def http_collector():
    """Over HTTP, on a free port."""
    collector = Collector()

    class Traces(Handler):
        def do_POST(self):
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            take = {"/v1/traces": collector.take_spans, "/v1/logs": collector.take_logs}[self.path]
            take(self.body())
            self.answer(200)

    with handled_by(Traces) as collector.endpoint:
        yield collector


@contextmanager
def grpc_collector():
    """Over gRPC, on a free port."""
    collector = Collector()

    def method(take, reply):
        def export(data, context):
            collector.headers.append({key: str(value) for key, value in context.invocation_metadata()})
            take(data)
            return reply

        return grpc.unary_unary_rpc_method_handler(export, response_serializer=lambda each: each.SerializeToString())

    traces = {"Export": method(collector.take_spans, ExportTraceServiceResponse())}
    logs = {"Export": method(collector.take_logs, ExportLogsServiceResponse())}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(f"{OVER_GRPC}.trace.v1.TraceService", traces),
            grpc.method_handlers_generic_handler(f"{OVER_GRPC}.logs.v1.LogsService", logs),
        )
    )
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
SAID = ["the weather in grimsby", "my landlady snores"]
DIALOGUE = [{"speaker": "user", "text": SAID[0]}, {"speaker": "system", "text": SAID[1]}]


async def call_every_transport(transports):
    """A turn, a dialogue, a ranking and a refusal over HTTP; a turn over gRPC; a conversation at both transports."""
    assert (await transports.http.post("/v1/score", json={"response": SAID[0]}, headers=CALLER)).is_success
    assert (await transports.http.post("/v1/score_dialogue", json={"turns": DIALOGUE}, headers=CALLER)).is_success
    assert (await transports.http.post("/v1/rank", json={"candidates": SAID}, headers=CALLER)).is_success
    assert (await transports.http.post("/v1/score", json={"response": POISON}, headers=CALLER)).status_code == 500
    stub = TurnScorerStub(transports.grpc)
    await stub.Score(turnscore_pb2.ScoreRequest(response=SAID[1]), metadata=tuple(CALLER.items()))
    turn = {"speaker": "system", "text": SAID[1]}
    async with connect(transports.websocket, additional_headers=CALLER) as socket:
        await socket.send(json.dumps({"turn": turn}))
        await socket.recv()
    stream = stub.ScoreStream(metadata=tuple(CALLER.items()))
    await stream.write(
        turnscore_pb2.ConversationMessage(turn=turnscore_pb2.ConversationTurn(speaker="SPEAKER_SYSTEM", text=SAID[1]))
    )
    await stream.read()
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


def settings_for(collector, **given):
    return {"endpoint": collector.endpoint, "headers": {"X-Tenant": "mine"}, **given}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_every_transport_s_calls_arrive_as_spans_and_events_under_the_callers_span(protocol):
    with http_collector() if protocol == "http" else grpc_collector() as collector:
        telemetry = settings_for(collector, protocol=protocol)
        async with serve_transports({}, FakeScorer(), telemetry=telemetry) as transports:
            await call_every_transport(transports)
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    assert {span.parent_span_id.hex() for span in collector.spans} == {SPAN}
    assert sorted(span.name for span in collector.spans) == [
        "GET /v1/conversations", "POST /v1/rank", "POST /v1/score", "POST /v1/score", "POST /v1/score_dialogue",
        "turn", "turn", "turnscore.v1.TurnScorer/Score", "turnscore.v1.TurnScorer/ScoreStream",
    ]  # fmt: skip
    [failed] = [span for span in collector.spans if span.status.code == 2]
    assert attributes_of(failed)["error.type"] == "internal"
    assert attributes_of(failed)["http.response.status_code"] == 500
    [over_grpc] = [span for span in collector.spans if span.name == "turnscore.v1.TurnScorer/Score"]
    told = attributes_of(over_grpc)
    assert (told["rpc.response.status_code"], told["turnscore.turns"]) == ("OK", 1)
    assert min(told[f"turnscore.{part}.duration"] for part in ("tokenize", "queue", "inference", "cache")) >= 0
    assert over_grpc.end_time_unix_nano > over_grpc.start_time_unix_nano
    assert all(header["x-tenant"] == "mine" for header in collector.headers)
    [name] = {each.value.string_value for each in collector.resources[0].attributes if each.key == "service.name"}
    assert name == "turnscore"

    assert {log.event_name for log in collector.logs} == {"gen_ai.evaluation.result"}
    assert {(log.trace_id.hex(), log.span_id.hex()) for log in collector.logs} == {(TRACE, SPAN)}
    events = [attributes_of(log) for log in collector.logs]
    assert len(events) == 7  # two turns, one of a dialogue, two candidates, two said in conversations
    assert {event["gen_ai.evaluation.name"] for event in events} == {"turnscore.fake"}
    assert all(0 <= event["gen_ai.evaluation.score.value"] <= 1 and event["turnscore.model"] for event in events)
    assert sorted(event.get("turnscore.turn_index", -1) for event in events) == [-1, -1, -1, -1, 0, 0, 1]
    everything = b"".join(collector.raw)
    assert everything
    for text in (*SAID, POISON):
        assert text.encode() not in everything


async def test_where_all_scores_are_events_those_of_a_batch_are_without_a_span():
    with http_collector() as collector:
        async with serve_transports(
            {}, FakeScorer(), telemetry=settings_for(collector, sample_share=0.0, events="all")
        ) as transports:
            items = [{"response": "a"}, {"response": "b c", "scorers": ["fake"]}]
            assert (await transports.http.post("/v1/score_batch", json={"items": items})).is_success
    assert collector.spans == []  # chance sampled none, and no caller asked for one
    assert [attributes_of(log)["turnscore.item_index"] for log in collector.logs] == [0, 1]
    assert {log.trace_id for log in collector.logs} == {b""}


async def test_a_sampled_call_without_a_caller_s_span_is_the_parent_of_its_events():
    with http_collector() as collector:
        telemetry = settings_for(collector, sample_share=1.0, events="sampled")
        async with serve_transports({}, FakeScorer(), telemetry=telemetry) as transports:
            await transports.http.post("/v1/score", json={"response": "a"})
    [span], [log] = collector.spans, collector.logs
    assert (log.trace_id, log.span_id) == (span.trace_id, span.span_id)
    assert span.parent_span_id == b""


async def test_a_collector_that_is_not_there_costs_no_answer(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")  # seconds, retries included: the end waits for them
    telemetry = {"endpoint": "http://127.0.0.1:9", "sample_share": 1.0}
    async with serve_transports({}, FakeScorer(), telemetry=telemetry) as transports:
        assert (await transports.http.post("/v1/score", json={"response": "a"})).is_success


def test_a_protocol_without_its_package_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("turnscore_service.telemetry.recorder.find_spec", lambda _: None)
    require_exporter(Settings().telemetry)
    wanted = Settings.model_validate({"telemetry": {"endpoint": "http://collector:4317", "protocol": "grpc"}})
    with pytest.raises(MissingExporterError, match="opentelemetry-exporter-otlp-proto-grpc"):
        require_exporter(wanted.telemetry)
