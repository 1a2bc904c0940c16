"""Vectors of texts that were read are used again: bounded, of one encoder alone, and without changing a bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.bundles import converse, make_quality_bundle, make_quality_version, open_quality
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.load_settings import LoadSettings
from turnscore_core.loaded_scorer import load_scorer, score_in_one_batch
from turnscore_core.model_loader import ModelLoader
from turnscore_core.scorers.quality import CONTEXT, RESPONSE, QualityScorer
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_wire import Turn

CONVERSATIONS = 200
COMMON = (*"abcdefghijklmnopqrstuvwxyz", "yes", "no", "well", "why", "good", "so")


def replies(conversation):
    for place in range(1, len(conversation), 2):
        yield TurnToScore(conversation[:place], conversation[place].text)


def score_each(scorer, turns):
    """Each turn when it comes."""
    return [score_in_one_batch(scorer, [scorer.trim(turn)])[0] for turn in turns]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return make_quality_bundle(tmp_path_factory.mktemp("kept") / "bundle")


def open_scorer(bundle, store=None, encoder="a"):
    scorer = QualityScorer(bundle, open_quality(bundle.folder))
    if store is not None:
        scorer.keep_vectors(store.of(encoder))
    return scorer


def count_rows(scorer):
    """Grows by the rows of each batch that the encoder's first graph reads."""
    backend, found = scorer._encoder._rows, list[int]()
    run = backend.run

    def count(feeds):
        found.append(len(feeds["input_ids"]))
        return run(feeds)

    backend.run = count  # type: ignore[method-assign, assignment]
    return found


def test_a_turn_that_was_read_ahead_is_not_read_again_and_changes_no_bit(bundle):
    plain, ahead = open_scorer(bundle), open_scorer(bundle, VectorStore())
    turn, other = next(replies(converse(1, 2))), next(replies(converse(2, 2)))
    expected = TurnToScore(turn.context, "")
    assert plain.read_ahead(plain.trim(expected)) is None
    assert ahead.read_ahead(TurnToScore([], "")) is None
    pack = ahead.read_ahead(ahead.trim(expected))
    assert pack is not None
    rows = count_rows(ahead)
    assert ahead.score([pack]) == []
    assert score_each(ahead, [turn]) == score_each(plain, [turn])
    assert rows == [1, 1]
    assert ahead.read_ahead(ahead.trim(expected)) is None
    asked = ahead.encode([ahead.trim(other)])
    assert [each.details for each in ahead.score([pack, *asked])] == [
        each.details for each in score_each(plain, [other])
    ]


def test_200_conversations_have_the_same_bits_with_and_without_kept_vectors():
    [starter] = [each for each in starter_bundles() if each.name == "quality"]
    scorer = load_scorer(read_bundle(starter), "cpu-int8").scorer

    def score_all():
        found = []
        for seed in range(CONVERSATIONS):
            turns = list(replies(converse(seed, 4, COMMON)))
            found += score_each(scorer, turns)
            if seed % 20 == 0:  # and all of them at once
                found += score_in_one_batch(scorer, [scorer.trim(turn) for turn in turns])
        return found

    plain, store = score_all(), VectorStore()
    scorer.keep_vectors(store.of("a"))
    assert score_all() == plain
    assert store.counts().hits[CONTEXT] > CONVERSATIONS


def test_at_reply_time_the_reply_and_what_was_said_since_are_read(bundle):
    scorer = open_scorer(bundle, VectorStore())
    rows = count_rows(scorer)
    texts = ["a b c", "d e f g", "h i", "j k l", "m n o", "p q"]
    conversation = [Turn(speaker="system" if place % 2 else "user", text=text) for place, text in enumerate(texts)]
    score_each(scorer, list(replies(conversation)))
    assert rows == [2, 2, 2]
    score_in_one_batch(scorer, [TurnToScore(conversation[:3], text) for text in ("r", "s t", "u v")])
    assert rows == [2, 2, 2, 3]


