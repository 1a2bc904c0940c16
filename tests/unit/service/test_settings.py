"""Settings: names, values and refusals; addresses of a Redis, of which errors repeat nothing."""

import re
import subprocess
from pathlib import Path

import pytest
from generated_docs import settings_page
from pydantic import ValidationError
from turnscore_service.settings.cache import CacheSettings, RedisAddress, read_address
from turnscore_service.settings.group import SHADOW_SHARE
from turnscore_service.settings.service import CLIENT_VARIABLES, Settings, read_settings, refusal_of_unknown
from turnscore_wire import describe_refusal

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_page_of_settings_is_what_the_fields_say():
    assert DOCS.read_text() == settings_page(DOCS.read_text()), "run `make generate WHAT=schema`"


ROOT = Path(__file__).parents[3]


MISTYPED = [
    ("TURNSCORE_AUTH_KEYS_FILE", "TURNSCORE_AUTH__KEYS_FILE"),
    ("TURNSCORE_WORKER", "TURNSCORE_WORKERS"),
    ("TURNSCORE_CACHE__URI", "TURNSCORE_CACHE__URL"),
    ("turnscore_api_keys", "TURNSCORE_API_KEY"),
]


@pytest.mark.parametrize(("name", "near"), MISTYPED)
def test_a_mistyped_variable_stops_the_start_with_the_nearest_name(monkeypatch, name, near):
    monkeypatch.setenv(name, "secret")
    with pytest.raises(SystemExit) as ended:
        read_settings()
    assert str(ended.value) == f"{name}: there is no such setting; did you mean {near}?"


def test_one_that_resembles_nothing_is_refused_too_and_each_has_its_line():
    refusal = refusal_of_unknown(Settings, {"TURNSCORE_QQQQQQQ": "secret", "TURNSCORE_WORKER": "2", "OTHER": "x"})
    assert refusal.splitlines() == [
        "TURNSCORE_QQQQQQQ: there is no such setting",
        "TURNSCORE_WORKER: there is no such setting; did you mean TURNSCORE_WORKERS?",
    ]


KNOWN_VARIABLES = [
    {"TURNSCORE_WORKERS": "2", "turnscore_log_level": "INFO", "TURNSCORE_GRPC__PORT": "1", "TURNSCORE_GRPC": "{}"},
    {"TURNSCORE_OPTIONS__FED__LOSS": "x", "TURNSCORE_CACHE__SCORER_TTL_SECONDS__FED": "1"},
    dict.fromkeys(CLIENT_VARIABLES, "x"),
    {"TURNSCORE_SERVICE_HOST": "10.0.0.1", "TURNSCORE_SERVICE_PORT": "3000", "TURNSCORE_SERVICE_PORT_HTTP": "3000"},
    {"TURNSCORE_PORT": "tcp://10.0.0.1:3000", "TURNSCORE_PORT_3000_TCP": "tcp://10.0.0.1:3000"},
    {"TURNSCORE_PORT_3000_TCP_ADDR": "10.0.0.1", "TURNSCORE_REDIS_PORT": "tcp://10.0.0.2:6379"},
]


@pytest.mark.parametrize("environment", KNOWN_VARIABLES)
def test_settings_the_clients_and_a_clusters_variables_are_known(environment):
    assert refusal_of_unknown(Settings, environment) == ""


EMPTY_PATHS = [
    ("admin", "folder"),
    ("auth", "keys_file"),
    *(("grpc", f"tls_{each}_file") for each in ("cert", "key", "client_ca")),
]


@pytest.mark.parametrize(("group", "field"), EMPTY_PATHS)
def test_an_empty_path_is_none(group, field, monkeypatch):
    monkeypatch.setenv(f"TURNSCORE_{group}__{field}".upper(), "")
    assert getattr(dict(read_settings())[group], field) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TURNSCORE_THRESHOLDS", "{quality:0.3}", 'TURNSCORE_THRESHOLDS is not JSON, such as {"quality": 0.35}'),
        (
            "TURNSCORE_CACHE__SCORER_TTL_SECONDS", "fed=3600",
            'TURNSCORE_CACHE__SCORER_TTL_SECONDS is not JSON, such as {"fed": 3600, "engagement": 0}',
        ),
        ("TURNSCORE_LIMITS", "{max_turns", "TURNSCORE_LIMITS is not JSON"),
        ("TURNSCORE_GRPC__TLS_CERT_FILE", "no.pem", "TURNSCORE_GRPC__TLS_CERT_FILE: there is no file no.pem"),
        (
            "TURNSCORE_CACHE__NAMESPACE", "two words",
            "TURNSCORE_CACHE__NAMESPACE: must be 1 to 64 of the characters a-z, A-Z, 0-9, _ and -",
        ),
    ],
)  # fmt: skip
def test_a_value_of_another_form_stops_the_start_with_its_name_and_what_is_right(monkeypatch, name, value, told):
    monkeypatch.setenv("TURNSCORE_AUTH__KEYS_FILE", "keys.toml")  # no JSON, and none is expected
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        read_settings()
    assert str(ended.value) == told


