"""Addresses of a Redis: what may be written, and errors that repeat nothing of it."""

from typing import Any

import pytest
from pydantic import ValidationError
from turnscore_service.settings.cache import CacheSettings, RedisAddress, read_address
from turnscore_wire import describe_refusal

ME = {"username": "me", "password": "pw"}
SENTINELS = (("a", 26379), ("b", 26380), ("::2", 26379))
ADDRESSES: list[tuple[str, dict[str, Any]]] = [
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
def test_an_address_is_read(url: str, expected: dict[str, Any]):
    assert read_address(url) == RedisAddress(**{"kind": "single", **expected})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://secret-host", "must begin with one of redis://"),
        ("redis://[secret", "is not an address"),
        ("redis://secret-host:99999", "each host"),
        ("redis+cluster://secret-host,,b", "each host"),
        ("redis://secret-host/one", "the database must be a number"),
        ("redis+cluster://secret-host/1", "a Cluster has one database"),
        ("redis+sentinel://secret-host", "the name of the service"),
        ("redis://secret-host?socket_timeout=100", "unknown option 'socket_timeout'"),
    ],
)
def test_a_wrong_address_is_told_without_being_repeated(url: str, said: str):
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
    assert address is not None
    assert (address.username, address.password) == ("you", "yours")
    assert CacheSettings().address() is None
