"""Model descriptions: what `GET /v1/models` says of what serves, and of other versions beside it. Pure."""

from collections.abc import Iterator

from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet
from turnscore_core.scorers.scorer import BoundsOptions
from turnscore_wire import ModelDescription, VersionDescription

from turnscore_service.scheduling.split import VersionsBeside


def describe_models(model_set: ModelSet) -> list[ModelDescription]:
    """The served bundles, and the combinations of them."""
    return [_describe(name, loaded, model_set) for name, loaded in model_set.loaded.items()] + [
        each.describe(model_set.scorers, is_default=each.name in model_set.defaults)
        for each in model_set.combinations.values()
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


def _describe(name: str, loaded: LoadedScorer, model_set: ModelSet) -> ModelDescription:
    return ModelDescription(
        scorer=name,
        model=loaded.bundle.manifest.reference,
        digest=loaded.bundle.digest,
        graph=loaded.variant,
        token_limit=loaded.bundle.manifest.token_limit,
        option_limits=loaded.scorer.option_limits if isinstance(loaded.scorer, BoundsOptions) else {},
        is_default=name in model_set.defaults,
        stand_in=loaded.bundle.manifest.stand_in,
        threshold=loaded.threshold,
        threshold_percentile=loaded.threshold_percentile,
        good_threshold=loaded.good_threshold if loaded.threshold is not None else None,
    )
