"""The numbers in the tables are the engine's, to the bit, with models and without."""

import gc

import pytest
from support.corpora import WordEngine, content_of, dialogue_rows, job_of, turns_of, write_lines
from support.fakes import FakeReaction, FakeScorer, engine_of, loaded_fake
from turnscore_corpus.command import run_job
from turnscore_corpus.engines.work import EngineChoice
from turnscore_wire import DialogueRequest, Turn

ROWS = [
    {"id": "d0", "turns": turns_of("hi, any plans?", "i hiked up a volcano. ever been on one?", "no", "ok.")},
    {"id": "d1", "turns": turns_of("what is it?", "mein Hund liebt lange Spaziergänge im Regen", "sorry?", "ok.")},
    {"id": "d2", "turns": turns_of("tell me", "so " * 900, "and?", "ok.")},
]


def scored(folder, open_engine, rows=ROWS):
    folder.mkdir(exist_ok=True)
    run_job(job_of(write_lines(folder / "a.jsonl", rows), folder / "out", open_engine, block_dialogues=256))
    return content_of(folder / "out")


def test_a_table_holds_what_the_engine_says_with_a_model(tmp_path):
    choice = EngineChoice(scorers=("engagement",))
    found = scored(tmp_path, choice.open)
    with choice.open() as engine:
        [model] = engine.models
        replies = engine.answer([DialogueRequest(turns=[Turn(**each) for each in row["turns"]]) for row in ROWS])
    turns = [(row["id"], turn) for row, reply in zip(ROWS, replies, strict=True) for turn in reply.turns]
    for row, (name, turn) in zip(found["turns"], turns, strict=True):
        score = turn.scores["engagement"]
        assert (row["dialogue"], row["index"], row["engagement_digest"]) == (name, turn.index, model.digest)
        told = {name: row[f"engagement_{name}"] for name in ("value", "percentile", "label", "warnings", "model")}
        assert told == score.model_dump(include=set(told))
        assert dict(row["engagement_details"]) == score.details
        tokens = [row[f"engagement_{name}"] for name in ("tokens_used", "tokens_dropped", "truncated")]
        assert tokens == [score.tokens.used, score.tokens.dropped, score.tokens.truncated]
    for row, reply in zip(found["dialogues"], replies, strict=True):
        aggregate = reply.dialogue["engagement"].model_dump()
        assert {name: row[f"engagement_{name}"] for name in aggregate} == aggregate
    assert any(row["engagement_tokens_dropped"] or row["engagement_truncated"] for row in found["turns"])
    assert any(row["engagement_warnings"] for row in found["turns"])


def opening(**scorers):
    """Opens an engine of these scorers."""
    return lambda: engine_of({name: loaded_fake(scorer, name) for name, scorer in scorers.items()})


def test_the_largest_legal_dialogues_of_a_block_are_scored_one_call_each(tmp_path):
    largest = [{"id": str(number), "turns": turns_of(*("ab " * 2666 for _ in range(1024)))} for number in range(2)]
    calls = []

    class Watched(WordEngine):
        def answer(self, requests):
            calls.append(len(requests))
            return super().answer(requests)

    found = scored(tmp_path, Watched, [*largest, *dialogue_rows(3)])
    assert calls == [1, 1, 3]
    assert [row["scored"] for row in found["dialogues"][:2]] == [512, 512]


def test_user_turns_have_rows_where_their_scorer_is_asked_and_what_none_can_score_is_set_aside(tmp_path):
    rows = [
        {"id": "both", "turns": turns_of("a b c", "fine words", " ", "more")},
        {"id": "user", "turns": turns_of("a b c")},
        {"id": "none", "turns": []},
    ]
    found = scored(tmp_path / "both", opening(fake=FakeScorer(), reaction=FakeReaction()), rows)
    alone = scored(tmp_path / "alone", opening(reaction=FakeReaction()), rows)
    told = [(row["index"], row["speaker"], row["fake_value"], row["reaction_signals"]) for row in found["turns"]]
    assert told == [
        (0, "user", None, ["pleased", "frustrated"]), (1, "system", 0.02, None), (3, "system", 0.01, None),
    ]  # fmt: skip
    assert [(row["dialogue"], row["scored"]) for row in found["dialogues"]] == [("both", 3)]
    refused = [(row["dialogue"], row["turn"], row["field"], row["reason"]) for row in found["set_aside"]]
    nothing = [("user", "there is no system turn to score"), ("none", "there is no turn that can be scored")]
    assert refused == [(name, None, "turns", reason) for name, reason in nothing]
    assert [(row["dialogue"], row["index"]) for row in alone["turns"]] == [("both", 0), ("user", 0)]
    assert [row["reason"] for row in alone["set_aside"]] == ["there is no turn that can be scored"]


def test_the_cyclic_collector_rests_while_a_block_is_done_and_not_longer(tmp_path):
    seen = []

    class Failing(WordEngine):
        def answer(self, requests):
            seen.append(gc.isenabled())
            raise OSError("no such thing")

    with pytest.raises(OSError, match="no such thing"):
        scored(tmp_path, Failing, dialogue_rows(3))
    assert (seen, gc.isenabled()) == ([False], True)
