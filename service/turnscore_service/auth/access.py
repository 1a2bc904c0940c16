"""Access: who may call, and for how many turns. Knows names and hashes of keys; never keeps, logs or repeats a key."""

import hashlib
import hmac
import logging
import time
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Thread

from pydantic import TypeAdapter, ValidationError
from turnscore_core.errors import UnauthenticatedError
from turnscore_wire import describe_refusal

from turnscore_service import metrics
from turnscore_service.auth.callers import CALLER, Caller, Proxies, anybody_from
from turnscore_service.auth.turn_budget import TurnBudget
from turnscore_service.log_setup import KEY_NAME
from turnscore_service.settings.doors import AuthSettings, KeyEntry, KeyName

AUTHORIZATION_KEY = "authorization"
API_KEY_KEY = "x-api-key"
"""Header of a request, key of a call's metadata: a key comes in the first as `Bearer KEY`, or in the second alone."""

FORWARDED_KEY = "x-forwarded-for"
"""Believed of `trusted_proxies` alone."""

_LOOK_SECONDS = 1.0
"""How often, at most, the file is looked at; so long may a key that was taken out still be good. Chosen."""
_KEYS = TypeAdapter(dict[KeyName, KeyEntry])
_LOGGER = logging.getLogger("turnscore.access")


class UnusableKeysError(Exception):
    """The file of keys cannot be read; the message says why, and repeats nothing of it."""


def sent_key(headers: Mapping[str, str]) -> str | None:
    """The key that came with a call, if one did; `headers` has its names in lower case."""
    scheme, _, credentials = headers.get(AUTHORIZATION_KEY, "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    return headers.get(API_KEY_KEY)


def _in_thread(work: Callable[[], None]) -> None:
    Thread(target=work, name="keys", daemon=True).start()


class Access:
    """The keys of the settings and of their file, which is read again when it changes."""

    def __init__(
        self,
        settings: AuthSettings,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        """Raises UnusableKeysError where the file cannot be read.

        `start` has a changed file read apart from the event loop: one of 10,000 keys takes a third of a second. Until
        that is done the keys stay what they were.
        """
        self._start = start
        self._is_reading = False
        self._fixed = settings.keys
        self._file = settings.keys_file
        self._proxies = Proxies(settings.trusted_proxies)
        self._clock = clock
        self._callers: dict[str, tuple[KeyEntry, Caller]] = {}
        self._looked_at = clock()
        self._stamp = self._look()
        self._take(read_keys(self._file) if self._file is not None else {})

    def admit(self, key: str | None, peer: str = "", forwarded: str | None = None) -> Caller:
        """The caller, as `recognize` returns it; work from here on is done in its name, and log lines have it."""
        caller = self.recognize(key, peer, forwarded)
        KEY_NAME.set(caller.key_name)
        CALLER.set(caller)
        return caller

    def recognize(self, key: str | None, peer: str = "", forwarded: str | None = None) -> Caller:
        """Who calls with that key; where none is needed, from that address, or as `forwarded` by a trusted proxy there.

        Raises UnauthenticatedError where keys are needed and this is none of them.
        """
        if self._file is None and not self._fixed:
            return anybody_from(self._proxies.address_of(peer, forwarded))
        self._read_if_changed()
        if not key:
            raise UnauthenticatedError("an API key is needed: `authorization: Bearer KEY`, or `x-api-key: KEY`")
        found = None
        digest = hashlib.sha256(key.encode(errors="replace")).hexdigest()
        for entry, caller in self._callers.values():
            # Every key is compared, each in constant time: the time shows neither the key nor its place.
            if hmac.compare_digest(entry.sha256, digest):
                found = caller
        if found is None:
            raise UnauthenticatedError("the API key is unknown")
        return found

    def _read_if_changed(self) -> None:
        now = self._clock()
        if self._file is None or self._is_reading or now < self._looked_at + _LOOK_SECONDS:
            return
        self._looked_at = now
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp, self._is_reading = stamp, True
        self._start(partial(self._read, self._file))

    def _read(self, file: Path) -> None:
        try:
            self._take(read_keys(file))
        except UnusableKeysError as error:
            metrics.KEY_FILE_ERRORS.inc()
            _LOGGER.error("the API keys stay as they were: %s", error)
        else:
            _LOGGER.info("API keys read", extra={"keys": sorted(self._callers)})
        finally:
            self._is_reading = False

    def _take(self, of_file: Mapping[str, KeyEntry]) -> None:
        """Replaces the keys; an unchanged key keeps the rest of its budget."""
        callers = {}
        for name, entry in {**self._fixed, **of_file}.items():
            known = self._callers.get(name)
            callers[name] = known if known is not None and known[0] == entry else (entry, _caller(name, entry))
        self._callers = callers

    def _look(self) -> tuple[int, int, int] | None:
        if self._file is None:
            return None
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _caller(name: str, entry: KeyEntry) -> Caller:
    if entry.turns_per_second is None:
        return Caller(name)
    burst = entry.burst or max(1, round(entry.turns_per_second))
    return Caller(name, TurnBudget(entry.turns_per_second, burst))


def read_keys(file: Path) -> dict[str, KeyEntry]:
    """The entries of a file of keys, by name. Raises UnusableKeysError."""
    try:
        return _KEYS.validate_python(tomllib.loads(file.read_text(encoding="utf-8")))
    except ValidationError as error:
        field, message = describe_refusal(error)
        raise UnusableKeysError(f"{file}: {field}: {message}") from None
    except OSError as error:
        raise UnusableKeysError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        where = f": {error}" if isinstance(error, tomllib.TOMLDecodeError) else ""
        raise UnusableKeysError(f"{file} is not TOML{where}") from None
