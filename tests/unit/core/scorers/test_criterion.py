"""Criteria on the encoder whose features are quality's heads: computed in one pass with it, alone, or by the engine."""

import numpy as np
import pytest
from support.bundles import converse, make_criterion_bundle, make_quality_bundle, make_quality_version
from turnscore_core.dialogues import Dialogue
from turnscore_core.engine import Engine, choose_bundles
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import copy_bundle, read_bundle, sha256_of, write_bundle
from turnscore_models.manifest import BundleError, InvalidManifestError, MismatchedGraphError

TURNS = converse(7, 12)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    quality = make_quality_bundle(folder / "quality")
    own = {"on_topic": 1.0, "off_topic": -1.0}
    return [quality, *(make_criterion_bundle(folder / name, quality, name, sign=sign) for name, sign in own.items())]


def test_a_criterion_says_what_its_head_says(bundles):
    asked = [load_scorer(each, "fp32") for each in bundles]
    assert [each.kind for each in asked] == ["quality", "on_topic", "off_topic"]
    assert len({each.pass_key for each in asked}) == 1
    turn = asked[0].tested[0]
    quality, on_topic, off_topic = (score_turns(each, [turn])[0] for each in asked)
    assert on_topic.value == pytest.approx(quality.details["relevant"], abs=1e-6)
    assert off_topic.value == pytest.approx(1 - on_topic.value)


def test_the_engine_computes_quality_and_all_criteria_in_one_pass_to_the_same_bits(bundles, passes):
    def values(*models):
        with Engine([each.folder for each in models], threads=1, concurrent_batches=1) as engine:
            passes.clear()
            [found] = engine.score([Dialogue("a", TURNS)])
        names = [each.scorer for each in engine.models]
        return {name: [turn.scores[name].value for turn in found.turns] for name in names}

    together = values(*bundles)
    distinct = len({(tuple(each.text for each in TURNS[:place]), TURNS[place].text) for place in range(1, 12, 2)})
    assert sum(passes) == distinct
    assert together == {name: own for each in bundles for name, own in values(each).items()}
    assert values(*bundles[1:]) == {name: together[name] for name in ("on_topic", "off_topic")}


def test_files_and_corpora_ask_criteria_by_name(bundles):
    folders = [str(each.folder) for each in bundles]
    assert choose_bundles(folders, ["off_topic"]) == (bundles[2].folder,)
    assert choose_bundles(folders, None) == tuple(each.folder for each in bundles)


def test_a_criterion_of_another_encoder_is_refused_by_name(bundles, tmp_path):
    other = make_quality_version(tmp_path / "other", "2.0.0", marks=2.0)
    manifest = bundles[1].manifest
    files = {name: other.manifest.files.get(name, digest) for name, digest in manifest.files.items()}
    copied = copy_bundle(bundles[1], tmp_path / "copied")
    with pytest.raises(MismatchedGraphError, match=r"on_topic:1.0.0: the heads 'criterion' .* are bound to"):
        write_bundle(copied.folder, manifest.model_copy(update={"files": files}), [other.folder])


def test_a_criterion_cannot_take_the_name_of_another_scorer(bundles, tmp_path):
    with pytest.raises(InvalidManifestError, match="cannot have the name of another scorer"):
        make_criterion_bundle(tmp_path / "fed", bundles[0], "fed")


WRONG_WEIGHTS = [
    ({"weights": np.ones(6, np.float32)}, "cannot be read"),
    ({"weights": np.full(6, np.nan, np.float32), "bias": np.float32(0)}, "one finite weight"),
    ({"weights": np.ones((6, 2), np.float32), "bias": np.float32(0)}, "one finite weight"),
    ({"weights": np.ones(5, np.float32), "bias": np.float32(0)}, "does not run"),
]


@pytest.mark.parametrize(("stored", "reason"), WRONG_WEIGHTS)
def test_wrong_weights_are_refused(bundles, tmp_path, stored, reason):
    copied = copy_bundle(bundles[1], tmp_path / "on_topic")
    np.savez(copied.folder / "criterion.npz", **stored)
    heads = copied.manifest.heads["criterion"]
    changed = heads.model_copy(update={"sha256": sha256_of(copied.folder / heads.file)})
    manifest = copied.manifest.model_copy(update={"heads": {"criterion": changed}})
    broken = write_bundle(copied.folder, manifest, copied.lenders)
    with pytest.raises(BundleError, match=reason):
        load_scorer(read_bundle(broken.folder, broken.lenders), "fp32")
