"""TLS over HTTP: calls and conversations trust the same authorities and show the same certificate."""

import asyncio
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.certificates import certificate, private_key
from support.fakes import FakeScorer
from support.files import invoke, write_lines
from support.transports import served_app
from turnscore_client import AsyncTurnScoreClient, ConnectionFailedError, Tls, TurnScoreClient, TurnScoreError
from turnscore_client._command.registry import app

SERVER = {"ssl_certfile": str(certificate("server")), "ssl_keyfile": str(private_key("server"))}
MUTUAL = {**SERVER, "ssl_ca_certs": str(certificate("authority")), "ssl_cert_reqs": int(ssl.CERT_REQUIRED)}
TRUST = Tls(ca_file=certificate("authority"))
OWN = Tls(ca_file=certificate("authority"), cert_file=str(certificate("caller")), key_file=str(private_key("caller")))
FOREIGN = Tls(ca_file=certificate("stranger_authority"))
STRANGER = Tls(ca_file=certificate("authority"), cert_file=certificate("stranger"), key_file=private_key("stranger"))
ALONE = {"max_retries": 0, "timeout_seconds": 30.0}

Ask = Callable[[str, dict[str, Any]], float]


@pytest.fixture(scope="module")
def encrypted() -> Iterator[str]:
    with served_app(tls=SERVER, engagement=FakeScorer()) as url:
        yield url


@pytest.fixture(scope="module")
def mutual() -> Iterator[str]:
    with served_app(tls=MUTUAL, engagement=FakeScorer()) as url:
        yield url


def call(url: str, given: dict[str, Any]) -> float:
    with TurnScoreClient(url, **ALONE, **given) as client:
        return client.score(response="one two").scores["engagement"].value


def talk(url: str, given: dict[str, Any]) -> float:
    with TurnScoreClient(url, **ALONE, **given) as client, client.conversation() as conversation:
        return conversation.say("system", "one two").scores["engagement"].value


async def _call(url: str, given: dict[str, Any]) -> float:
    async with AsyncTurnScoreClient(url, **ALONE, **given) as client:
        return (await client.score(response="one two")).scores["engagement"].value


async def _talk(url: str, given: dict[str, Any]) -> float:
    async with AsyncTurnScoreClient(url, **ALONE, **given) as client, client.conversation() as conversation:
        return (await conversation.say("system", "one two")).scores["engagement"].value


def call_async(url: str, given: dict[str, Any]) -> float:
    return asyncio.run(_call(url, given))


def talk_async(url: str, given: dict[str, Any]) -> float:
    return asyncio.run(_talk(url, given))


every_way = pytest.mark.parametrize("ask", [call, talk, call_async, talk_async])


@every_way
def test_a_private_authority_is_trusted_where_it_is_named_and_nowhere_else(ask: Ask, encrypted: str):
    assert ask(encrypted, {"tls": TRUST}) == 0.02
    for given in ({}, {"tls": Tls()}, {"tls": FOREIGN}):
        with pytest.raises(ConnectionFailedError, match="CERTIFICATE_VERIFY_FAILED"):
            ask(encrypted, given)


@every_way
def test_mutual_tls_serves_only_whom_the_authority_signed(ask: Ask, mutual: str):
    assert ask(mutual, {"tls": OWN}) == 0.02
    for tls in (TRUST, STRANGER):
        with pytest.raises(TurnScoreError, match=r"no (answer|conversation)"):
            ask(mutual, {"tls": tls})


@every_way
def test_the_authorities_of_the_environment_hold_for_calls_and_conversations(
    ask: Ask, encrypted: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate("authority")))
    assert ask(encrypted, {}) == 0.02


def test_one_thread_alone_uses_an_encrypted_connection(encrypted: str, monkeypatch: pytest.MonkeyPatch):
    users: defaultdict[int, set[int]] = defaultdict(set)
    kept: list[ssl.SSLObject] = []

    def watch(name: str) -> None:
        original = getattr(ssl.SSLObject, name)

        def watched(connection: ssl.SSLObject, *arguments: Any) -> Any:
            kept.append(connection)
            users[id(connection)].add(threading.get_ident())
            return original(connection, *arguments)

        monkeypatch.setattr(ssl.SSLObject, name, watched)

    watch("read")
    watch("write")
    for _ in range(3):
        assert talk(encrypted, {"tls": TRUST}) == 0.02
    assert len(users) >= 3
    assert all(len(threads) == 1 for threads in users.values())


@pytest.mark.parametrize("kind", [TurnScoreClient, AsyncTurnScoreClient])
def test_encryption_over_an_address_in_plain_text_is_refused(kind: Callable[..., Any]):
    with pytest.raises(ValueError, match="https://"):
        kind("http://localhost:3000", tls=TRUST)


def test_the_command_takes_the_files_as_options(mutual: str, tmp_path):
    files = ["--ca-file", certificate("authority"), "--cert-file", certificate("caller")]
    arguments = [*files, "--key-file", private_key("caller"), "--url", mutual]
    source = write_lines(tmp_path / "turns.jsonl", {"response": "one two"})
    for command in (["info"], ["score", source, "--timeout", "30"]):
        assert "engagement" in invoke(app, [*command, *arguments]).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ca-file", "authority.pem"], "https://"),
        (["--url", "https://localhost:1", "--cert-file", "caller.pem"], "cert_file and key_file go together"),
        (["--url", "https://localhost:1", "--ca-file", "nowhere.pem"], "nowhere.pem"),
    ],
)
def test_files_that_make_no_sense_are_a_usage_error(arguments: list[str], message: str):
    result = invoke(app, ["info", *arguments], 2)
    assert message in " ".join(result.stderr.replace("│", "").split())
