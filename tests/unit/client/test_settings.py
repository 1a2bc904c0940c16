"""Settings: where they come from, what is refused, and where the key goes."""

import math

import pytest
from turnscore_client import AsyncTurnScoreClient, TurnScoreClient, __version__
from turnscore_client._settings import ClientSettings


def resolve(url=None, api_key=None, timeout_seconds=1.0, max_retries=0):
    return ClientSettings.resolve(url, api_key, timeout_seconds, max_retries)


def test_the_default_service_is_the_local_one():
    assert resolve().url == "http://localhost:3000"
    assert resolve().api_key is None


def test_the_environment_goes_before_the_defaults(monkeypatch):
    monkeypatch.setenv("TURNSCORE_URL", "https://scores.example/prefix/")
    monkeypatch.setenv("TURNSCORE_API_KEY", "from-outside")
    assert resolve().url == "https://scores.example/prefix"
    assert resolve().headers(None)["Authorization"] == "Bearer from-outside"


def test_arguments_go_before_the_environment(monkeypatch):
    monkeypatch.setenv("TURNSCORE_URL", "https://scores.example")
    monkeypatch.setenv("TURNSCORE_API_KEY", "from-outside")
    settings = resolve("http://other:3000", "given")
    assert settings.url == "http://other:3000"
    assert settings.api_key == "given"


def test_an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("TURNSCORE_URL", "")
    monkeypatch.setenv("TURNSCORE_API_KEY", "")
    assert resolve().url == "http://localhost:3000"
    assert "Authorization" not in resolve().headers(None)


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


def test_negative_retries_are_refused():
    with pytest.raises(ValueError, match="max_retries must"):
        resolve(max_retries=-1)


@pytest.mark.parametrize("client", [TurnScoreClient, AsyncTurnScoreClient])
@pytest.mark.parametrize(
    "url", ["http://exa\tmple", "http://a..b", f"http://{'a' * 70}.test", "http://xn--zz--", "http://exam ple"]
)
def test_a_host_that_nobody_can_have_is_refused_by_both_clients(client, url):
    with pytest.raises(ValueError, match="url must"):
        client(url)


@pytest.mark.parametrize(
    "url", ["http://[::1]:3000", "http://a_b.test.", "http://b\u00fccher.test", "http://10.0.0.1/p"]
)
def test_a_host_that_somebody_can_have_is_taken(url):
    TurnScoreClient(url).close()


@pytest.mark.parametrize("client", [TurnScoreClient, AsyncTurnScoreClient])
def test_both_clients_check_their_settings(client):
    with pytest.raises(ValueError, match="url must"):
        client("nowhere")


def test_the_key_is_in_no_representation():
    assert "s3cret" not in repr(resolve(api_key="s3cret"))


def test_headers_name_the_client_its_version_and_the_request():
    headers = resolve().headers("r-1")
    assert headers["User-Agent"].startswith(f"turnscore-client/{__version__} python/3.")
    assert headers["X-Request-Id"] == "r-1"
    assert "X-Request-Id" not in resolve().headers(None)
