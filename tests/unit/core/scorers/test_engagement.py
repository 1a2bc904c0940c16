import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from turnscore_core.inference.onnx_backend import padded_width
from turnscore_core.scorers.engagement import EngagementScorer, last_user_run
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import Bundle
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
