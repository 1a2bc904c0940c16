"""Reducers and diversity: by hand, on few words."""

from collections.abc import Sequence

import numpy as np
import pytest
from turnscore_assessment.commands.references import build_page
from turnscore_assessment.figures import Floats
from turnscore_assessment.references.evaluation import (
    ReferencedReplies,
    Tables,
    adjusted_distinct,
    distinct,
    evaluate,
    self_bleu,
)
from turnscore_assessment.references.word_metrics import Metric, Pair, make_bleu


def row(hypotheses: list[str], references: list[str], system: str = "s") -> ReferencedReplies:
    return ReferencedReplies(context_id="c", system=system, hypotheses=tuple(hypotheses), references=tuple(references))


def test_each_reducer_asks_another_question():
    values = {"ap": 0.1, "aq": 0.4, "ar": 0.6, "bp": 0.5, "bq": 0.2, "br": 0.0}
    calls: list[Sequence[Pair]] = []

    def compare(pairs: Sequence[Pair]) -> Floats:
        calls.append(pairs)
        return np.array([values[own + other] for own, other in pairs])

    metric = Metric(name="named", definition="named", tokenisation="named", compare=compare)
    tables = Tables(metric, [row(["a", "b"], ["p", "q", "r"])])
    found = {name: float(tables.reduce(name)[0]) for name in ("single", "max", "mean", "recall")}
    assert found == pytest.approx({"single": 0.3, "max": 0.55, "mean": 1.8 / 6, "recall": 1.5 / 3})
    assert len(calls) == 1


def test_joint_and_max_differ_where_references_complete_each_other():
    tables = Tables(make_bleu(1), [row(["a b"], ["a x", "y b"])])
    assert (tables.reduce("joint")[0], tables.reduce("max")[0]) == (1.0, 0.5)


def test_distinct_by_hand():
    texts = [("a", "b"), ("a", "b", "a")]
    assert distinct(texts, 1) == 2 / 5
    assert distinct(texts, 2) == 2 / 3
    assert distinct(texts, 9) == 0


def test_adjusted_distinct_does_not_punish_length():
    # 2 of V = 4, 5 draws: 2 / (4 (1 - (3/4)^5))
    assert adjusted_distinct([("a", "b"), ("a", "b", "a")], 1, 4) == pytest.approx(2 / (4 * (1 - 0.75**5)))
    generator = np.random.default_rng(0)
    short, long = (tuple(map(str, generator.integers(0, 200, size))) for size in (100, 2000))
    assert distinct([long], 1) < 0.3 * distinct([short], 1)
    assert adjusted_distinct([long], 1, 200) == pytest.approx(adjusted_distinct([short], 1, 200), abs=0.1)


def test_self_bleu_by_hand():
    assert self_bleu([["a b", "a b", "a b"]])[2] == 1
    assert self_bleu([["a b", "c d"]])[2] == 0
    assert self_bleu([["a b", "a c"], ["x", "y"]])[1] == 0.25
    texts = ["a b c d", "a b c e f", "a c d"]
    for order, found in self_bleu([texts]).items():
        groups = [(text, [other for other in texts if other != text]) for text in texts]
        compare = make_bleu(order).compare_jointly
        assert compare is not None
        assert found == pytest.approx(np.mean(compare(groups)))


@pytest.mark.parametrize("tokenisation", ["blanks", "words"])
def test_empty_replies_are_counted_and_warned_of(tokenisation: str):
    """They are compared as a full stop, so silence scores where references end with one."""
    rows = [row(["", "  "], ["i see ."], "mute"), row([".", "i see ."], ["i see ."], "other")]
    found = evaluate(rows, [make_bleu(1, tokenisation)], ["max"], tokenisation)
    assert found.results[0].value > 0
    assert found.empty == {"mute": 2}
    assert "warning: 2 empty replies of mute are compared as a full stop" in build_page(found).summary[1]
    assert len(build_page(evaluate(rows[1:], [make_bleu(1, tokenisation)], ["max"], tokenisation)).summary) == 1
