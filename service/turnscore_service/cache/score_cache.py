"""Finds and keeps the known pieces of a turn's score, in this process and in the cache that processes share.

Every failure here is a miss, counted by cause. Only finished scores are kept.
"""

import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from turnscore_core import score_entries
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import WHOLE_SCORE, Fields, RawScore, Scorer, TurnToScore
from turnscore_wire.requests import ScorerChoice

from turnscore_service import metrics
from turnscore_service.cache.redis_level import RedisLevel
from turnscore_service.settings.cache import CacheSettings

# What an entry costs besides its own bytes, its key included. Measured, resident, of 50,000 entries: 335 to 357.
ENTRY_OVERHEAD_BYTES = 360


class LocalLevel:
    """At most `max_bytes` of entries. Belongs to one event loop."""

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._bytes = 0
        # Entries and the times when they end, the least recently used first.
        self._held: OrderedDict[str, tuple[bytes, float]] = OrderedDict()

    def get(self, key: str) -> bytes | None:
        held = self._held.get(key)
        if held is None:
            return None
        entry, expires_at = held
        if self._clock() >= expires_at:
            self._drop(key)
            return None
        self._held.move_to_end(key)
        return entry

    def put(self, key: str, entry: bytes, seconds: float) -> None:
        """Holds the entry that long, unless it is larger than everything that may be held."""
        size = len(entry) + ENTRY_OVERHEAD_BYTES
        if size > self._max_bytes:
            return
        if key in self._held:
            self._drop(key)
        now = self._clock()
        self._held[key] = entry, now + seconds
        self._bytes += size
        while self._held and (self._bytes > self._max_bytes or next(iter(self._held.values()))[1] <= now):
            self._drop(next(iter(self._held)))
        metrics.CACHE_LOCAL_BYTES.set(self._bytes)

    def _drop(self, key: str) -> None:
        entry, _ = self._held.pop(key)
        self._bytes -= len(entry) + ENTRY_OVERHEAD_BYTES


_LOGGER = logging.getLogger("turnscore.cache")
_BYTES_A_NUMBER = 4


@dataclass(slots=True, eq=False, kw_only=True)
class CacheLookup:
    """The known fragments of one scorer's score of a turn."""

    loaded: LoadedScorer
    # The fragments that the score is made of; they and the following are set by `ScoreCache.look_up`.
    fragments: tuple[bytes, ...] = field(init=False)
    key: str | None = field(init=False)  # none for a turn that shares its score with no other
    is_read: bool = field(init=False)
    is_kept: bool = field(init=False)
    # The fragments that were found, also those that the request does not need.
    known: Mapping[bytes, RawScore] = field(init=False)
    missing: Sequence[int] = field(init=False)  # the places in `fragments` of which nothing is known
    miss: str = field(init=False)  # why something is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keeping:
    """How one scorer's scores are kept."""

    keys: score_entries.KeyMaker
    fragments: tuple[bytes, ...] | None  # of every turn; None: the scorer is asked
    ttl_seconds: int
    vector_bytes: int  # size of the vector kept with a score; 0 if there is none


