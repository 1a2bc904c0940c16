"""Recognizes callers by API key or address, and bounds how many turns a key may ask for.

Knows names and hashes of keys; never keeps, logs or repeats a key.
"""

import asyncio
import hashlib
import hmac
import logging
import math
import time
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError
from turnscore_core.errors import OverloadedError, UnauthenticatedError
from turnscore_wire import describe_refusal

from turnscore_service import metrics
from turnscore_service.log_setup import KEY_NAME
from turnscore_service.settings.api import AuthSettings, KeyEntry, KeyName


class TurnBudget:
    """A token bucket that may be overdrawn once: a batch larger than the bucket is taken, and paid off afterwards.

    Written here because the libraries for this either wait until there is room (aiolimiter) or refuse for good what is
    larger than the bucket (limits, pyrate-limiter).
    """

    def __init__(self, turns_per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.turns_per_second = turns_per_second
        self.burst = burst
        self._clock = clock
        self._level = float(burst)
        self._filled_at = clock()

    def require(self) -> None:
        """Takes nothing. Raises OverloadedError where there is no room for one turn, with the time until there is."""
        self._fill()
        if self._level < 1:
            raise OverloadedError(
                f"this key allows {self.turns_per_second:g} turns per second",
                retry_after_ms=math.ceil(1000 * (1 - self._level) / self.turns_per_second) + 1,
            )

    def take(self, turns: int) -> None:
        """Takes so many turns, whatever there is: a caller that must not overdraw asks `require` in the same moment."""
        self._fill()
        self._level -= turns

    def adopt(self, level: float) -> None:
        """From here on holds that many turns, which all replicas together have left."""
        self._fill()
        self._level = level

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self.burst, self._level + (now - self._filled_at) * self.turns_per_second)
        self._filled_at = now


class Preferences(NamedTuple):
    """What stands for a key's callers instead of the deployment's (`KeyEntry`)."""

    thresholds: tuple[tuple[str, float | None], ...] = ()
    default_scorers: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller: a key's name, or an anonymous one if no key is required."""

    key_name: str | None = None
    budget: TurnBudget | None = None
    preferences: Preferences | None = None
    # In whose name their work shares with others': of a key, or without one of the network (`network_of`).
    share: str = ""

    def require_budget(self, turns: int) -> None:
        """Raises OverloadedError where the key has asked for too much to be answered these turns. Costs nothing."""
        if not turns or self.budget is None or self.key_name is None:
            return
        try:
            self.budget.require()
        except Exception:
            metrics.KEY_TURNS.labels(self.key_name, "refused").inc(turns)
            raise

    def charge(self, turns: int, *, is_paid: bool = False) -> None:
        """Counts turns of a key that are admitted or known already, and may be paid from the shared budget.

        Never refuses.
        """
        if self.budget is not None and not is_paid:
            self.budget.take(turns)
        metrics.KEY_TURNS.labels(self.key_name, "allowed").inc(turns)


ANYBODY = Caller()
# In whose name this task works; set where a caller is let in.
CALLER: ContextVar[Caller] = ContextVar("turnscore_caller", default=ANYBODY)


@lru_cache(maxsize=1024)
def anybody_from(address: str) -> Caller:
    return Caller(share=network_of(address))


def network_of(address: str) -> str:
    """The network that shares as one caller: an IPv4 address, or the /64 of an IPv6 one, which one host may have whole.

    A text that is no address counts as a caller of that name.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, 64), strict=False))
    return str(found)


def address_of(peer: str, forwarded: str, proxies: Sequence[IPv4Network | IPv6Network]) -> str:
    """The caller: the peer, or of a trusted proxy the last in its X-Forwarded-For that is none of them."""
    hops = [*forwarded.split(","), peer]
    while len(hops) > 1 and hops[-2].strip() and _is_in(proxies, hops[-1].strip()):
        hops.pop()
    return hops[-1].strip()


def _is_in(networks: Sequence[IPv4Network | IPv6Network], address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


# Header of a request, key of a call's metadata: a key comes in the first as `Bearer KEY`, or in the second.
AUTHORIZATION_KEY = "authorization"
API_KEY_KEY = "x-api-key"

FORWARDED_KEY = "x-forwarded-for"  # believed only from `trusted_proxies`

_LOOK_SECONDS = 0.5  # between two looks at the file: with reading it, a change takes effect within a second
_LOGGER = logging.getLogger("turnscore.access")


class UnusableKeysError(Exception):
    """The keys cannot be used; the message says why, and repeats nothing of them but names."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The names that keys may use: of scorers and combinations, of those that may be asked by default, of models."""

    scorers: Collection[str]
    defaults: Collection[str]
    models: Mapping[str, str]  # the scorers, by `name:version`


def unknown_name(named: Collection[str], known: Collection[str]) -> str:
    """What is wrong with the first name that is not known, with the closest that is; empty where all are known."""
    for name in named:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            return f"{name} is not among {', '.join(sorted(known))}{f'; did you mean {near[0]}?' if near else ''}"
    return ""


