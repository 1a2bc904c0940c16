"""The scorer of user turns, on the encoder whose every word has a known mark."""

import numpy as np
import pytest
from support.bundles import make_quality_bundle, make_quality_version, make_reaction_bundle
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.loaded_scorer import load_scorer, score_in_one_batch
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import copy_bundle, read_bundle
from turnscore_models.manifest import MissingBundleFileError
from turnscore_wire import Turn


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return make_reaction_bundle(folder / "reaction", make_quality_bundle(folder / "quality"))


@pytest.fixture(scope="module")
def loaded(bundle):
    return load_scorer(bundle, "fp32")


def turn(text, *context):
    return TurnToScore([Turn.model_validate({"speaker": who, "text": said}) for who, said in context], text)


def test_a_pleased_user_is_satisfied_and_a_frustrated_one_is_not(loaded):
    assert loaded.speaker == "user"
    good, bad = score_in_one_batch(loaded.scorer, [turn("good fine nice"), turn("bad ugly wrong")])
    assert good.value > 0.7 > 0.3 > bad.value
    assert (loaded.signals(good), loaded.signals(bad)) == (["pleased"], ["frustrated"])


def test_signals_stand_in_the_order_of_their_probabilities(tmp_path, bundle):
    thresholds = {"pleased": 0.5, "engages": 0.5}
    own = bundle.manifest.options["calibrated"]
    assert isinstance(own, dict)
    calibrated = {**own, "engages": {"slope": 1.0, "bias": 9.0}}
    quality = read_bundle(bundle.folder.parent / "quality")
    other = make_reaction_bundle(tmp_path / "reaction", quality, thresholds=thresholds, calibrated=calibrated)
    scorer = load_scorer(other, "fp32")
    [found] = score_in_one_batch(scorer.scorer, [turn("good fine")])
    assert scorer.signals(found) == ["engages", "pleased"]


def test_a_bundle_without_the_calibration_of_a_signal_is_refused(tmp_path, bundle):
    quality = read_bundle(bundle.folder.parent / "quality")
    made = dict(bundle.manifest.options["calibrated"])
    made.pop("abuse")
    with pytest.raises(RuntimeError, match="calibrated: lacks abuse"):
        make_reaction_bundle(tmp_path / "reaction", quality, calibrated=made)


def test_the_users_own_earlier_turns_are_told_from_the_chatbots(loaded):
    [pack] = loaded.scorer.encode([turn("a b", ("user", "c d"), ("system", "e f"))])
    assert pack.structure.same_speaker == (False, True)


def test_texts_that_quality_kept_are_not_read_again_and_no_bit_changes(bundle):
    quality = load_scorer(read_bundle(bundle.folder.parent / "quality"), "fp32")
    fresh, sharing = load_scorer(bundle, "fp32"), load_scorer(bundle, "fp32")
    assert quality.first_graph_digest == sharing.first_graph_digest
    store = VectorStore(1_000_000)
    for each in (quality, sharing):
        each.scorer.keep_vectors(store.of(each.first_graph_digest))
    said = (("system", "good a b c"), ("user", "d e f"), ("system", "bad g h"))
    score_in_one_batch(quality.scorer, [turn("bad g h", *said[:2])])
    hits = store.counts().hits.get("context", 0)
    again, alone = (score_in_one_batch(each.scorer, [turn("fine k l", *said)])[0] for each in (sharing, fresh))
    assert store.counts().hits["context"] == hits + 2, "the layout reads two context turns"
    assert again == alone


def test_the_encoder_lies_in_the_other_bundle_alone(bundle, tmp_path):
    assert not (bundle.folder / "graph.onnx").exists()
    assert copy_bundle(bundle, _fresh(tmp_path / "elsewhere")).digest == bundle.digest
    with pytest.raises(MissingBundleFileError, match=r"shares .*tokenizer.json with the bundle quality"):
        read_bundle(tmp_path / "elsewhere")


def test_heads_do_not_meet_another_encoder(bundle, tmp_path):
    copy_bundle(bundle, _fresh(tmp_path / "reaction"))
    make_quality_version(tmp_path / "quality", "1.1.0", marks=2.0)
    with pytest.raises(MissingBundleFileError, match="no version with these files"):
        read_bundle(tmp_path / "reaction")
    # In a store a folder has one for each version, and any that has the files will do.
    stored = _fresh(tmp_path / "store" / "reaction" / "1.0.0")
    copy_bundle(bundle, stored)
    make_quality_version(tmp_path / "store" / "quality" / "1.1.0", "1.1.0", marks=2.0)
    copy_bundle(read_bundle(bundle.folder.parent / "quality"), _fresh(tmp_path / "store" / "quality" / "1.0.0"))
    found = load_scorer(read_bundle(stored), "fp32")
    assert found.bundle.digest == bundle.digest
    assert np.isfinite(score_in_one_batch(found.scorer, [turn("good")])[0].value)


def _fresh(folder):
    folder.mkdir(parents=True)
    return folder
