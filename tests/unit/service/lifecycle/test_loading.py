"""Loading: candidate versions, each guard with what it refuses, and a device that cannot be used."""

import pytest
from support.fakes import FakeEncoder, FakeScorer, loaded_fake
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_models.manifest import BundleError, BundleNotFoundError, MismatchedGraphError
from turnscore_service.lifecycle.loading import load_versions
from turnscore_service.settings.group import VersionShare
from turnscore_service.settings.service import Settings

SERVED = {
    "fake": loaded_fake(FakeScorer()),
    "other": loaded_fake(FakeScorer(), "other"),
    "encoder": loaded_fake(FakeEncoder(), "encoder"),
}


class Loader:
    """Loads fakes; notes what it loaded, in which concurrent batches."""

    def __init__(self):
        self.loaded = []

    def load_candidate(self, bundle, like, *, concurrency=None):
        if bundle.manifest.version == "6.6.6":
            raise MismatchedGraphError("its graph gives self-test turn 0 another value")
        if bundle.manifest.version == "7.7.7":
            raise DeviceError("cuda:0 has no room for both")
        self.loaded.append((bundle.manifest.reference, concurrency))
        return loaded_fake(FakeScorer(), bundle.manifest.kind, bundle.manifest.version)


def find(reference):
    name, _, version = reference.partition(":")
    if version == "9.9.9":
        raise BundleNotFoundError(f"no bundle {reference}; known: {name}:1.0.0")
    return loaded_fake(FakeScorer(), name, version).bundle


def load(loader=None, **settings):
    shares = {
        setting: tuple(VersionShare(bundle=each, share=0.25) for each in named) for setting, named in settings.items()
    }
    return load_versions(Settings(**shares), SERVED, loader or Loader(), find)


def test_versions_work_under_names_of_their_own_and_a_shadow_one_batch_at_a_time():
    loader = Loader()
    found = load(loader, shadow=["fake:1.1.0", "other:2.0.0"], split=["fake:1.2.0"])
    assert [(each.loaded.kind, each.loaded.name, each.share) for each in found.shadows] == [
        ("fake", "fake:1.1.0", 0.25),
        ("other", "other:2.0.0", 0.25),
    ]
    assert [each.loaded.name for each in found.splits] == ["fake:1.2.0"]
    one = Concurrency(batches=1, threads=1)
    assert loader.loaded == [("fake:1.1.0", one), ("other:2.0.0", one), ("fake:1.2.0", None)]


@pytest.mark.parametrize("setting", ["shadow", "split"])
@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (["fake:9.9.9"], "no bundle fake:9.9.9; known: fake:1.0.0"),
        (
            ["fake:1.0.0"],
            "fake:1.0.0 is what is served; name another version, "
            "or pin the one to serve: TURNSCORE_MODELS=fake:VERSION",
        ),
        (["mood:1.0.0"], "mood:1.0.0 is the scorer mood, of which no version is served"),
        (["encoder:2.0.0"], "encoder:2.0.0 is the scorer encoder, which scores no turns of a conversation"),
        (["fake:1.1.0", "fake:1.2.0"], "fake:1.2.0 is the second version of fake; name one of each scorer"),
    ],
)
def test_what_cannot_be_a_candidate_of_a_served_scorer_is_refused_before_anything_is_loaded(setting, named, sentence):
    loader = Loader()
    with pytest.raises(BundleError) as refused:
        load(loader, **{setting: named})
    assert str(refused.value) == f"TURNSCORE_{setting.upper()}: {sentence}"
    assert loader.loaded == []


def test_a_version_that_fails_its_proof_is_refused():
    with pytest.raises(BundleError, match=r"^TURNSCORE_SPLIT: its graph gives self-test turn 0 another value"):
        load(split=["fake:6.6.6"])
