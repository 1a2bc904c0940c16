"""Replies: typed replies, typed errors, and bodies that are not ours."""

import json
import pickle
import socket
import threading
import zlib
from contextlib import suppress

import pytest
from turnscore_client import ConnectionFailedError, ErrorCode, TurnScoreClient, UnexpectedReplyError
from turnscore_client._defaults import MAX_REPLY_BYTES
from turnscore_client._errors import ERROR_CLASSES
from turnscore_client._http import HttpAnswer, read_reply, retry_after_header_ms
from turnscore_client.testing import MockTurnScore
from turnscore_wire import ModelsReply


def read(status, body, headers=None):
    return read_reply(HttpAnswer(status, headers or {}, body), ModelsReply)


RETRY_AFTER = [
    ({}, None), ({"retry-after": "2"}, 2000), ({"retry-after": "-1"}, None), ({"retry-after": "soon"}, None),
    ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30_000),
    ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("headers", "expected"), RETRY_AFTER)
def test_retry_after_is_read_in_seconds_and_as_a_date(headers, expected):
    assert retry_after_header_ms(headers) == expected


FOREIGN_BODIES = [
    (502, b"<html><title>Bad Gateway</title>"),
    (200, b'{"models": "all"}'),
    (200, b""),
    (500, b"\xff\xfe\x00"),
    (418, b'{"error": {"code": "teapot", "message": "short and stout"}, "request_id": "r-1"}'),
]


@pytest.mark.parametrize(("status", "body"), FOREIGN_BODIES)
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


@pytest.mark.parametrize("head", [b"", b"Content-Encoding: gzip\r\n"])
def test_a_service_that_never_ends_its_reply_is_left(head):
    """Over a real connection: what comes is counted before and after it is unpacked."""
    unpacked = bytes(2**20)
    packer = zlib.compressobj(wbits=31)
    first = packer.flush(zlib.Z_FULL_FLUSH) if head else b" "
    chunk = packer.compress(unpacked) + packer.flush(zlib.Z_FULL_FLUSH) if head else unpacked

    def answer(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while not connection.recv(65536).endswith(b"}"):  # the end of the request's body
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + head + b"\r\n")
            connection.sendall(b"%x\r\n%s\r\n" % (len(first), first))
            for _ in range(3 * MAX_REPLY_BYTES // 2**20):
                connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            connection.sendall(b"0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer, args=(listener,))
        server.start()
        refused = pytest.raises(UnexpectedReplyError, match=f"more than {MAX_REPLY_BYTES} bytes")
        with TurnScoreClient(f"http://127.0.0.1:{listener.getsockname()[1]}", max_retries=0) as client, refused:
            client.score(response="a", timeout_seconds=60)
        server.join(60)
        assert not server.is_alive()


def test_a_printed_reply_is_one_line_with_what_most_look_for():
    with MockTurnScore(scores=lambda request: {"quality": 0.25}, thresholds={"quality": 0.4}).client() as client:
        reply = client.score(response="ok.")
        dialogue = client.score_dialogue([("system", f"turn {number}") for number in range(60)])
        ranking = client.rank([f"reply {number}" for number in range(60)])
        batch = client.score_batch([{"response": "ok."}] * 60)
    score = reply.scores["quality"]
    assert repr(score) == "Score(value=0.25, percentile=25.0, label='low', model='quality:0.0.0')"
    assert str(score.model_copy(update={"warnings": ["response_cut"]})).endswith("warnings=['response_cut']")
    assert repr(reply) == f"ScoreReply(scores={{'quality': {score!r}}})"
    assert str(dialogue).startswith("turns=60 dialogue={'quality': DialogueAggregate(mean=0.25, turns=60, ")
    assert str(ranking).startswith("best=0 combined=")
    assert str(batch) == "results=60"
    assert all(len(repr(each)) < 200 and "\n" not in repr(each) for each in (reply, dialogue, ranking, batch))


ERRORS = [
    ERROR_CLASSES[ErrorCode.OVERLOADED]("full", "items.3", 50, "r-1"),
    UnexpectedReplyError("a page", 502, "<html>", "r-2"),
    ConnectionFailedError("refused"),
]


@pytest.mark.parametrize("error", ERRORS)
def test_errors_survive_pickling(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
