"""Settings: where they come from, what is refused, and where the key goes."""

import math

import pytest
from support.certificates import certificate, private_key
from turnscore_client import AsyncTurnScoreClient, AsyncTurnScoreGrpcClient, Tls, TurnScoreClient, TurnScoreGrpcClient
from turnscore_client._grpc import credentials_of
from turnscore_client._settings import resolve_grpc, resolve_http


def resolve(url=None, **given):
    return resolve_http(url, given)


def test_the_environment_goes_before_the_defaults(monkeypatch):
    monkeypatch.setenv("TURNSCORE_URL", "https://scores.example/prefix/")
    monkeypatch.setenv("TURNSCORE_API_KEY", "from-outside")
    assert resolve().address == "https://scores.example/prefix"
    assert resolve().headers(None)["authorization"] == "Bearer from-outside"


@pytest.mark.parametrize(
    "url",
    ["localhost:3000", "ftp://host", "http://", "http://host:port", "http://[::1", "http://host:99999999",
     "http://host?x=1", "http://host#top", "http://me:secret@host"],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused_without_its_secrets(url):
    with pytest.raises(ValueError, match="url must") as raised:
        resolve(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("key", ["two words", "line\n", "schlüssel"])
def test_a_key_that_no_header_takes_is_refused_and_not_shown(key):
    with pytest.raises(ValueError, match="api_key must") as raised:
        resolve(api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("timeout_seconds", [0, -1, math.inf, math.nan])
def test_a_timeout_that_makes_no_sense_is_refused(timeout_seconds):
    with pytest.raises(ValueError, match="timeout_seconds must"):
        resolve(timeout_seconds=timeout_seconds)


@pytest.mark.parametrize("client", [TurnScoreClient, AsyncTurnScoreClient])
@pytest.mark.parametrize(
    "url", ["http://exa\tmple", "http://a..b", f"http://{'a' * 70}.test", "http://xn--zz--", "http://exam ple"]
)
def test_an_impossible_host_is_refused_by_both_clients(client, url):
    with pytest.raises(ValueError, match="url must"):
        client(url)


def test_the_key_is_in_no_representation():
    assert "s3cret" not in repr(resolve(api_key="s3cret"))


def test_a_grpc_client_takes_address_and_key_from_the_environment_where_none_is_given(monkeypatch):
    assert resolve_grpc(None, {}).address == "localhost:50051"
    monkeypatch.setenv("TURNSCORE_GRPC_ADDRESS", "scores.example:443")
    monkeypatch.setenv("TURNSCORE_API_KEY", "from-outside")
    found = resolve_grpc(None, {})
    assert (found.address, found.own(None)) == ("scores.example:443", {"authorization": "Bearer from-outside"})
    assert "from-outside" not in repr(found)
    given = resolve_grpc("other:1", {"api_key": "given"}).own("r-1")
    assert given == {"authorization": "Bearer given", "x-request-id": "r-1"}


@pytest.mark.parametrize("client", [TurnScoreGrpcClient, AsyncTurnScoreGrpcClient])
@pytest.mark.parametrize(
    "address",
    ["localhost", "http://localhost:50051", "host:port", "host:0", "host:65536", "[::1]", "me:secret@host:1", "a b:1",
     "host:1/path", ":1", "host:\u0661"],
)  # fmt: skip
def test_an_address_that_makes_no_sense_is_refused_without_its_secrets(client, address):
    with pytest.raises(ValueError, match="address must") as raised:
        client(address)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("client", [TurnScoreGrpcClient, AsyncTurnScoreGrpcClient])
def test_grpc_clients_check_the_rest_of_their_settings_too(client):
    for given in ({"api_key": "two words"}, {"timeout_seconds": 0}, {"timeout_seconds": math.nan}, {"max_retries": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(given))} must"):
            client(**given)


def test_a_certificate_without_its_key_is_refused():
    with pytest.raises(ValueError, match="go together"):
        Tls(cert_file=certificate("caller"))


@pytest.mark.parametrize(
    "tls",
    [
        Tls(ca_file="/nowhere/ca.pem"),
        Tls(ca_file=private_key("caller")),
        Tls(cert_file=certificate("caller"), key_file=private_key("stranger")),
        Tls(cert_file="/nowhere/caller.pem", key_file=private_key("caller")),
    ],
)
def test_files_that_make_no_credentials_are_refused_by_name(tls):
    with pytest.raises(ValueError, match=r"tls: .*(nowhere|caller)"):
        credentials_of(tls)
