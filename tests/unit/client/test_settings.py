"""Settings: where they come from, what is refused, and where the key goes."""

import math
from functools import partial

import pytest
from support.certificates import certificate, private_key
from turnscore_client import Tls
from turnscore_client._grpc import credentials_of
from turnscore_client._http import context_of
from turnscore_client._settings import resolve_grpc, resolve_http


def test_the_environment_goes_before_the_defaults(monkeypatch):
    monkeypatch.setenv("TURNSCORE_URL", "https://scores.example/prefix/")
    monkeypatch.setenv("TURNSCORE_API_KEY", "from-outside")
    found = resolve_http(None, {})
    assert found.address == "https://scores.example/prefix"
    assert found.headers(None)["authorization"] == "Bearer from-outside"
    assert "from-outside" not in repr(found)


@pytest.mark.parametrize("resolve", [resolve_http, resolve_grpc])
@pytest.mark.parametrize(
    "given",
    [*({"api_key": key} for key in ("two words", "line\n", "schlüssel")), {"max_retries": -1},
     *({"timeout_seconds": seconds} for seconds in (0, -1, math.inf, math.nan))],
)  # fmt: skip
def test_what_no_client_can_use_is_refused_by_its_name_and_no_key_is_shown(resolve, given):
    [(name, value)] = given.items()
    with pytest.raises(ValueError, match=f"{name} must") as raised:
        resolve(None, given)
    assert name != "api_key" or value not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    ["localhost:3000", "ftp://host", "http://", "http://host:port", "http://[::1", "http://host:99999999",
     "http://host?x=1", "http://host#top", "http://me:secret@host", "http://exa\tmple", "http://a..b",
     f"http://{'a' * 70}.test", "http://xn--zz--", "http://exam ple"],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_refused_without_its_secrets(url):
    with pytest.raises(ValueError, match="url must") as raised:
        resolve_http(url, {})
    assert "secret" not in str(raised.value)
    assert ("write http://localhost:3000" in str(raised.value)) is (url == "localhost:3000")


def test_a_grpc_client_takes_address_and_key_from_the_environment_where_none_is_given(monkeypatch):
    assert resolve_grpc(None, {}).address == "localhost:50051"
    monkeypatch.setenv("TURNSCORE_GRPC_ADDRESS", "scores.example:443")
    monkeypatch.setenv("TURNSCORE_API_KEY", "from-outside")
    found = resolve_grpc(None, {})
    assert (found.address, found.own(None)) == ("scores.example:443", {"authorization": "Bearer from-outside"})
    given = resolve_grpc("other:1", {"api_key": "given"}).own("r-1")
    assert given == {"authorization": "Bearer given", "x-request-id": "r-1"}


@pytest.mark.parametrize(
    "address",
    ["localhost", "http://localhost:50051", "host:port", "host:0", "host:65536", "[::1]", "me:secret@host:1", "a b:1",
     "host:1/path", ":1", "host:\u0661"],
)  # fmt: skip
def test_an_address_that_makes_no_sense_is_refused_without_its_secrets(address):
    with pytest.raises(ValueError, match="address must") as raised:
        resolve_grpc(address, {})
    assert "secret" not in str(raised.value)


WRONG_FILES = [
    Tls(ca_file="/nowhere/ca.pem"),
    Tls(ca_file=private_key("caller")),
    Tls(cert_file=certificate("caller"), key_file=private_key("stranger")),
    Tls(cert_file="/nowhere/caller.pem", key_file=private_key("caller")),
]


@pytest.mark.parametrize("read", [credentials_of, partial(context_of, "https://localhost:3000")])
@pytest.mark.parametrize("tls", WRONG_FILES)
def test_files_that_make_no_credentials_are_refused_by_name(read, tls):
    with pytest.raises(ValueError, match=r"tls: .*(nowhere|caller)"):
        read(tls)
