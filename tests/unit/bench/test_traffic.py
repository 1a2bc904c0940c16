from pathlib import Path

import pytest
from turnscore_bench.harness.traffic import LENGTH_MIXES, SPECIAL_TOKENS, LengthMix, Traffic
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_models import starter_bundles

ROW_LIMIT = 128
TOKENIZER = next(folder for folder in starter_bundles() if folder.name == "engagement") / "tokenizer.json"


@pytest.mark.parametrize("mix", LENGTH_MIXES.values(), ids=lambda mix: mix.name)
def test_turns_have_the_drawn_lengths_in_tokens_and_no_row_is_cut(mix: LengthMix) -> None:
    tokenizer = TextTokenizer(Path(TOKENIZER))
    turns = Traffic(TOKENIZER, ROW_LIMIT).turns(mix, 100)
    rows = [[len(ids) + 2 for ids in tokenizer.encode([turn.query, turn.reply])] for turn in turns]
    lengths = sorted(map(sum, rows))
    assert mix.least <= lengths[0] < 1.2 * mix.least
    assert mix.most / 1.2 < lengths[-1] <= mix.most
    assert max(map(max, rows)) <= ROW_LIMIT
    assert min(map(min, rows)) > SPECIAL_TOKENS / 2


def test_calls_alike_give_the_same_lengths_and_never_the_same_text() -> None:
    traffic = Traffic(TOKENIZER, ROW_LIMIT)
    first, second = (traffic.turns(LENGTH_MIXES["short"], 500) for _ in range(2))
    words = [[(turn.query.count(" "), turn.reply.count(" ")) for turn in turns] for turns in (first, second)]
    texts = [text for turn in (*first, *second) for text in (turn.query, turn.reply)]
    assert words[0] == words[1]
    assert len(set(texts)) == len(texts) == 2000


def test_a_text_that_was_given_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnscore_bench.harness.traffic.read_words", lambda _: ["one", "two"])
    turns = Traffic(TOKENIZER, ROW_LIMIT).turns(LengthMix(name="tiny", least=8, most=8, turns_factor=1), 2)
    assert {turn.query for turn in turns} | {turn.reply for turn in turns} == {
        "one one",
        "one two",
        "two one",
        "two two",
    }


def test_samples_of_any_size_have_the_same_mean() -> None:
    traffic = Traffic(TOKENIZER, ROW_LIMIT)
    means = []
    for count in (100, 700):
        turns = traffic.turns(LENGTH_MIXES["mixed"], count)
        means.append(sum(len(f"{turn.query} {turn.reply}".split()) for turn in turns) / count)
    assert means[0] == pytest.approx(means[1], rel=0.01)
