"""Model descriptions: what `GET /v1/models` says of what serves, and of other versions beside it. Pure."""

from collections.abc import Iterator

from turnscore_core.scorers.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import BoundsOptions
from turnscore_wire import ModelDescription, VersionDescription

from turnscore_service.scheduling.request_checks import Roster
from turnscore_service.scheduling.split import VersionsBeside


def describe_models(roster: Roster) -> list[ModelDescription]:
    """The served bundles, and the combinations of them."""
    return [_describe(name, loaded, roster) for name, loaded in roster.loaded.items()] + [
        each.describe(roster.scorers, is_default=each.name in roster.defaults) for each in roster.combinations.values()
    ]


def describe_versions(beside: VersionsBeside) -> Iterator[VersionDescription]:
    """The versions that answer a share of the conversations, then those that shadow."""
    for role, versions in (("split", beside.splits), ("shadow", beside.shadows)):
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


def _describe(name: str, loaded: LoadedScorer, roster: Roster) -> ModelDescription:
    return ModelDescription(
        scorer=name,
        model=loaded.bundle.manifest.reference,
        digest=loaded.bundle.digest,
        graph=loaded.variant,
        token_limit=loaded.bundle.manifest.token_limit,
        option_limits=loaded.scorer.option_limits if isinstance(loaded.scorer, BoundsOptions) else {},
        is_default=name in roster.defaults,
        stand_in=loaded.bundle.manifest.stand_in,
        threshold=loaded.threshold,
        threshold_percentile=loaded.threshold_percentile,
        good_threshold=loaded.good_threshold if loaded.threshold is not None else None,
    )
