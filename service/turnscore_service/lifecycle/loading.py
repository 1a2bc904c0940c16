"""Loads what the settings name besides bundles: combinations of scorers, and candidate versions that shadow or split.

Refuses a combination that could never score, and warns of percentiles that belong to other bundles or weights: a value
is right without them, and a switch goes on.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_core.loaded_scorer import LoadedScorer, find_scorer
from turnscore_core.model_loader import ModelLoader
from turnscore_core.model_set import Combination, ModelSet
from turnscore_models.bundle import Bundle, read_document, starter_bundles
from turnscore_models.manifest import BundleError, BundleNotFoundError, CombinationCalibration, Manifest
from turnscore_models.store import find_manifest, resolve

from turnscore_service.auth.access import Offer, unknown_name
from turnscore_service.scheduling.versions import CandidateVersion, CandidateVersions
from turnscore_service.settings.group import VersionShare
from turnscore_service.settings.service import CombinationSettings, Settings

VARIABLE = "TURNSCORE_COMBINATIONS"


class WrongSettingError(Exception):
    """A setting names what would not be served; the message begins with the setting's name."""


def find_offer(settings: Settings) -> Offer:
    """What API keys may name, by the manifests alone: in milliseconds, before a worker loads anything.

    Only whose turns the scorers in TURNSCORE_DEFAULT_SCORERS score is asked of their classes. A manifest that cannot be
    read is left out: loading says what is wrong with it, and can be tried again. Raises BundleNotFoundError, with the
    setting's name, for a bundle that is not known, UnknownKindError for a default scorer that nothing installed reads,
    and WrongSettingError for a candidate version or a scorer's name that could not be served.
    """
    references = settings.models or tuple(f"{folder}/" for folder in starter_bundles())
    served = _read_manifests("MODELS", references)
    splits = _read_manifests("SPLIT", [each.bundle for each in settings.split])
    shadows = _read_manifests("SHADOW", [each.bundle for each in settings.shadow])
    models = {each.reference: each.scorer for each in (*served, *splits)}
    scorers = {*models.values(), *settings.combinations}
    if len(served) == len(references):
        by_scorer = {each.scorer: each.reference for each in served}
        _check_candidates("SPLIT", splits, by_scorer)
        _check_candidates("SHADOW", shadows, by_scorer)
        _check_scorers(settings, by_scorer)
        for each in served:
            if each.scorer in settings.default_scorers and find_scorer(each.kind)[0].speaker == "user":
                raise WrongSettingError(f"TURNSCORE_DEFAULT_SCORERS: {each.scorer} scores user turns: ask it by name")
    return Offer(scorers=scorers, defaults=scorers, models=models)


def _read_manifests(setting: str, references: Sequence[str]) -> list[Manifest]:
    found = []
    for reference in references:
        try:
            found.append(find_manifest(reference))
        except BundleNotFoundError as error:
            raise BundleNotFoundError(f"TURNSCORE_{setting}: {error}") from None
        except BundleError:
            continue
    return found


def _check_candidates(setting: str, candidates: Sequence[Manifest], served: Mapping[str, str]) -> None:
    found: list[str] = []
    for each in candidates:
        if refusal := _refusal(each, served.get(each.scorer), found):
            raise WrongSettingError(f"TURNSCORE_{setting}: {each.reference} {refusal}")
        found.append(each.scorer)


def _check_scorers(settings: Settings, served: Collection[str]) -> None:
    parts = [part for each in settings.combinations.values() for part in each.weights]
    for setting, named, known in (
        ("COMBINATIONS", [part.partition(".")[0] for part in parts], served),
        ("DEFAULT_SCORERS", settings.default_scorers, {*served, *settings.combinations}),
        ("THRESHOLDS", settings.thresholds, served),  # a combination's is in COMBINATIONS
        ("OPTIONS", settings.options, served),
    ):
        if refusal := unknown_name(named, known):
            raise WrongSettingError(f"TURNSCORE_{setting}: {refusal}")


def offer_of(model_set: ModelSet, candidates: CandidateVersions) -> Offer:
    """What API keys may name where these are served."""
    scorers = {*model_set.scorers, *model_set.combinations}
    every = [*model_set.loaded.values(), *(each.loaded for each in candidates.splits)]
    return Offer(
        scorers=scorers,
        defaults={name for name in scorers if model_set.speaker_of(name) == "system"},
        models={each.model: each.kind for each in every},
    )


_LOGGER = logging.getLogger("turnscore.models")


def load_combinations(
    described: Mapping[str, CombinationSettings], scorers: Mapping[str, LoadedScorer]
) -> dict[str, Combination]:
    """By name. Raises BundleError where a name is a scorer's, or a part or a file of percentiles is not there."""
    of_turns = {name: each for name, each in scorers.items() if not each.scorer.vector_width}
    return {name: _load_combination(name, each, of_turns) for name, each in described.items()}


