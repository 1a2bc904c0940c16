"""The encoder: vectors of texts, what it reads of them, and what its self-test refuses."""

import numpy as np
import pytest
from support.bundles import GRAPH, WIDTH, make_encoder_bundle, save_encoder_graph
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import write_bundle
from turnscore_models.manifest import BundleError, MismatchedGraphError
from turnscore_wire import Turn


@pytest.fixture
def bundle(tmp_path):
    return make_encoder_bundle(tmp_path / "encoder")


@pytest.fixture
def loaded(bundle):
    return load_scorer(bundle, "fp32")


def encode(loaded, *texts):
    turns = [loaded.trim(TurnToScore([], text)) for text in texts]
    return loaded.scorer.score(loaded.scorer.encode(turns))


def vector_of(score):
    assert score.vector is not None
    return np.frombuffer(score.vector, "<f4")


def test_a_vector_has_length_1_and_near_texts_have_near_vectors(loaded):
    good, fine, bad = map(vector_of, encode(loaded, "good", "fine fine", "bad ugly"))
    assert loaded.scorer.vector_width
    assert loaded.scorer.vector_width == len(good) == WIDTH
    assert good @ good == pytest.approx(1)
    assert good @ fine > 0.9
    assert good @ bad < -0.9


def test_a_turn_s_value_is_the_cosine_with_the_text_before_it(loaded):
    context = [Turn(speaker="user", text="bad"), Turn(speaker="system", text="good"), Turn(speaker="user", text=" ")]
    turn = loaded.trim(TurnToScore(context, "fine"))
    [score] = loaded.scorer.score(loaded.scorer.encode([turn]))
    good, fine = map(vector_of, encode(loaded, "good", "fine"))
    assert score.value == pytest.approx(float(good @ fine))
    assert score.vector == fine.tobytes()
    assert encode(loaded, "fine")[0].value == pytest.approx(1)


def test_the_end_of_a_long_text_is_dropped_and_counted(loaded):
    turn = loaded.trim(TurnToScore([], "a b c d e f g h i"))
    [pack] = loaded.scorer.encode([turn])
    assert (pack.tokens[0].used, pack.tokens[0].dropped, pack.warnings) == (8, 3, (("response_cut",),))
    assert encode(loaded, "a b c d e f g h i")[0].vector == encode(loaded, "a b c d e f x y z")[0].vector


@pytest.mark.parametrize(("change", "reason"), [({"seed": 1}, "self-test turn"), ({"output": "score"}, "vector")])
def test_a_graph_of_other_weights_or_without_a_vector_is_refused(bundle, change, reason):
    save_encoder_graph(bundle.folder / GRAPH, **change)
    with pytest.raises(BundleError, match=reason):
        load_scorer(write_bundle(bundle.folder, bundle.manifest), "fp32")


def test_a_graph_whose_numbers_stand_in_another_order_is_refused(bundle):
    import onnx
    from onnx import numpy_helper

    model = onnx.load(bundle.folder / GRAPH)
    [table] = [each for each in model.graph.initializer if each.name == "table"]
    table.CopyFrom(numpy_helper.from_array(np.roll(numpy_helper.to_array(table), 1, axis=1).copy(), "table"))
    onnx.save(model, bundle.folder / GRAPH)
    with pytest.raises(MismatchedGraphError, match="number_"):  # every cosine is as it was
        load_scorer(write_bundle(bundle.folder, bundle.manifest), "fp32")
