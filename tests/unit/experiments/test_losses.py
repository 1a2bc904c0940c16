"""What a step is made of and what it costs: weights of classes, and negatives that are wrong in every training."""

import pytest
import torch
from paper_systems.bert_systems import (
    PAIR_BATCH,
    compose_step,
    draw_annotated,
    draw_retrieval,
    judgement_loss,
)
from paper_systems.classifiers import weigh_classes
from paper_systems.data import RandomNegatives, ReplyPool, normalize
from turnscore_exporters.data.convai import TextPair
from turnscore_exporters.pair_models.models import margin_of

GIVEN = {"do you like tea": {"yes", "no"}, "are you there": {"yes", "here"}, "who": {"me"}}
"""Replies that dialogues gave to the same words: wrong ones to the others alone."""
EXCHANGES = [
    TextPair(dialogue=f"{copy} {query} {reply}", query=query, reply=reply)
    for query, replies in GIVEN.items()
    for reply in sorted(replies)
    for copy in range(3)
]


def test_no_step_of_any_training_has_a_wrong_reply_that_was_given() -> None:
    negatives = RandomNegatives(ReplyPool(EXCHANGES))
    draw = draw_retrieval(EXCHANGES, negatives, 8, 0)
    judged = [each for step in range(60) for each in (*draw(step), *compose_step(EXCHANGES, negatives, (), step, 0))]
    wrong = [each for each in judged if not each.label]
    assert len(wrong) == len(judged) / 2
    assert not [each for each in wrong if normalize(each.reply) in GIVEN[each.query]]
    assert all(each.reply in GIVEN[each.query] for each in judged if each.label)


def test_a_step_takes_as_many_extra_judgements_as_true_replies() -> None:
    many = [TextPair(dialogue=f"d{n}", query=f"query {n}", reply=f"reply {n}") for n in range(400)]
    extra = [TextPair("q", f"extra {n}", float(n % 2)) for n in range(500)]
    judged = compose_step(many, RandomNegatives(ReplyPool(many)), extra, 1, 0)
    assert len(judged) == 3 * PAIR_BATCH // 2
    assert sum(each.reply.startswith("extra") for each in judged) == PAIR_BATCH // 2


def test_a_rare_class_weighs_as_much_as_a_frequent_one() -> None:
    labels = [1] + [0] * 4
    weights = weigh_classes(labels)
    assert float(weights[1]) == pytest.approx(4 * float(weights[0]))
    assert sum(float(weights[label]) for label in labels) == pytest.approx(len(labels))
    assert torch.isfinite(weigh_classes([0, 0])).all()


def test_a_weighted_judgement_counts_as_often_as_its_weight_says() -> None:
    one = judgement_loss(torch.tensor([0.3, -0.2]), [1.0, 0.0], 3.0)
    many = judgement_loss(torch.tensor([0.3, 0.3, 0.3, -0.2]), [1.0, 1.0, 1.0, 0.0], 1.0)
    assert float(one) * 2 == pytest.approx(float(many) * 4)


def test_two_classes_judge_by_the_margin_of_the_second() -> None:
    assert margin_of(torch.tensor([[1.0, 3.0], [2.0, 0.5]])).tolist() == [2.0, -1.5]
    assert margin_of(torch.tensor([[0.7]])).tolist() == pytest.approx([0.7])


def test_annotated_turns_come_once_an_epoch() -> None:
    judged = [TextPair("q", str(n), 1.0) for n in range(10)]
    draw = draw_annotated(judged, 4, 0)
    first, second = ([each.reply for step in steps for each in draw(step)] for steps in (range(3), range(3, 6)))
    assert sorted(first) == sorted(second) == [str(n) for n in range(10)]
    assert first != second
