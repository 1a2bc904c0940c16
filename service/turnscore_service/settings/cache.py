"""Settings of the score cache, and the address of its Redis.

    redis://[user:password@]host[:port][/database]                                     one server
    unix://[user:password@]/path/of/the/socket[?db=database]                           one server on this machine
    redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]   the master that Sentinels name
    redis+cluster://[user:password@]host[:port][,host[:port]...]                       a Cluster, found through these

`rediss` in place of `redis` encrypts; `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile` and `ssl_check_hostname` may then
stand in the query. Special characters in user and password are percent-encoded.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, SecretStr, field_validator
from pydantic_core import PydanticCustomError
from turnscore_wire import CacheNamespace

from turnscore_service.settings.group import SettingsGroup

Kind = Literal["single", "unix", "sentinel", "cluster"]

_KINDS: Mapping[str, Kind] = {
    "redis": "single",
    "unix": "unix",
    "redis+sentinel": "sentinel",
    "redis+cluster": "cluster",
}
_PORTS = {"sentinel": 26379}
_TLS_OPTIONS = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"})
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """An address that was read."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    database: int = 0
    is_encrypted: bool = False
    tls: Mapping[str, str] = field(default_factory=dict)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def read_address(url: str) -> RedisAddress:
    """The parts of an address. Raises ValueError with a sentence that says which part is wrong."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its message may repeat the host
        raise ValueError("is not an address") from None
    scheme = parts.scheme.replace("rediss", "redis", 1)
    if scheme not in _KINDS:
        known = ", ".join(f"{each}://" for each in _KINDS)
        raise ValueError(f"must begin with one of {known}, or rediss instead of redis")
    kind = _KINDS[scheme]
    is_encrypted = parts.scheme.startswith("rediss")
    credentials, _, hosts = parts.netloc.rpartition("@")
    username, has_password, password = credentials.partition(":")
    query = _read_query(parts, kind, is_encrypted=is_encrypted)
    path = [unquote(each) for each in parts.path.strip("/").split("/")] if parts.path.strip("/") else []
    return RedisAddress(
        kind=kind,
        hosts=() if kind == "unix" else tuple(_read_host(each, kind) for each in hosts.split(",")),
        path=_read_path(parts) if kind == "unix" else "",
        service=_read_service(path) if kind == "sentinel" else "",
        database=_read_database(kind, path, query.pop("db", "")),
        is_encrypted=is_encrypted,
        tls=query,
        username=unquote(username) or None,
        password=unquote(password) if has_password else None,
    )


def _read_host(text: str, kind: Kind) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None or int(found[2] or 1) not in range(1, 65536):
        raise ValueError("each host must be a name or an IP address, with :port where it is not the usual one")
    return found[1].strip("[]"), int(found[2] or _PORTS.get(kind, 6379))


def _read_path(parts: SplitResult) -> str:
    if len(parts.path) < 2:
        raise ValueError("must have the path of the socket after unix://")
    return unquote(parts.path)


def _read_service(path: list[str]) -> str:
    if not path:
        raise ValueError("must have the name of the service after the Sentinels' hosts")
    return path[0]


def _read_database(kind: Kind, path: list[str], queried: str) -> int:
    steps = {"single": path, "sentinel": path[1:], "unix": [queried] if queried else [], "cluster": path}[kind]
    if not steps:
        return 0
    if kind == "cluster":
        raise ValueError("a Cluster has one database: its address ends with the hosts")
    if len(steps) > 1 or not steps[0].isdecimal():
        raise ValueError("the database must be a number")
    return int(steps[0])


def _read_query(parts: SplitResult, kind: Kind, *, is_encrypted: bool) -> dict[str, str]:
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = (_TLS_OPTIONS if is_encrypted else frozenset()) | ({"db"} if kind == "unix" else set())
    if unknown := sorted(query.keys() - known):
        raise ValueError(f"has the unknown option {unknown[0][:40]!r}")
    return query


class CacheSettings(SettingsGroup):
    """What is remembered, for how long, and where."""

    url: SecretStr | None = Field(
        default=None,
        description="The [address](deploy.md#redis-addresses) of the Redis that all processes share. Empty: "
        "each process has its own cache only.",
    )
    username: str | None = Field(default=None, description="User of the Redis, instead of the URL's.")
    password: SecretStr | None = Field(default=None, description="Password of the Redis, instead of the URL's.")
    sentinel_username: str | None = Field(default=None, description="User of the Sentinels.")
    sentinel_password: SecretStr | None = Field(default=None, description="Password of the Sentinels.")
    namespace: CacheNamespace = Field(default="default", description="Namespace of requests that name none.")
    secret: SecretStr | None = Field(
        default=None,
        description="Keys the hashes of texts and seals entries, so that a reader cannot test guesses and a "
        "writer cannot forge scores. Services that share a cache need the same secret.",
    )
    ttl_seconds: NonNegativeInt = Field(default=86_400, description="How long a score is kept; 0 keeps none.")
    scorer_ttl_seconds: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description='The same by scorer, as JSON: `{"fed": 3600, "engagement": 0}`.'
    )
    ttl_jitter: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="Largest share by which an entry's lifetime is shortened at random."
    )
    local_max_bytes: NonNegativeInt = Field(
        default=32 * 1024 * 1024,
        description="Memory of the cache in each worker (about 50,000 turns of engagement, 28,000 of FED on "
        "all qualities); 0: off.",
    )
    local_ttl_seconds: PositiveInt = Field(default=600, description="How long that cache keeps a score at most.")

    timeout_ms: PositiveInt = Field(
        default=50, description="Time limit of a round trip to the Redis, including connecting, without retries."
    )
    connections: PositiveInt = Field(
        default=2,
        description="Concurrent lookups per worker; others share the next round trip. Writes, probes, keys' "
        "budgets and clearing use up to four more connections.",
    )
    max_pending_writes: PositiveInt = Field(
        default=10_000, description="Scores that may wait to be written, per worker; more are dropped."
    )
    write_delay_ms: NonNegativeInt = Field(default=10, description="How long a write waits for others to join it.")
    breaker_failures: PositiveInt = Field(
        default=5, description="Failures among the last round trips after which the Redis is not used."
    )
    breaker_window: PositiveInt = Field(default=20, description="Number of those last round trips.")
    breaker_retry_seconds: PositiveFloat = Field(
        default=1.0, description="Time until the Redis is probed again; doubled with each failed probe."
    )
    breaker_max_retry_seconds: PositiveFloat = Field(default=15.0, description="Longest time between two probes.")
    clear_poll_seconds: PositiveFloat = Field(
        default=5.0,
        description="Interval at which a worker looks for `turnscore cache clear`. Services that share a "
        "cache need the same value.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        try:
            return SecretStr(url.get_secret_value()) if url and read_address(url.get_secret_value()) else None
        except ValueError as error:
            raise PydanticCustomError("redis_address", "{reason}", {"reason": str(error)}) from None

    def address(self) -> RedisAddress | None:
        """Where the Redis is, with user and password; None without one."""
        if self.url is None:
            return None
        address = read_address(self.url.get_secret_value())
        password = self.password.get_secret_value() if self.password else address.password
        return replace(address, username=self.username or address.username, password=password)

    def secret_bytes(self) -> bytes:
        """32 bytes made of the secret; none without one."""
        return hashlib.sha256(self.secret.get_secret_value().encode()).digest() if self.secret else b""

    def ttl_of(self, scorer: str) -> int:
        """Seconds for which that scorer's scores are kept; 0 for not at all."""
        return self.scorer_ttl_seconds.get(scorer, self.ttl_seconds)