def check_names(entries: Mapping[str, KeyEntry], offer: Offer) -> None:
    """Raises UnusableKeysError, with key and field, for a name that is not offered, or two models of one scorer."""
    for key, entry in entries.items():
        for field, named, known in (
            ("thresholds", entry.thresholds, offer.scorers),
            ("default_scorers", entry.default_scorers, offer.defaults),
            ("models", entry.models, offer.models),
        ):
            if refusal := unknown_name(named, known):
                raise UnusableKeysError(f"{key}.{field}: {refusal}")
        if len({offer.models[model] for model in entry.models}) < len(entry.models):
            raise UnusableKeysError(f"{key}.models: name one version of each scorer")


def sent_key(headers: Mapping[str, str]) -> str | None:
    """The key that came with a call, if one did; `headers` has its names in lower case."""
    scheme, _, credentials = headers.get(AUTHORIZATION_KEY, "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else headers.get(API_KEY_KEY)


class Access:
    """The keys of the settings and of their file, which is read again when it changes, while it is watched."""

    def __init__(self, settings: AuthSettings) -> None:
        """Raises UnusableKeysError where the file cannot be read."""
        self._fixed = settings.keys
        self._file = settings.keys_file
        self._proxies = settings.trusted_proxies
        self._callers: dict[str, tuple[KeyEntry, Caller]] = {}
        self._offer: Offer | None = None
        self._stamp = self._look()
        self._take(read_keys(self._file) if self._file is not None else {})

    def expect(self, offer: Offer) -> None:
        """From here on takes only keys whose names are offered. Raises UnusableKeysError where those there are not."""
        check_names({name: entry for name, (entry, _) in self._callers.items()}, offer)
        self._offer = offer

    def admit(self, key: str | None, peer: str = "", forwarded: str | None = None) -> Caller:
        """Who calls with that key; where none is needed, from that address, or as `forwarded` by a trusted proxy there.

        Work from here on is done in the caller's name, and log lines have it. Raises UnauthenticatedError where keys
        are needed and this is none of them.
        """
        if self._file is None and not self._fixed:
            caller = anybody_from(address_of(peer, forwarded, self._proxies) if forwarded else peer)
        else:
            caller = self._recognize(key)
        KEY_NAME.set(caller.key_name)
        CALLER.set(caller)
        return caller

    def _recognize(self, key: str | None) -> Caller:
        if not key:
            raise UnauthenticatedError("an API key is required: `authorization: Bearer KEY`, or `x-api-key: KEY`")
        found = None
        digest = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        for entry, caller in self._callers.values():
            # Every key is compared, each in constant time: the time shows neither the key nor its place.
            for known in (entry.sha256, entry.previous_sha256):
                if known is not None and hmac.compare_digest(known, digest):
                    found = caller
        if found is None:
            raise UnauthenticatedError("the API key is unknown")
        return found

    async def watch(self) -> None:
        """Reads the file whenever it has changed, until cancelled, whether anybody calls or not.

        Apart from the event loop: a file of 10,000 keys takes a third of a second. The keys stay what they were until
        that is done.
        """
        while self._file is not None:
            try:
                await asyncio.to_thread(self.read_if_changed)
            except Exception:
                _LOGGER.exception("keeping the previous API keys")
            await asyncio.sleep(_LOOK_SECONDS)

    def read_if_changed(self) -> None:
        """Takes the keys of the file, unless it is the one that was read last, or cannot be used: that is logged."""
        stamp = self._look()
        if self._file is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(read_keys(self._file))
        except UnusableKeysError as error:
            metrics.KEY_FILE_ERRORS.inc()
            _LOGGER.error("keeping the previous API keys: %s", error)
        else:
            _LOGGER.info("API keys read", extra={"keys": sorted(self._callers)})

    def _take(self, of_file: Mapping[str, KeyEntry]) -> None:
        """Replaces the keys; a name with the same rate keeps the rest of its budget."""
        entries = {**self._fixed, **of_file}
        if self._offer is not None:
            check_names(entries, self._offer)
        self._callers = {name: (entry, self._caller(name, entry)) for name, entry in entries.items()}

    def _caller(self, name: str, entry: KeyEntry) -> Caller:
        before, known = self._callers.get(name, (None, ANYBODY))
        if before == entry:
            return known
        preferences = Preferences(tuple(entry.thresholds.items()), entry.default_scorers, entry.models)
        budget = None
        if before is not None and (before.turns_per_second, before.burst) == (entry.turns_per_second, entry.burst):
            budget = known.budget
        elif entry.turns_per_second is not None:
            budget = TurnBudget(entry.turns_per_second, entry.burst or max(1, round(entry.turns_per_second)))
        return Caller(name, budget, preferences if any(preferences) else None, f"key {name}")

    def _look(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def read_keys(file: Path) -> dict[str, KeyEntry]:
    """The entries of a file of keys, by name. Raises UnusableKeysError."""
    try:
        return parse_keys(file, file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnusableKeysError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnusableKeysError(f"{file} is not TOML") from None


def parse_keys(file: Path, text: str) -> dict[str, KeyEntry]:
    """As `read_keys`, of what the file holds."""
    try:
        return TypeAdapter(dict[KeyName, KeyEntry]).validate_python(tomllib.loads(text))
    except ValidationError as error:
        field, message = describe_refusal(error)
        raise UnusableKeysError(f"{file}: {field}: {message}") from None
    except ValueError as error:
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise UnusableKeysError(f"{file} is not TOML{where}") from None