def test_a_queue_counts_what_will_be_read_of_a_turn_and_a_sixth_of_what_is_kept(bundle):
    kept, plain = open_scorer(bundle, VectorStore()), open_scorer(bundle)
    texts = [Turn(speaker="user", text="a b"), Turn(speaker="system", text="c d"), Turn(speaker="user", text="e f g")]
    [pack] = kept.encode([TurnToScore(texts, "h")])
    assert kept.for_queue(pack) == plain.for_queue(pack) == pack
    kept.score(kept.encode([TurnToScore(texts[:2], "i")]))
    response, latest, earlier = pack.rows
    assert kept.for_queue(pack).rows == (response, latest, earlier[:1])
    assert kept.score([kept.for_queue(pack)]) == plain.score([plain.for_queue(pack)])
    assert kept.for_queue(pack).rows == (response, latest[:1], earlier[:1])
    assert plain.for_queue(pack) == pack


def test_a_short_response_is_kept_as_such_and_a_long_one_only_as_what_comes_before(bundle):
    scorer = open_scorer(bundle, VectorStore())
    rows = count_rows(scorer)
    for response in ("a b", "a b", " ".join("abcdefghijklmnop") + " x y", "c d e f"):
        score_in_one_batch(scorer, [TurnToScore([], response)])
    assert rows == [1, 1, 1]
    score_in_one_batch(scorer, [TurnToScore([Turn(speaker="system", text="c d e f")], "g")])
    assert rows == [1, 1, 1, 1]


def fill(size):
    return (np.zeros(size, np.uint8),)


def test_the_least_recently_used_goes_first_and_one_that_is_too_large_is_not_kept():
    store = VectorStore(10_000)
    part = store.of("one")
    a, b, c, d = ((number,) for number in range(4))
    part.keep(CONTEXT, {a: fill(3000), b: fill(3000)})
    assert list(part.find(CONTEXT, [a])) == [a]  # counted as nothing
    part.keep(CONTEXT, {c: fill(3000), d: fill(20_000)})
    assert list(part.find(CONTEXT, [a, b, c, d], CONTEXT)) == [a, c]
    counts = store.counts()
    assert (counts.evictions, counts.entries) == (1, 2)
    assert 6000 < counts.bytes <= 10_000
    assert (counts.hits[CONTEXT], counts.misses[CONTEXT]) == (2, 2)


def test_what_is_kept_holds_no_more_than_its_own_bytes():
    part = VectorStore().of("one")
    batch = np.zeros((64, 1000))
    part.keep(CONTEXT, {(1,): (batch[3],)})
    [[kept]] = part.find(CONTEXT, [(1,)]).values()
    assert kept.base is None
    assert not np.shares_memory(kept, batch)


def test_no_key_tells_a_text_and_none_is_another_stores_or_roles():
    row = (1, 7, 8, 2)
    stores = [VectorStore(), VectorStore()]
    parts = [store.of(encoder) for store in stores for encoder in ("one", "other")]
    for part in parts:
        part.keep(CONTEXT, {row: fill(1)})
        assert part.find(RESPONSE, [row]) == {}
    keys = [key for store in stores for key in store.entries]
    assert len(set(keys)) == 4
    assert all(np.array(row, np.int32).tobytes() not in key for key in keys)


def test_a_version_with_the_same_encoder_uses_what_the_other_read_if_it_takes_the_same_of_it(bundle, tmp_path):
    other = make_quality_version(tmp_path / "other", "1.1.0", marks=1, value={"weights": {"overall": 2.0}, "bias": 0.0})
    less = make_quality_bundle(tmp_path / "less", unread=("response_lower", "context_lower"))
    loader = ModelLoader(LoadSettings(models=(str(bundle.folder),), device="cpu", threads=1))
    one = loader.load_all()["quality"]
    same, narrow = [loader.load_candidate(each, one).scorer for each in (other, less)]
    turn = TurnToScore([Turn(speaker="user", text="a b c")], "d e f")
    first = score_in_one_batch(one.scorer, [turn])[0]
    rows = count_rows(same)
    second = score_in_one_batch(same, [turn])[0]
    assert (rows, second.details, second.value != first.value) == ([], first.details, True)
    assert score_in_one_batch(narrow, [turn]) == [first]


def test_many_threads_share_a_small_store(bundle):
    store = VectorStore(8_000)
    kept, plain = open_scorer(bundle, store), open_scorer(bundle)
    conversations = [list(replies(converse(seed % 7, 10))) for seed in range(60)]
    expected = [score_each(plain, turns) for turns in conversations]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda turns: score_each(kept, turns), conversations)) == expected
    counts = store.counts()
    assert counts.bytes == sum(size for _, size in store.entries.values()) <= 8_000
    assert counts.evictions > 0
