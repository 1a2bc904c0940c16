"""The split: which version of each scorer answers a conversation. Pure; the same in every process and replica.

A conversation is known by the caller's `conversation`, else by the text of the user's first turn. Its key's hash, with
the version's name, is a number from 0 to 1; below the version's share that version answers, for the whole conversation.
So a share that is raised keeps the conversations that it had, and another version draws others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet
from turnscore_wire import Turn

_HASH_BYTES = 8
_HASHES = float(1 << 8 * _HASH_BYTES)


@dataclass(frozen=True, slots=True)
class VersionBeside:
    """Another version of a served scorer, and the share that it scores."""

    loaded: LoadedScorer
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsBeside:
    """All versions beside those that serve, at most one of each kind in each place."""

    shadows: Sequence[VersionBeside] = ()
    splits: Sequence[VersionBeside] = ()


class Split:
    """Chooses the versions that answer a conversation, out of one model_set's."""

    def __init__(self, model_set: ModelSet, versions: Sequence[VersionBeside] = ()) -> None:
        self._model_set = model_set
        self._versions = versions
        self._model_sets: dict[tuple[str, ...], ModelSet] = {(): model_set}

    def model_set_for(self, conversation: str | None, turns: Iterable[Turn]) -> ModelSet:
        """The model_set that answers the conversation with this name, or else with these turns, oldest first.

        The served versions' where it has no name and the user has not said anything.
        """
        if not self._versions:
            return self._model_set
        key = conversation_key(conversation, turns)
        if key is None:
            return self._model_set
        chosen = [each.loaded for each in self._versions if is_drawn(key, each)]
        names = tuple(each.name for each in chosen)
        model_set = self._model_sets.get(names)
        if model_set is None:
            model_set = self._model_sets[names] = _with_versions(self._model_set, chosen)
        return model_set


def conversation_key(conversation: str | None, turns: Iterable[Turn]) -> str | None:
    """What tells a conversation from others in every one of its turns; None where nothing does yet."""
    if conversation is not None:
        return f"named:{conversation}"
    for turn in turns:
        if turn.speaker == "user" and (text := turn.text.strip()):
            return f"begins:{text}"
    return None


def is_drawn(key: str, version: VersionBeside) -> bool:
    """Whether the version answers the conversation of that key."""
    content = f"{version.loaded.bundle.manifest.reference}\n{key}".encode()
    number = int.from_bytes(blake2b(content, digest_size=_HASH_BYTES).digest(), "big")
    return number < version.share * _HASHES


def _with_versions(model_set: ModelSet, chosen: Sequence[LoadedScorer]) -> ModelSet:
    return replace(
        model_set,
        scorers={**model_set.scorers, **{each.kind: each for each in chosen}},
        versions={each.kind: each.name for each in chosen},
    )
