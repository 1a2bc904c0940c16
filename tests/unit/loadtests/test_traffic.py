"""What loads ask: the same for the same seed, as long as real dialogues, repeated as asked; or of exact lengths."""

import json
from itertools import islice, pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_load.traffic import (
    LENGTH_MIXES,
    SYSTEM_TURNS,
    SYSTEM_WORDS,
    USER_WORDS,
    Ask,
    ExactTraffic,
    LengthMix,
    Lengths,
    Traffic,
    TrafficSettings,
    as_grpc,
    pack,
)  # fmt: skip
from turnscore_models import starter_bundles
from turnscore_wire import Limits, ScoreRequest


def asks(count: int, user: str = "", **settings) -> list[Ask]:
    traffic = Traffic(TrafficSettings(**settings), user)
    return [traffic.next_ask() for _ in range(count)]


def bodies(found: list[Ask]) -> list[str]:
    return [json.dumps(ask.item) for ask in found]


def test_the_same_seed_and_user_ask_the_same():
    assert bodies(asks(300, "flood 1", repeat_share=0.3)) == bodies(asks(300, "flood 1", repeat_share=0.3))


def dialogues(found: list[Ask]) -> list[list[Ask]]:
    """All but the last, which may be unfinished."""
    starts = [place for place, ask in enumerate(found) if len(ask.item["context"]) == 1]
    return [found[begin:end] for begin, end in pairwise(starts)]


@pytest.mark.parametrize("what", ["turns", "user", "system"])
def test_lengths_are_those_of_real_dialogues(what: str):
    found = asks(60_000)
    lengths, drawn = {
        "turns": (SYSTEM_TURNS, [len(dialogue) for dialogue in dialogues(found)]),
        "user": (USER_WORDS, [len(ask.item["context"][-1]["text"].split()) for ask in found]),
        "system": (SYSTEM_WORDS, [len(ask.item["response"].split()) for ask in found]),
    }[what]
    assert np.mean(drawn) == pytest.approx(lengths.mean, rel=0.07)
    for level in (5, 10, 25, 50, 75, 90, 95, 98):
        assert np.percentile(drawn, level) == pytest.approx(measured(lengths, level), rel=0.08, abs=1), level


def measured(lengths: Lengths, level: float) -> float:
    return lengths.quantiles[Lengths.LEVELS_PERCENT.index(level)]


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_the_repeat_share_holds(share: float):
    found = asks(5000, repeat_share=share)
    seen: set[str] = set()
    by_chance = 0
    for ask, body in zip(found, bodies(found), strict=True):
        assert not ask.is_repeat or body in seen
        by_chance += not ask.is_repeat and body in seen
        seen.add(body)
    assert sum(ask.is_repeat for ask in found) / len(found) == pytest.approx(share, abs=0.03)
    assert by_chance < 0.01 * len(found)  # the shortest first turns


def test_every_item_is_one_that_the_service_takes():
    limits = Limits()
    for ask in islice(asks(3000, scorers=("fed", "engagement"), deadline_ms=700), 3000):
        request = ScoreRequest.model_validate(ask.item)
        assert (request.scorers, request.deadline_ms) == (["fed", "engagement"], 700)
        assert len(request.context) <= limits.max_turns
        assert len(json.dumps(ask.item)) <= limits.max_body_bytes


@pytest.mark.parametrize(("bundle", "tokens_a_word"), [("engagement", 1.288), ("fed", 1.364)])
def test_a_word_is_as_many_tokens_as_in_the_dialogues_of_the_table(bundle: str, tokens_a_word: float):
    [folder] = [each for each in starter_bundles() if each.name == bundle]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = [ask.item["response"] for ask in asks(5000)]
    tokens = sum(len(each.ids) for each in tokenizer.encode_batch(texts, add_special_tokens=False))
    assert tokens / sum(len(text.split()) for text in texts) == pytest.approx(tokens_a_word, rel=0.03)


ENGAGEMENT = next(folder for folder in starter_bundles() if folder.name == "engagement") / "tokenizer.json"


def texts_of(item: dict) -> tuple[str, str]:
    return item["context"][0]["text"], item["response"]


@pytest.mark.parametrize("mix", LENGTH_MIXES.values(), ids=lambda mix: mix.name)
def test_exact_turns_have_the_drawn_lengths_in_tokens_and_no_row_is_cut(mix: LengthMix):
    tokenizer = TextTokenizer(ENGAGEMENT)
    items = ExactTraffic(ENGAGEMENT, 128).items(mix, 100)
    rows = [[len(ids) + 2 for ids in tokenizer.encode(list(texts_of(item)))] for item in items]
    lengths = sorted(map(sum, rows))
    assert mix.least <= lengths[0] < 1.2 * mix.least
    assert mix.most / 1.2 < lengths[-1] <= mix.most
    assert max(map(max, rows)) <= 128


def test_calls_alike_give_the_same_lengths_and_never_the_same_text():
    traffic = ExactTraffic(ENGAGEMENT, 128)
    first, second = (traffic.items(LENGTH_MIXES["short"], 500) for _ in range(2))
    words = [[[text.count(" ") for text in texts_of(item)] for item in items] for items in (first, second)]
    assert words[0] == words[1]
    assert len({text for item in (*first, *second) for text in texts_of(item)}) == 2000


def test_bodies_hold_as_many_items_as_are_asked_for_in_one_request():
    items = [{"context": [{"speaker": "user", "text": "hi"}], "response": str(number)} for number in range(32)]
    bodies = [json.loads(body) for body in pack(items, 16, cache="bypass")]
    assert [len(body["items"]) for body in bodies] == [16, 16]
    assert {item["cache"] for body in bodies for item in body["items"]} == {"bypass"}
    assert json.loads(pack([as_grpc(items[0])], 1)[0])["context"] == [{"speaker": "SPEAKER_USER", "text": "hi"}]
