"""Who is sampled, that telemetry never costs a call its answer, and that a collector's reply is bounded."""

import gzip
import threading
from contextlib import contextmanager, suppress

import pytest
import requests
from support.plain_http import Handler, handled_by
from turnscore_service.telemetry import recorder as module
from turnscore_service.telemetry.otlp import MAX_REPLY_BYTES, OtlpExporter, _bounded_session
from turnscore_service.telemetry.recorder import TelemetryRecorder

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collected:
    """Keeps what it is given; `gate` holds it back, `error` is raised."""

    def __init__(self):
        self.ended = []
        self.gate = threading.Event()
        self.gate.set()
        self.error = None
        self.is_closed = False

    find_caller = OtlpExporter.find_caller

    def export(self, ended):
        self.gate.wait()
        self.ended.append(ended)
        if self.error is not None:
            raise self.error

    def close(self):
        self.is_closed = True


SAMPLING = [
    (0.0, "off", None, False),
    (0.0, "sampled", None, False),
    (0.0, "all", None, True),
    (1.0, "off", None, True),
    (0.0, "off", "01", True),  # the caller's span decides
    (1.0, "off", "00", False),
    (1.0, "all", "00", True),
    (0.0, "sampled", "01-" + "x" * 100_000, False),  # which names no span
]


@pytest.mark.parametrize(("share", "events", "flag", "is_begun"), SAMPLING)
def test_only_what_is_to_be_recorded_is_begun(share, events, flag, is_begun):
    recorder = TelemetryRecorder(Collected(), sample_share=share, events=events)
    carrier = {} if flag is None else {"traceparent": f"00-{TRACE}-{SPAN}-{flag}"}
    assert (recorder.begin("http", "score", carrier) is not None) == is_begun
    recorder.close()


def test_a_full_queue_drops_and_counts_and_never_waits(monkeypatch):
    monkeypatch.setattr(module, "_MOST_WAITING", 2)
    collected = Collected()
    collected.gate.clear()
    recorder = TelemetryRecorder(collected, sample_share=1.0, events="off")
    for _ in range(6):
        recorder.begin("http", "score", {}).end("ok", None, "a")
    assert recorder.dropped >= 3  # two wait, and the thread may hold one
    collected.gate.set()
    recorder.close()
    assert len(collected.ended) + recorder.dropped == 6
    assert collected.is_closed


def test_an_exporter_that_fails_loses_that_call_alone(caplog):
    collected = Collected()
    collected.error = ValueError("a secret dialogue")
    recorder = TelemetryRecorder(collected, sample_share=1.0, events="off")
    for _ in range(2):
        recorder.begin("http", "score", {}).end("ok", None, "a")
    recorder.close()
    assert len(collected.ended) == 2
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


SENT_AT_MOST = 64 * MAX_REPLY_BYTES


@contextmanager
def collector(kind):
    """An address, and how many bytes of its reply were sent when it ended or its reader left."""
    sent = [0]

    class TooMuch(Handler):
        protocol_version = "HTTP/1.0"

        def do_POST(self):
            self.body()
            with suppress(OSError):
                if kind == "packed":
                    self.answer(200, gzip.compress(bytes(SENT_AT_MOST)), content_encoding="gzip")
                else:
                    self.send_response(200)
                    self.end_headers()
                    while sent[0] < SENT_AT_MOST:
                        self.wfile.write(bytes(65536))
                        sent[0] += 65536

    with handled_by(TooMuch) as url:
        yield f"{url}/v1/traces", sent


@pytest.mark.parametrize("kind", ["endless", "packed"])
def test_a_reply_of_too_much_is_left_and_is_a_failed_export(kind):
    with collector(kind) as (url, sent), _bounded_session() as session:
        with pytest.raises(requests.exceptions.ConnectionError, match=f"more than {MAX_REPLY_BYTES} bytes"):
            session.post(url, data=b"spans", timeout=10)
        assert sent[0] < SENT_AT_MOST
