"""Replies: typed replies, typed errors, and bodies that are not ours."""

import json

import pytest
from turnscore_client import OverloadedError, UnexpectedReplyError
from turnscore_client._http.replies import Answer, read_reply, retry_after_header_ms
from turnscore_wire import ModelsReply

OURS = {"error": {"code": "overloaded", "message": "full"}, "request_id": "r-1"}


def read(status, body, headers=None):
    return read_reply(Answer(status, headers or {}, body), ModelsReply)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30_000),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 -0000", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date(headers, expected):
    assert retry_after_header_ms(headers) == expected


def test_the_bodys_retry_after_goes_before_the_headers():
    body = {**OURS, "error": {**OURS["error"], "retry_after_ms": 70}}
    with pytest.raises(OverloadedError) as raised:
        read(429, json.dumps(body).encode(), {"retry-after": "1"})
    assert raised.value.retry_after_ms == 70


def test_the_headers_retry_after_serves_where_the_body_has_none():
    with pytest.raises(OverloadedError) as raised:
        read(429, json.dumps(OURS).encode(), {"retry-after": "1"})
    assert raised.value.retry_after_ms == 1000


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, b"<html><title>Bad Gateway</title>"),
        (200, b"<html>log in first</html>"),
        (200, b'{"models": "all"}'),
        (200, b""),
        (204, b""),
        (302, b""),
        (500, b"\xff\xfe\x00"),
        (418, b'{"error": {"code": "teapot", "message": "short and stout"}, "request_id": "r-1"}'),
        (422, b'{"detail": []}'),
    ],
)
def test_a_body_that_is_not_ours_is_an_unexpected_reply(status, body):
    with pytest.raises(UnexpectedReplyError) as raised:
        read(status, body, {"content-type": "text/html; charset=utf-8", "x-request-id": "r-9"})
    assert raised.value.status == status
    assert raised.value.request_id == "r-9"
    assert f"status {status}" in str(raised.value)
    assert "text/html" in str(raised.value)


def test_an_unexpected_reply_holds_the_start_of_its_body_only():
    with pytest.raises(UnexpectedReplyError) as raised:
        read(502, "ü".encode() * 1_000_000)
    assert raised.value.body_start == "ü" * 200


def test_a_reply_with_fields_of_a_later_version_is_read():
    body = {"request_id": "r-1", "models": [], "limits": {}, "weather": "fine"}
    assert read(200, json.dumps(body).encode()).request_id == "r-1"
