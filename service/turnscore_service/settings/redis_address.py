"""Where a Redis is: reads the address of the score cache. Pure; connects to nothing, repeats no address in an error.

    redis://[user:password@]host[:port][/database]                                     one server
    unix://[user:password@]/path/of/the/socket[?db=database]                           one server on this machine
    redis+sentinel://[user:password@]host[:port][,host[:port]...]/service[/database]   the master that Sentinels name
    redis+cluster://[user:password@]host[:port][,host[:port]...]                       a Cluster, found through these

`rediss` in place of `redis` encrypts; `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile` and `ssl_check_hostname` may then
stand in the query. Whatever in user and password is special in an address is written in percents.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

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
        raise ValueError(f"must begin with one of {known}, or rediss in place of redis")
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
