"""Shared scores: known scores from outside the process, under the keys and in the entries of the service's cache."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Protocol

from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.parts import ScorePart, parts_reader
from turnscore_core.scorers.scorer import TurnToScore

from turnscore_service.cache.entry import StaleEntryError, UnreadableEntryError, decode_entry, encode_entry
from turnscore_service.cache.key import KeyMaker, TextHashes, mark_key


class SharedScores(Protocol):
    """A store of bytes by key, such as the service's Redis. An engine without its answer computes."""

    def fetch(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """What is kept under each key, in order."""

    def keep(self, entries: Mapping[str, bytes]) -> None:
        """Keeps these, for as long as the store likes."""


class ScorerStore:
    """One scorer's turns in the shared scores."""

    def __init__(self, loaded: LoadedScorer, shared: SharedScores, *, namespace: str, secret: bytes) -> None:
        self._shared = shared
        self._namespace = namespace
        self._secret = secret
        self._keys = KeyMaker(loaded, secret)
        self._model = loaded.bundle.manifest.reference
        self._reader = parts_reader(loaded.scorer)

    def find(self, groups: Sequence[Sequence[TurnToScore]]) -> list[list[ScorePart] | None]:
        """The whole scores of each group's turns; None for a group of which any turn is not known whole."""
        [mark] = self._shared.fetch([mark_key(self._model)])
        self._keys.take_mark(mark or b"")
        hashes = TextHashes()
        keys = [[self._key(turn, hashes) for turn in group] for group in groups]
        entries = iter(self._shared.fetch(list(chain.from_iterable(keys))))
        found = []
        for group, own in zip(groups, keys, strict=True):
            wholes = [self._read(turn, key, next(entries)) for turn, key in zip(group, own, strict=True)]
            known = [each for each in wholes if each is not None]
            found.append(known if len(known) == len(wholes) else None)
        return found

    def keep(self, finished: Sequence[tuple[TurnToScore, ScorePart]]) -> None:
        """Keeps the scores of these turns."""
        hashes = TextHashes()
        entries: dict[str, bytes] = {}
        for turn, whole in finished:
            key = self._key(turn, hashes)
            pieces = dict(zip(self._reader.parts_of(turn), self._reader.split(turn, whole), strict=True))
            if (entry := encode_entry(key, pieces, self._secret)) is not None:
                entries[key] = entry
        if entries:
            self._shared.keep(entries)

    def _key(self, turn: TurnToScore, hashes: TextHashes) -> str:
        return self._keys.key(self._namespace, self._reader.inputs_of(turn), hashes)

    def _read(self, turn: TurnToScore, key: str, entry: bytes | None) -> ScorePart | None:
        """The turn's score, if all of its pieces are there."""
        if entry is None:
            return None
        try:
            known = decode_entry(key, entry, self._secret)
        except (StaleEntryError, UnreadableEntryError):
            return None
        wanted = self._reader.parts_of(turn)
        return self._reader.join(turn, [known[part] for part in wanted]) if known.keys() >= set(wanted) else None