class ScoreCache:
    """Two levels for the scorers of one process. Belongs to one event loop."""

    def __init__(
        self,
        scorers: Mapping[str, LoadedScorer],
        settings: CacheSettings,
        shared: RedisLevel | None = None,
        before: "ScoreCache | None" = None,
    ) -> None:
        """`before` is the cache of the models that were served until this moment: its levels are this one's too."""
        self._settings = settings
        self._secret = settings.secret_bytes()
        self._local = LocalLevel(settings.local_max_bytes)
        self._shared = shared
        self._scorers = scorers
        self._keeping = {
            name: _Keeping(
                keys=score_entries.KeyMaker(loaded, self._secret),
                fragments=WHOLE_SCORE if type(loaded.scorer).fragments_of is Scorer.fragments_of else None,
                ttl_seconds=settings.ttl_of(loaded.kind),
                vector_bytes=_BYTES_A_NUMBER * loaded.scorer.vector_width,
            )
            for name, loaded in scorers.items()
        }
        if before is not None:
            self._local, self._shared = before._local, before._shared
            stays = {name for name, loaded in scorers.items() if before._scorers.get(name) is loaded}
            self._keeping |= {name: before._keeping[name] for name in stays}

    @property
    def models(self) -> list[str]:
        """The models, `name:version`, whose marks `take_mark` has to be given."""
        return [loaded.model for loaded in self._scorers.values()]

    def look_up(
        self,
        lookup: CacheLookup,
        turn: TurnToScore,
        inputs: Fields,
        choice: ScorerChoice,
        hashes: score_entries.TextHashes | None = None,
    ) -> None:
        """Notes what this process knows of the score of the turn, trimmed, of which the scorer reads `inputs`.

        `choice` and `hashes` are those of its request.
        """
        mode, namespace = choice.cache or "use", choice.cache_namespace
        keeping = self._keeping[lookup.loaded.name]
        lookup.fragments = fragments = keeping.fragments or lookup.loaded.scorer.fragments_of(turn)
        lookup.missing, lookup.known = range(len(fragments)), {}
        lookup.is_kept = keeping.ttl_seconds > 0 and mode != "bypass"
        lookup.is_read = lookup.is_kept and mode == "use"
        lookup.miss = "absent" if mode == "use" else mode
        lookup.key = None
        if mode != "bypass":
            lookup.key = keeping.keys.key(namespace or self._settings.namespace, inputs, hashes)
        if lookup.is_read and (entry := self._local.get(lookup.key or "")):
            self._take(lookup, entry, "local")

    async def find(self, lookups: Sequence[CacheLookup], seconds: float) -> None:
        """Asks the shared level for what the process does not know: one round trip for all, within that time."""
        open_ = [each for each in lookups if each.is_read and each.missing]
        if self._shared is not None and open_:
            await self._read_shared(self._shared, open_, seconds)
        for each in lookups:
            if each.missing:
                cause = "partial" if each.known and each.miss == "absent" else each.miss
                metrics.CACHE_MISSES.count(each.loaded.name, cause)

    def keep(self, lookup: CacheLookup, found: Mapping[bytes, RawScore]) -> None:
        """Keeps fragments of a finished score, in addition to those known already."""
        if lookup.key is None or not lookup.is_kept:
            return
        known = lookup.known
        # Of a score that is not whole by itself another request may have found other fragments meanwhile.
        if lookup.fragments is not WHOLE_SCORE and (entry := self._local.get(lookup.key)):
            known = {**known, **(self._decode(lookup, entry) or {})}
        entry = score_entries.encode_entry(lookup.key, {**known, **found}, self._secret)
        if entry is None:
            return
        ttl = self._keeping[lookup.loaded.name].ttl_seconds * (1 - self._settings.ttl_jitter * random.random())  # noqa: S311
        self._local.put(lookup.key, entry, min(ttl, self._settings.local_ttl_seconds))
        if self._shared is not None:
            self._shared.put(lookup.key, entry, max(1, int(1000 * ttl)))

    def take_mark(self, model: str, mark: bytes) -> None:
        """From here on finds nothing of the model `name:version` that was kept with another mark."""
        for name, keeping in self._keeping.items():
            if self._scorers[name].model == model and keeping.keys.take_mark(mark):
                _LOGGER.info("scores were cleared", extra={"model": model})

    async def _read_shared(self, shared: RedisLevel, lookups: Sequence[CacheLookup], seconds: float) -> None:
        keys = [each.key for each in lookups if each.key is not None]
        entries = await shared.fetch(keys, seconds)
        if entries is None:
            for each in lookups:
                each.miss = "unavailable"
            return
        for each, entry in zip(lookups, entries, strict=True):
            held = len(each.known)
            if entry is not None and self._take(each, entry, "shared"):
                whole = score_entries.encode_entry(each.key or "", each.known, self._secret) if held else entry
                lasting = min(self._settings.ttl_of(each.loaded.kind), self._settings.local_ttl_seconds)
                self._local.put(each.key or "", whole or entry, lasting)

    def _take(self, lookup: CacheLookup, entry: bytes, level: str) -> bool:
        """Adds the entry's fragments to the known ones; False if it cannot be read."""
        found = self._decode(lookup, entry)
        if found is None:
            return False
        known = lookup.known = {**lookup.known, **found}
        lookup.missing = [place for place, each in enumerate(lookup.fragments) if each not in known]
        if not lookup.missing:
            metrics.CACHE_HITS.labels(lookup.loaded.name, level).inc()
        return True

    def _decode(self, lookup: CacheLookup, entry: bytes) -> dict[bytes, RawScore] | None:
        """The entry's fragments; None, with the reason noted, if it cannot be read."""
        assert lookup.key is not None
        try:
            return score_entries.decode_entry(
                lookup.key, entry, self._secret, self._keeping[lookup.loaded.name].vector_bytes
            )
        except score_entries.StaleEntryError:
            lookup.miss = "stale"
        except score_entries.UnreadableEntryError:
            lookup.miss = "unreadable"
        return None
