"""Phoenix, its real server on SQLite: annotations are written and read back."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.studies import AGGREGATES, scored
from turnscore_client.integrations import TurnIds

pytest.importorskip("phoenix.client", reason="Phoenix is not installed: make integrations")

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from phoenix.client import Client
from turnscore_client.writers import dialogue_entries
from turnscore_client.writers.phoenix_writer import PhoenixWriter


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Phoenix of its own; it starts in some 20 s."""
    folder = tmp_path_factory.mktemp("phoenix")
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    own = {"PHOENIX_WORKING_DIR": str(folder), "PHOENIX_PORT": ports[0], "PHOENIX_GRPC_PORT": ports[1]}
    own |= {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_TELEMETRY_ENABLED": "false"}
    command = [sys.executable, "-m", "phoenix.server.main", "serve"]
    with Path(folder, "log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    with process:
        url = f"http://127.0.0.1:{ports[0]}"
        until = time.monotonic() + 240
        while True:
            try:
                if httpx.get(f"{url}/healthz", timeout=5).is_success:
                    break
            except httpx.HTTPError:
                assert process.poll() is None, Path(folder, "log").read_text()[-2000:]
            assert time.monotonic() < until
            time.sleep(0.5)
        yield url
        process.terminate()


def trace_one(url: str, session: str) -> str:
    """A chatbot's span in that session; its id."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
    with provider.get_tracer("chatbot").start_as_current_span("reply", attributes={"session.id": session}) as span:
        pass
    provider.shutdown()
    return f"{span.get_span_context().span_id:016x}"


def test_annotations_of_spans_and_sessions_are_read_back(server: str):
    span_id = trace_one(server, "chat 7")
    client = Client(base_url=server)
    until = time.monotonic() + 60
    while not client.spans.get_spans(project_identifier="default"):
        assert time.monotonic() < until
        time.sleep(0.2)
    writer = PhoenixWriter(client)
    for value in (0.75, 0.25):  # the second replaces the first
        writer(scored(TurnIds(span_id=span_id), value))
    for entry in dialogue_entries(AGGREGATES, TurnIds(session_id="chat 7")):
        writer.write(entry)
    writer.close()
    [turn] = client.spans.get_span_annotations(span_ids=[span_id], project_identifier="default")
    assert (turn["name"], turn["annotator_kind"], turn["span_id"]) == ("turnscore.quality", "CODE", span_id)
    assert turn["result"]["score"] == 0.25
    assert (turn["result"]["label"], turn["result"]["explanation"]) == ("low", "12 of 100 reference turns score lower")
    assert turn["metadata"]["turnscore.model"] == "quality:1.0.0"
    asked = httpx.get(f"{server}/v1/projects/default/session_annotations", params={"session_ids": "chat 7"}, timeout=30)
    [session] = asked.raise_for_status().json()["data"]
    assert (session["name"], session["result"]["score"]) == ("turnscore.quality", 0.5)
