"""What the papers' systems are trained and measured on: exchanges, wrong replies, judged sets, word vectors, steps."""

from paper_systems.data import EvalTurn, RandomNegatives, without_judged
from paper_systems.page import read_eval_sets
from support.exporter_data import write_rows
from turnscore_exporters.data.pairs import TextPair


def exchanges(*rows):
    return [TextPair(dialogue=dialogue, query=query, reply=reply) for dialogue, query, reply in rows]


def test_dialogues_that_hold_a_judged_text_are_not_trained_on():
    mine = exchanges(
        ("a", "hi", "the red house stands on a hill"), ("a", "and then ?", "we left"), ("b", "hi", "we left")
    )
    as_context = EvalTurn(context=("The red house stands on a hill!",), response="nice")
    as_reference = EvalTurn(context=("hm",), response="nice", references=("the red house stands on a hill",))
    for judged in (as_context, as_reference):
        assert {each.dialogue for each in without_judged(mine, [judged])} == {"b"}
    assert without_judged(mine, [EvalTurn(context=("hi",), response="we left")]) == mine, "short phrases tell nothing"


def test_a_wrong_reply_is_of_another_dialogue_and_was_never_given_to_the_same_words():
    mine = exchanges(
        ("a", "tea?", "yes"), ("a", "who", "me"), ("b", "Tea?", "no"), ("c", "hm", "tea?"), ("d", "so", "ok")
    )
    drawn = [RandomNegatives(mine).draw(0, epoch) for epoch in range(30)]
    assert {mine[place].reply for place in drawn} == {"ok"}


def test_a_response_among_its_own_references_is_measured_without_it(tmp_path):
    """The person who answered best wrote one of the references: the copy would give that response the full score."""
    row = {"system": "human", "context_id": "1", "context": ["hi"], "rating": 5, "response": "Hello there!"}
    rows = [
        {**row, "references": ["hello there", "good day"]},
        {**row, "references": ["Hello, there!"], "system": "other"},
    ]
    write_rows(tmp_path / "multiref" / "ratings.jsonl.gz", rows)
    [found] = read_eval_sets(tmp_path)
    assert [each.references for each in found.items] == [("good day",)], "a turn without any other is not asked"