def test_every_variable_that_a_file_of_ours_sets_or_names_is_known():
    patterns = ["Makefile", "Dockerfile", "bentofile.yaml", "README.md", "docs/*.md", "*.py", "*.yml", "*.yaml"]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.split() if not name.startswith("tests/") and name != "CHANGELOG.md"]
    named = {name for file in files for name in re.findall(r"TURNSCORE_[A-Z][A-Z_]*[A-Z]\b", (ROOT / file).read_text())}
    assert len(named) > 50
    assert refusal_of_unknown(Settings, dict.fromkeys(named, "x")) == ""


def test_bundles_and_their_shares(monkeypatch):
    monkeypatch.setenv("TURNSCORE_SHADOW", "engagement:1.1.0, ./a=b/quality=0.5,fed=1,")
    monkeypatch.setenv("TURNSCORE_SPLIT", "engagement:1.1.0 = 1e-3,fed:1.1.0=0")
    shadow, split = ([(one.bundle, one.share) for one in dict(read_settings())[name]] for name in ("shadow", "split"))
    assert shadow == [("engagement:1.1.0", SHADOW_SHARE), ("./a=b/quality", 0.5), ("fed", 1.0)]
    assert split == [("engagement:1.1.0", 0.001), ("fed:1.1.0", 0.0)]


WRONG_SHARES = [
    ("SPLIT", "engagement:1.1.0", "engagement:1.1.0 needs a share, such as engagement:1.1.0=0.1"),
    ("SHADOW", "fed=1.01", "fed=1.01 must have a share above 0 and at most 1"),
    ("SHADOW", "fed=0", "fed=0 must have a share above 0 and at most 1"),
    ("SPLIT", "fed=nan", "fed=nan must have a share from 0 to 1"),
    ("SHADOW", "fed={share}", "fed={share} must end with a share, such as 0.1"),
    ("SHADOW", ",".join(f"bundle{number}" for number in range(9)), "at most 8 items"),
]


@pytest.mark.parametrize(("variable", "value", "sentence"), WRONG_SHARES)
def test_what_is_no_share_stops_the_start_and_names_the_variable(variable, value, sentence, monkeypatch):
    monkeypatch.setenv(f"TURNSCORE_{variable}", value)
    with pytest.raises(SystemExit) as ended:
        read_settings()
    assert str(ended.value).startswith(f"TURNSCORE_{variable}: ")
    assert sentence in str(ended.value)


ME = {"username": "me", "password": "pw"}
SENTINELS = (("a", 26379), ("b", 26380), ("::2", 26379))
ADDRESSES = [
    ("redis://cache:7000/3", {"hosts": (("cache", 7000),), "database": 3}),
    ("redis://[::1]:7000", {"hosts": (("::1", 7000),)}),
    ("redis://me:@h", {"hosts": (("h", 6379),), "username": "me", "password": ""}),
    ("rediss://me:pw@h/1", {"hosts": (("h", 6379),), "database": 1, "is_encrypted": True, **ME}),
    ("unix://me:pw@/run/redis.sock?db=2", {"kind": "unix", "path": "/run/redis.sock", "database": 2, **ME}),
    ("redis+sentinel://:pw@a,b:26380,[::2]/main/4",
     {"kind": "sentinel", "hosts": SENTINELS, "service": "main", "database": 4, "password": "pw"}),
    ("redis+cluster://me:pw@a:7000,b", {"kind": "cluster", "hosts": (("a", 7000), ("b", 6379)), **ME}),
]  # fmt: skip


@pytest.mark.parametrize(("url", "expected"), ADDRESSES)
def test_an_address_is_read(url, expected):
    assert read_address(url) == RedisAddress(**{"kind": "single", **expected})


WRONG_ADDRESSES = [
    ("http://secret-host", "must begin with one of redis://"),
    ("redis://[secret", "is not an address"),
    ("redis://secret-host:99999", "each host"),
    ("redis+cluster://secret-host,,b", "each host"),
    ("redis://secret-host/one", "the database must be a number"),
    ("redis+cluster://secret-host/1", "a Cluster has one database"),
    ("redis+sentinel://secret-host", "the name of the service"),
    ("redis://secret-host?socket_timeout=100", "unknown option 'socket_timeout'"),
]


@pytest.mark.parametrize(("url", "said"), WRONG_ADDRESSES)
def test_a_wrong_address_is_told_without_being_repeated(url, said):
    with pytest.raises(ValidationError) as refused:
        CacheSettings.model_validate({"url": url})
    field, message = describe_refusal(refused.value)
    assert (field, said in message) == ("url", True), message
    assert "secret" not in message


def test_secrets_stand_in_no_description_of_the_settings():
    secrets = {"password": "hush-1", "sentinel_password": "hush-2", "secret": "hush-3"}
    settings = CacheSettings.model_validate({"url": "redis://me:hush-4@host", **secrets})
    for told in (repr(settings), str(settings), settings.model_dump_json(), repr(settings.address())):
        assert "hush" not in told


def test_user_and_password_of_their_own_stand_before_the_addresss():
    settings = CacheSettings.model_validate({"url": "redis://me:mine@h", "username": "you", "password": "yours"})
    address = settings.address()
    assert (address.username, address.password) == ("you", "yours")
    assert CacheSettings().address() is None
