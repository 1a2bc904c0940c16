"""What loads ask: the same for the same seed, as long as real dialogues, repeated as asked; or of exact lengths."""

import json
from itertools import islice

import pytest
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_load.traffic import LENGTH_MIXES, ExactTraffic, Traffic, TrafficSettings
from turnscore_models.bundle import starter_bundles
from turnscore_wire import Limits, ScoreRequest


def asks(count, user="", **settings):
    traffic = Traffic(TrafficSettings(**settings), user)
    return [traffic.next_ask() for _ in range(count)]


def test_every_item_is_one_that_the_service_takes():
    limits = Limits()
    for ask in islice(asks(3000, scorers=("fed", "engagement"), deadline_ms=700), 3000):
        request = ScoreRequest.model_validate(ask.item)
        assert (request.scorers, request.deadline_ms) == (["fed", "engagement"], 700)
        assert len(request.context) <= limits.max_turns
        assert len(json.dumps(ask.item)) <= limits.max_body_bytes


ENGAGEMENT = next(folder for folder in starter_bundles() if folder.name == "engagement") / "tokenizer.json"


def texts_of(item):
    return item["context"][0]["text"], item["response"]


@pytest.mark.parametrize("mix", LENGTH_MIXES.values(), ids=lambda mix: mix.name)
def test_exact_turns_have_the_drawn_lengths_in_tokens_and_no_row_is_cut(mix):
    tokenizer = TextTokenizer(ENGAGEMENT)
    items = ExactTraffic(ENGAGEMENT, 128).items(mix, 100)
    rows = [[len(ids) + 2 for ids in tokenizer.encode(list(texts_of(item)))] for item in items]
    lengths = sorted(map(sum, rows))
    assert mix.least <= lengths[0] < 1.2 * mix.least
    assert mix.most / 1.2 < lengths[-1] <= mix.most
    assert max(map(max, rows)) <= 128
