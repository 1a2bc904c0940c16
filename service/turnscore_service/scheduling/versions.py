"""Versions: which version of each scorer answers a conversation, and what `GET /v1/models` says of all of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet, choose_ranking, with_thresholds
from turnscore_wire import Turn, VersionDescription

from turnscore_service.auth.access import CALLER, Preferences

_HASH_BYTES = 8
_HASHES = float(1 << 8 * _HASH_BYTES)


@dataclass(frozen=True, slots=True)
class CandidateVersion:
    """Another version of a served scorer, and the share that it scores."""

    loaded: LoadedScorer
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateVersions:
    """All candidate versions, at most one of each scorer in each role."""

    shadows: Sequence[CandidateVersion] = ()
    splits: Sequence[CandidateVersion] = ()


_MOST_SETS = 256  # of versions and preferences that are kept put together; chosen: more than teams have


class TrafficSplit:
    """Chooses the versions that answer a conversation, out of one model_set's, as its caller's key prefers them."""

    def __init__(self, model_set: ModelSet, versions: Sequence[CandidateVersion] = ()) -> None:
        self._model_set = model_set
        self._versions = versions
        self._model_sets: dict[tuple[tuple[str, ...], Preferences | None], ModelSet] = {}

    def model_set_for(self, conversation: str | None = None, turns: Iterable[Turn] = ()) -> ModelSet:
        """The model_set that answers the conversation with this name, or else with these turns, oldest first.

        Where it has no name and the user has not said anything, the served versions, and those that the key names.
        """
        preferences = CALLER.get().preferences
        if not self._versions and preferences is None:
            return self._model_set
        key = conversation_key(conversation, turns) if self._versions else None
        models = () if preferences is None else preferences.models
        names = tuple([each.loaded.name for each in self._versions if self._answers(each, key, models)])
        if not names and preferences is None:
            return self._model_set
        model_set = self._model_sets.get((names, preferences))
        if model_set is None:
            if len(self._model_sets) >= _MOST_SETS:
                self._model_sets.clear()
            model_set = self._model_sets[names, preferences] = self._put_together(names, preferences)
        return model_set

    def _answers(self, version: CandidateVersion, key: str | None, models: Sequence[str]) -> bool:
        """Whether it answers the conversation of that key, or a caller to whom these models are to answer."""
        if version.loaded.model in models:
            return True
        is_free = self._model_set.scorers[version.loaded.kind].model not in models
        return is_free and key is not None and is_drawn(key, version)

    def _put_together(self, names: Sequence[str], preferences: Preferences | None) -> ModelSet:
        chosen = [each.loaded for each in self._versions if each.loaded.name in names]
        model_set = replace(
            self._model_set,
            scorers={**self._model_set.scorers, **{each.kind: each for each in chosen}},
            versions={each.kind: each.name for each in chosen},
        )
        if preferences is None:
            return model_set
        thresholds = dict(preferences.thresholds)
        defaults = tuple(dict.fromkeys(preferences.default_scorers)) or model_set.defaults
        return replace(
            model_set,
            scorers=with_thresholds(model_set.scorers, thresholds),
            combinations=with_thresholds(model_set.combinations, thresholds),
            defaults=defaults,
            ranking=choose_ranking(defaults),
        )


def conversation_key(conversation: str | None, turns: Iterable[Turn]) -> str | None:
    """What tells a conversation from others in every one of its turns; None where nothing does yet."""
    if conversation is not None:
        return f"named:{conversation}"
    for turn in turns:
        if turn.speaker == "user" and (text := turn.text.strip()):
            return f"begins:{text}"
    return None


def is_drawn(key: str, version: CandidateVersion) -> bool:
    """Whether the version answers the conversation of that key."""
    content = f"{version.loaded.model}\n{key}".encode()
    number = int.from_bytes(blake2b(content, digest_size=_HASH_BYTES).digest(), "big")
    return number < version.share * _HASHES


def describe_versions(candidates: CandidateVersions) -> Iterator[VersionDescription]:
    """The versions that answer a share of the conversations, then those that shadow."""
    for role, versions in (("split", candidates.splits), ("shadow", candidates.shadows)):
        for each in versions:
            bundle = each.loaded.bundle
            yield VersionDescription(
                scorer=each.loaded.kind,
                model=bundle.manifest.reference,
                digest=bundle.digest,
                graph=each.loaded.variant,
                role=role,
                share=each.share,
            )
