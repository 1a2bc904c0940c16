"""Samplers, parts and leaks on data that fits on a page."""

import numpy as np
import pytest
from paper_systems.data import (
    EvalTurn,
    Part,
    RandomNegatives,
    ReplyPool,
    WeightedNegatives,
    split_exchanges,
    split_validation,
    true_references,
    weigh_candidates,
    without_judged,
)
from support.fakes import POOL, exchanges
from turnscore_exporters.data.convai import TextPair
from turnscore_exporters.errors import ExporterError


def all_draws(sampler: RandomNegatives | WeightedNegatives, index: int, epochs: int = 200) -> set[str]:
    return {POOL[sampler.draw(index, epoch)].reply for epoch in range(epochs)}


def test_no_sampler_ever_draws_a_reply_that_somebody_gave_to_the_same_words() -> None:
    """'not at all' answers 'do you like tea' in b; said by c to something else it still fits a's query."""
    vectors = np.eye(len(POOL), dtype=np.float32)
    for sampler in (RandomNegatives(ReplyPool(POOL)), WeightedNegatives(ReplyPool(POOL), vectors, candidates=6)):
        drawn = all_draws(sampler, 0)
        assert drawn == {"what a pity", "only me"}


def test_a_pool_in_which_nothing_is_wrong_is_refused() -> None:
    same = exchanges(("a", "hi", "hello"), ("b", "hi", "hello"), ("b", "hi", "good day"))
    with pytest.raises(ExporterError, match=r"none of 3 exchanges has a wrong reply for 'hi'"):
        RandomNegatives(ReplyPool(same)).draw(0, 0)


def test_negatives_differ_from_epoch_to_epoch_and_not_from_run_to_run() -> None:
    pool = ReplyPool([TextPair(dialogue=f"d{n}", query=f"query {n}", reply=f"reply {n}") for n in range(50)])
    first = [RandomNegatives(pool, 1).draw(3, epoch) for epoch in range(20)]
    assert first == [RandomNegatives(pool, 1).draw(3, epoch) for epoch in range(20)]
    assert len(set(first)) > 10
    assert first != [RandomNegatives(pool, 2).draw(3, epoch) for epoch in range(20)]


def test_weighed_negatives_lean_to_what_resembles_the_true_reply_in_every_second_epoch() -> None:
    pool = ReplyPool([TextPair(dialogue=f"d{n}", query=f"query {n}", reply=f"reply {n}") for n in range(40)])
    vectors = np.zeros((40, 2), dtype=np.float32)
    vectors[:, 1] = 1
    vectors[[0, 7]] = [1, 0]
    sampler = WeightedNegatives(pool, vectors, candidates=40, temperature=0.1)
    weighed = [sampler.draw(0, epoch) for epoch in range(0, 100, 2)]
    plain = [sampler.draw(0, epoch) for epoch in range(1, 101, 2)]
    assert weighed.count(7) > 40
    assert plain.count(7) < 10
    assert weigh_candidates(np.array([0.5, 0.5], dtype=np.float32), 0.07).tolist() == [0.5, 0.5]


def test_a_copy_of_the_response_is_no_reference() -> None:
    assert true_references("I see .", ["i see.", "go on", " "]) == ("go on",)


def test_dialogues_that_hold_a_judged_text_are_not_trained_on() -> None:
    mine = exchanges(
        ("a", "hi", "the red house stands on a hill"),
        ("a", "and then ?", "we left"),
        ("b", "hi", "we left"),
    )
    as_context = EvalTurn(context=("The red house stands on a hill!",), response="nice")
    as_reference = EvalTurn(context=("hm",), response="nice", references=("the red house stands on a hill",))
    for judged in (as_context, as_reference):
        assert {each.dialogue for each in without_judged(mine, [judged])} == {"b"}
    assert without_judged(mine, [EvalTurn(context=("hi",), response="we left")]) == mine, "short phrases tell nothing"


def test_a_dialogue_and_its_copies_are_in_one_part() -> None:
    rows = [(f"{copy}{n}", f"opening words {n}", "yes") for n in range(300) for copy in "ab"]
    parts = split_exchanges(exchanges(*rows, *((name, "and on", "no") for name, _, _ in rows)))
    openings = {part: {each.query for each in found if each.query != "and on"} for part, found in parts.items()}
    assert not openings[Part.TRAIN] & openings[Part.HELD_OUT]
    dialogues = {part: {each.dialogue for each in found} for part, found in parts.items()}
    assert not dialogues[Part.TRAIN] & dialogues[Part.HELD_OUT]
    assert 0.04 < len(dialogues[Part.HELD_OUT]) / 600 < 0.18
    kept, validation = split_validation(parts[Part.TRAIN])
    assert sorted(each.dialogue for each in (*kept, *validation)) == sorted(e.dialogue for e in parts[Part.TRAIN])
    assert not {each.dialogue[1:] for each in kept} & {each.dialogue[1:] for each in validation}
    assert 0.04 < len(validation) / len(parts[Part.TRAIN]) < 0.18
