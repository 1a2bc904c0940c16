"""The rows that engagement and sentiment_stop read, and the vectors of texts."""

import numpy as np
import pytest
from support.bundles import GRAPH, WIDTH, make_encoder_bundle, save_encoder_graph
from tokenizers import Tokenizer, models, pre_tokenizers
from turnscore_core.inference.onnx_backend import padded_width
from turnscore_core.loaded_scorer import load_scorer
from turnscore_core.scorers.engagement import EngagementScorer, last_user_run
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.sentiment_stop import SpecialTokens, WindowLayout, lay_out_row
from turnscore_models.bundle import Bundle, write_bundle
from turnscore_models.manifest import BundleError, MismatchedGraphError
from turnscore_wire import Turn


class RecordingBackend:
    inputs = outputs = ()

    def __init__(self):
        self.feeds = {}

    def round_width(self, longest):
        return padded_width(longest)

    def run(self, feeds):
        self.feeds = feeds
        return {"probability": np.linspace(0.1, 0.9, len(feeds["query_row"]), dtype=np.float32)}


def turns(*spoken):
    return [Turn(speaker=speaker, text=text) for speaker, text in spoken]


@pytest.fixture
def backend():
    return RecordingBackend()


@pytest.fixture
def scorer(tmp_path, backend):
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghijklmnop"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    fields = {"tokenizer": "tokenizer.json", "token_limit": 6, "files": {"tokenizer.json": ""}}
    manifest = type("Manifest", (), fields)
    return EngagementScorer(Bundle(tmp_path, manifest), backend)


def test_the_query_is_the_users_last_run_of_messages():
    context = turns(("user", "a"), ("system", "b"), ("user", " c"), ("user", "d "), ("system", "e"))
    assert last_user_run(context) == ("c", "d")
    assert last_user_run(turns(("system", "b"))) == ()
    assert last_user_run([]) == ()


def test_a_long_query_loses_its_beginning_and_a_long_reply_its_end(scorer):
    [turn] = scorer.encode([TurnToScore(turns(("user", "a b c d e f")), "g h i j k")])
    query, reply = turn.rows
    assert query == (1, *(4 + "abcdefghijklmnop".index(letter) for letter in "cdef"), 2)
    assert reply == (1, *(4 + "abcdefghijklmnop".index(letter) for letter in "ghij"), 2)
    assert (turn.tokens[0].used, turn.tokens[0].dropped) == (12, 3)


def test_without_a_user_turn_the_reply_stands_for_both(scorer, backend):
    [turn] = scorer.encode([TurnToScore([], "a b")])
    scorer.score([turn])
    assert len(turn.rows) == 1
    assert backend.feeds["query_row"].tolist() == backend.feeds["reply_row"].tolist() == [0]
    assert not scorer.counts_in_dialogue(TurnToScore([], "a b"))


def test_equal_rows_of_a_batch_are_computed_once(scorer, backend):
    context = turns(("user", "a b"))
    batch = scorer.encode([TurnToScore(context, reply) for reply in ("c", "d", "c")])
    scores = scorer.score(batch)
    assert backend.feeds["input_ids"].shape == (3, 8)
    assert backend.feeds["attention_mask"].sum(axis=1).tolist() == [4, 3, 3]
    assert backend.feeds["query_row"].tolist() == [0, 0, 0]
    assert backend.feeds["reply_row"].tolist() == [1, 2, 1]
    assert [round(score.value, 1) for score in scores] == [0.1, 0.5, 0.9]


FIRST, SEPARATOR, USER, SYSTEM = 1, 2, 3, 4
SPECIAL = SpecialTokens(first=FIRST, separator=SEPARATOR, user=USER, system=SYSTEM)
CONTEXT = [("user", [10, 11]), ("system", [20]), ("user", [30, 31, 32])]
RESPONSE = [40, 41]


def lay_out(limit, turns=3, marks="separator", context=CONTEXT, response=RESPONSE):
    layout = WindowLayout(context_turns=turns, turn_marks=marks, response_segment=1)
    return lay_out_row(context, response, layout, SPECIAL, limit)


def test_a_row_is_context_then_response():
    row = lay_out(100)
    assert row.ids == (1, 10, 11, 2, 20, 2, 30, 31, 32, 2, 40, 41, 2)
    assert row.ids[row.response_start :] == (40, 41, 2)
    assert row.dropped == 0


def test_speakers_may_be_marked_instead():
    assert lay_out(100, marks="speaker").ids == (1, 3, 10, 11, 4, 20, 3, 30, 31, 32, 2, 40, 41, 2)


@pytest.mark.parametrize(("turns", "dropped"), [(0, 6), (1, 3), (2, 2), (3, 0), (9, 0)])
def test_turns_beyond_the_layout_are_told_as_dropped(turns, dropped):
    assert lay_out(100, turns).dropped == dropped


@pytest.mark.parametrize("marks", ["separator", "speaker"])
@pytest.mark.parametrize("limit", range(5, 16))
def test_every_limit_is_kept_and_every_token_accounted_for(limit, marks):
    row = lay_out(limit, marks=marks)
    assert len(row.ids) <= limit
    assert sum(token >= 10 for token in row.ids) + row.dropped == 8
    assert row.ids[row.response_start - 1] == row.ids[-1] == SEPARATOR


def test_the_oldest_part_of_the_context_is_cut_first():
    assert lay_out(10).ids == (1, 20, 2, 30, 31, 32, 2, 40, 41, 2)
    assert lay_out(7).ids == (1, 31, 32, 2, 40, 41, 2)


def test_a_long_response_keeps_its_beginning_and_leaves_no_context():
    row = lay_out(6, response=[40, 41, 42, 43, 44])
    assert row.ids == (1, 2, 40, 41, 42, 2)
    assert row.dropped == 2 + 6


@pytest.fixture
def bundle(tmp_path):
    return make_encoder_bundle(tmp_path / "encoder")


@pytest.fixture
def loaded(bundle):
    return load_scorer(bundle, "fp32")


def encode(loaded, *texts):
    turns = [loaded.scorer.trim(TurnToScore([], text)) for text in texts]
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
    turn = loaded.scorer.trim(TurnToScore(context, "fine"))
    [score] = loaded.scorer.score(loaded.scorer.encode([turn]))
    good, fine = map(vector_of, encode(loaded, "good", "fine"))
    assert score.value == pytest.approx(float(good @ fine))
    assert score.vector == fine.tobytes()
    assert encode(loaded, "fine")[0].value == pytest.approx(1)


def test_the_end_of_a_long_text_is_dropped_and_counted(loaded):
    turn = loaded.scorer.trim(TurnToScore([], "a b c d e f g h i"))
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
