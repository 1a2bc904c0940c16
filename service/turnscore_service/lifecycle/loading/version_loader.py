"""The version loader: the bundles that shadow or split served scorers. Refuses what cannot stand beside them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import EncodesTexts
from turnscore_models import Bundle, BundleError
from turnscore_models.store import resolve

from turnscore_service.scheduling.versions import CandidateVersion, CandidateVersions
from turnscore_service.settings.group import VersionShare
from turnscore_service.settings.service import Settings

_SHADOW_CONCURRENCY = Concurrency(lanes=1, threads=1)
"""A shadow computes one pack at a time, in one thread."""


class LoadsCandidates(Protocol):
    """The model loader, as far as this asks."""

    def load_candidate(
        self, bundle: Bundle, like: LoadedScorer, *, concurrency: Concurrency | None = None
    ) -> LoadedScorer:
        """Another version of what serves as `like`, proved and warmed."""


def load_versions(
    settings: Settings,
    served: Mapping[str, LoadedScorer],
    loader: LoadsCandidates,
    find: Callable[[str], Bundle] = resolve,
) -> CandidateVersions:
    """The versions that the settings name, proved and warmed as those that serve.

    Raises DeviceError as the loader does, and BundleError for a bundle that is not found or refused, is of a kind that
    is not served or scores no turns, is the served version, or is the second of its kind; both with the setting's name.
    """
    # Everything is found and checked before anything is loaded, which takes seconds.
    with _naming("TURNSCORE_SHADOW"):
        shadows = _find(settings.shadow, served, find)
    with _naming("TURNSCORE_SPLIT"):
        splits = _find(settings.split, served, find)
    with _naming("TURNSCORE_SHADOW"):
        shadowing = [_load(bundle, share, served, loader, _SHADOW_CONCURRENCY) for bundle, share in shadows]
    with _naming("TURNSCORE_SPLIT"):
        splitting = [_load(bundle, share, served, loader, None) for bundle, share in splits]
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
    wanted: Sequence[VersionShare],
    served: Mapping[str, LoadedScorer],
    find: Callable[[str], Bundle],
) -> list[tuple[Bundle, float]]:
    found: dict[str, tuple[Bundle, float]] = {}
    for each in wanted:
        bundle = find(each.bundle)
        kind = bundle.manifest.kind
        if refusal := _refusal(bundle, served.get(kind), [*found]):
            raise BundleError(f"{bundle.manifest.reference} {refusal}")
        found[kind] = bundle, each.share
    return list(found.values())


def _refusal(bundle: Bundle, served: LoadedScorer | None, found: Sequence[str]) -> str:
    """Why the bundle cannot stand beside the served one; empty where it can."""
    kind = bundle.manifest.kind
    if served is None:
        return f"is of kind {kind}, and no bundle of this kind is served"
    if isinstance(served.scorer, EncodesTexts):
        return f"is of kind {kind}, which scores no turns of a conversation"
    if kind in found:
        return f"is the second of kind {kind}; name one bundle per kind"
    if bundle.manifest.reference == served.bundle.manifest.reference:
        return "is what is served; name another version"
    return ""


def _load(
    bundle: Bundle,
    share: float,
    served: Mapping[str, LoadedScorer],
    loader: LoadsCandidates,
    concurrency: Concurrency | None,
) -> CandidateVersion:
    loaded = loader.load_candidate(bundle, served[bundle.manifest.kind], concurrency=concurrency)
    return CandidateVersion(replace(loaded, alias=bundle.manifest.reference), share)
