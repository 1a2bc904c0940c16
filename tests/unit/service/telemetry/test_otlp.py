"""A collector's reply is bounded in bytes, packed or not."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import requests
from support.plain_http import Handler, handled_by
from turnscore_service.telemetry.otlp import MAX_REPLY_BYTES, _bounded_session

SENT_AT_MOST = 64 * MAX_REPLY_BYTES


@contextmanager
def collector(kind: str) -> Iterator[tuple[str, list[int]]]:
    """An address, and how many bytes of its reply were sent when it ended or its reader left."""
    sent = [0]

    class TooMuch(Handler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
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
def test_a_reply_of_too_much_is_left_and_is_a_failed_export(kind: str):
    with collector(kind) as (url, sent), _bounded_session() as session:
        with pytest.raises(requests.exceptions.ConnectionError, match=f"more than {MAX_REPLY_BYTES} bytes"):
            session.post(url, data=b"spans", timeout=10)
        assert sent[0] < SENT_AT_MOST
