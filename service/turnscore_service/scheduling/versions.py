"""Versions: which version of each scorer answers a conversation, and what `GET /v1/models` says of all of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet
from turnscore_wire import ModelDescription, Turn, VersionDescription

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


class TrafficSplit:
    """Chooses the versions that answer a conversation, out of one model_set's."""

    def __init__(self, model_set: ModelSet, versions: Sequence[CandidateVersion] = ()) -> None:
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


def is_drawn(key: str, version: CandidateVersion) -> bool:
    """Whether the version answers the conversation of that key."""
    content = f"{version.loaded.model}\n{key}".encode()
    number = int.from_bytes(blake2b(content, digest_size=_HASH_BYTES).digest(), "big")
    return number < version.share * _HASHES


def _with_versions(model_set: ModelSet, chosen: Sequence[LoadedScorer]) -> ModelSet:
    return replace(
        model_set,
        scorers={**model_set.scorers, **{each.kind: each for each in chosen}},
        versions={each.kind: each.name for each in chosen},
    )


def describe_models(model_set: ModelSet) -> list[ModelDescription]:
    """The served bundles, and the combinations of them."""
    return [_describe(name, loaded, model_set) for name, loaded in model_set.loaded.items()] + [
        each.describe(model_set.scorers, is_default=each.name in model_set.defaults)
        for each in model_set.combinations.values()
    ]


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


def _describe(name: str, loaded: LoadedScorer, model_set: ModelSet) -> ModelDescription:
    return ModelDescription(
        scorer=name,
        model=loaded.model,
        digest=loaded.bundle.digest,
        graph=loaded.variant,
        token_limit=loaded.bundle.manifest.token_limit,
        speaker=loaded.speaker,
        option_limits=dict(loaded.scorer.option_limits),
        is_default=name in model_set.defaults,
        stand_in=loaded.bundle.manifest.stand_in,
        threshold=loaded.threshold,
        threshold_percentile=loaded.threshold_percentile,
        good_threshold=loaded.good_threshold if loaded.threshold is not None else None,
    )
