"""TLS: calls and conversations of every client trust the same authorities and show the same certificate."""

import asyncio
import ssl
import threading
from collections import defaultdict

import pytest
from support.certificates import certificate, private_key
from support.fakes import FakeScorer
from support.files import invoke, write_lines
from support.transports import served_app, settings_with
from turnscore_client import (
    AsyncTurnScoreClient,
    AsyncTurnScoreGrpcClient,
    ConnectionFailedError,
    Tls,
    TurnScoreClient,
    TurnScoreError,
    TurnScoreGrpcClient,
)
from turnscore_client._command.registry import app

SERVER = {"ssl_certfile": str(certificate("server")), "ssl_keyfile": str(private_key("server"))}
MUTUAL = {**SERVER, "ssl_ca_certs": str(certificate("authority")), "ssl_cert_reqs": int(ssl.CERT_REQUIRED)}
GRPC_SERVER = {"tls_cert_file": certificate("server"), "tls_key_file": private_key("server")}
GRPC_MUTUAL = {**GRPC_SERVER, "tls_client_ca_file": certificate("authority")}
TRUST = Tls(ca_file=certificate("authority"))
OWN = Tls(ca_file=certificate("authority"), cert_file=str(certificate("caller")), key_file=str(private_key("caller")))
FOREIGN = Tls(ca_file=certificate("stranger_authority"))
STRANGER = Tls(ca_file=certificate("authority"), cert_file=certificate("stranger"), key_file=private_key("stranger"))


@pytest.fixture(scope="module")
def encrypted():
    with served_app(settings_with(grpc=GRPC_SERVER), tls=SERVER, engagement=FakeScorer()) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def mutual():
    with served_app(settings_with(grpc=GRPC_MUTUAL), tls=MUTUAL, engagement=FakeScorer()) as addresses:
        yield addresses


async def _awaited(client, *, talks):
    async with client:
        if not talks:
            return await client.score(response="one two")
        async with client.conversation() as conversation:
            return await conversation.say("system", "one two")


def ask(kind, served, *, talks, **given):
    """The value of a call, or of a turn of a conversation."""
    client = kind(served["Grpc" in kind.__name__], max_retries=0, timeout_seconds=30.0, **given)
    if kind.__name__.startswith("Async"):
        return asyncio.run(_awaited(client, talks=talks)).scores["engagement"].value
    with client:
        if not talks:
            return client.score(response="one two").scores["engagement"].value
        with client.conversation() as conversation:
            return conversation.say("system", "one two").scores["engagement"].value


OVER_HTTP, OVER_GRPC = [TurnScoreClient, AsyncTurnScoreClient], [TurnScoreGrpcClient, AsyncTurnScoreGrpcClient]


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("kind", [*OVER_HTTP, *OVER_GRPC])
def test_a_private_authority_is_trusted_where_it_is_named_and_nowhere_else(kind, talks, encrypted):
    assert ask(kind, encrypted, talks=talks, tls=TRUST) == 0.02
    for tls in (None, Tls(), FOREIGN):
        said = "CERTIFICATE_VERIFY_FAILED" if kind in OVER_HTTP else None
        with pytest.raises(ConnectionFailedError, match=said):
            ask(kind, encrypted, talks=talks, tls=tls)


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("kind", [*OVER_HTTP, *OVER_GRPC])
def test_mutual_tls_serves_only_whom_the_authority_signed(kind, talks, mutual):
    assert ask(kind, mutual, talks=talks, tls=OWN) == 0.02
    for tls in (TRUST, STRANGER):
        with pytest.raises(TurnScoreError, match=r"no (answer|conversation)"):
            ask(kind, mutual, talks=talks, tls=tls)


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("kind", OVER_HTTP)
def test_the_authorities_of_the_environment_hold_for_calls_and_conversations(kind, talks, encrypted, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate("authority")))
    assert ask(kind, encrypted, talks=talks) == 0.02


def test_one_thread_alone_uses_an_encrypted_connection(encrypted, monkeypatch):
    users = defaultdict(set)
    kept = []

    def watch(name):
        original = getattr(ssl.SSLObject, name)

        def watched(connection, *arguments):
            kept.append(connection)
            users[id(connection)].add(threading.get_ident())
            return original(connection, *arguments)

        monkeypatch.setattr(ssl.SSLObject, name, watched)

    watch("read")
    watch("write")
    for _ in range(3):
        assert ask(TurnScoreClient, encrypted, talks=True, tls=TRUST) == 0.02
    assert len(users) >= 3
    assert all(len(threads) == 1 for threads in users.values())


@pytest.mark.parametrize("kind", [TurnScoreClient, AsyncTurnScoreClient])
def test_encryption_over_an_address_in_plain_text_is_refused(kind):
    with pytest.raises(ValueError, match="https://"):
        kind("http://localhost:3000", tls=TRUST)


def test_the_command_takes_the_files_as_options(mutual, tmp_path):
    files = ["--ca-file", certificate("authority"), "--cert-file", certificate("caller")]
    arguments = [*files, "--key-file", private_key("caller"), "--url", mutual[0]]
    source = write_lines(tmp_path / "turns.jsonl", {"response": "one two"})
    for command in (["info"], ["score", source, "--timeout", "30"]):
        assert "engagement" in invoke(app, [*command, *arguments]).stdout


SENSELESS_FILES = [
    (["--ca-file", "authority.pem"], "https://"),
    (["--url", "https://localhost:1", "--cert-file", "caller.pem"], "cert_file and key_file go together"),
    (["--url", "https://localhost:1", "--ca-file", "nowhere.pem"], "nowhere.pem"),
]


@pytest.mark.parametrize(("arguments", "message"), SENSELESS_FILES)
def test_files_that_make_no_sense_are_a_usage_error(arguments, message):
    result = invoke(app, ["info", *arguments], 2)
    assert message in " ".join(result.stderr.replace("│", "").split())