def _load_combination(name: str, described: CombinationSettings, scorers: Mapping[str, LoadedScorer]) -> Combination:
    if name in scorers:
        raise BundleError(f"{VARIABLE} names {name}, which is the name of a loaded scorer")
    file = described.percentiles
    with _naming(f"{VARIABLE}: {name}"):
        known = None if file is None else read_document(CombinationCalibration, file)
    combination = Combination(
        name=name,
        weights=described.weights,
        percentiles=None if known is None else tuple(known.percentiles),
        threshold=described.threshold,
    )
    for scorer in combination.scorers:
        if scorer not in scorers:
            raise BundleError(f"{VARIABLE}: {name} weighs {scorer}, which is not loaded; loaded: {', '.join(scorers)}")
        if scorers[scorer].speaker == "user":
            raise BundleError(f"{VARIABLE}: {name} weighs {scorer}, which scores user turns")
    for part in combination.weights:
        scorer, _, detail = part.partition(".")
        loaded = scorers[scorer]
        # Its parts are those of the turn that it is known to score.
        if detail and detail not in (parts := loaded.scorer.score(loaded.scorer.encode([loaded.sample]))[0].details):
            raise BundleError(
                f"{VARIABLE}: {name} weighs {part}; the parts of {scorer} are {', '.join(parts) or 'none'}"
            )
    if known is not None and (mismatch := _mismatch(known, combination, scorers)):
        _LOGGER.warning(
            "%s: the percentiles of %s in %s %s; recompute them with turnscore export combination",
            *(VARIABLE, name, file, mismatch),
        )
    return combination


def _mismatch(found: CombinationCalibration, combination: Combination, scorers: Mapping[str, LoadedScorer]) -> str:
    """Why the percentiles may not be those of what is served; empty where they are."""
    served = {name: scorers[name].bundle.manifest.reference for name in combination.scorers}
    if not found.models:
        return "do not name the versions of their bundles"
    if found.models != served:
        return f"belong to {', '.join(found.models.values())}, but {', '.join(served.values())} are served"
    return "" if found.weights == combination.weights else "belong to other weights"


_SHADOW_CONCURRENCY = Concurrency(batches=1, threads=1)  # a shadow computes one pack at a time, in one thread


def load_versions(
    settings: Settings, served: Mapping[str, LoadedScorer], loader: ModelLoader, find: Callable[[str], Bundle] = resolve
) -> CandidateVersions:
    """The versions that the settings name, checked and warmed as those that serve.

    Raises DeviceError as the loader does, and BundleError for a bundle that is not found or refused, is of a scorer
    that is not served or scores no turns, is the served version, or is its second; both with the setting's name.
    """
    # Everything is found and checked before anything is loaded, which takes seconds.
    with _naming("TURNSCORE_SHADOW"):
        shadows = _find(settings.shadow, served, find)
    with _naming("TURNSCORE_SPLIT"):
        splits = _find(settings.split, served, find)
    with _naming("TURNSCORE_SHADOW"):
        shadowing = [_load_version(bundle, share, served, loader, _SHADOW_CONCURRENCY) for bundle, share in shadows]
    with _naming("TURNSCORE_SPLIT"):
        splitting = [_load_version(bundle, share, served, loader, None) for bundle, share in splits]
    return CandidateVersions(shadows=shadowing, splits=splitting)


@contextmanager
def _naming(setting: str) -> Iterator[None]:
    """Puts the setting's name before what a BundleError or a DeviceError says."""
    try:
        yield
    except BundleError as error:
        raise BundleError(f"{setting}: {error}") from error
    except DeviceError as error:
        raise DeviceError(f"{setting}: {error}") from error


def _find(
    wanted: Sequence[VersionShare], served: Mapping[str, LoadedScorer], find: Callable[[str], Bundle]
) -> list[tuple[Bundle, float]]:
    found: dict[str, tuple[Bundle, float]] = {}
    for each in wanted:
        bundle = find(each.bundle)
        manifest = bundle.manifest
        like = served.get(manifest.scorer)
        refusal = _refusal(manifest, None if like is None else like.model, [*found])
        if like is not None and like.scorer.vector_width:
            refusal = f"is the scorer {manifest.scorer}, which scores no turns of a conversation"
        if refusal:
            raise BundleError(f"{manifest.reference} {refusal}")
        found[manifest.scorer] = bundle, each.share
    return list(found.values())


def _refusal(manifest: Manifest, served: str | None, found: Sequence[str]) -> str:
    """Why it cannot be a candidate where that model is served, and those scorers have one; empty where it can."""
    if served is None:
        return f"is the scorer {manifest.scorer}, of which no version is served"
    if manifest.scorer in found:
        return f"is the second version of {manifest.scorer}; name one of each scorer"
    if manifest.reference == served:
        # A name without a version means the newest stored one, so that an import may have changed what is served.
        pinned = f"TURNSCORE_MODELS={manifest.name}:VERSION"
        return f"is what is served; name another version, or pin the one to serve: {pinned}"
    return ""


def _load_version(
    bundle: Bundle,
    share: float,
    served: Mapping[str, LoadedScorer],
    loader: ModelLoader,
    concurrency: Concurrency | None,
) -> CandidateVersion:
    loaded = loader.load_candidate(bundle, served[bundle.manifest.scorer], concurrency=concurrency)
    return CandidateVersion(replace(loaded, alias=bundle.manifest.reference), share)
