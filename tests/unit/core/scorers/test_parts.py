"""What a scorer reads of a turn, and the pieces that its scores are kept in."""

import itertools
from dataclasses import replace
from functools import partial

import pytest
from support.fakes import FakeScorer
from support.fed import PathBackend, make_fed_scorer
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_core.scorers.quality import QualityScorer
from turnscore_core.scorers.reaction import ReactionScorer
from turnscore_core.scorers.scorer import TurnToScore, pack_fields
from turnscore_core.scorers.sentiment_stop import SentimentStopScorer
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_wire import Turn

SCORERS = {
    each.KIND: each for each in (EngagementScorer, SentimentStopScorer, FedScorer, QualityScorer, ReactionScorer)
}


def turn(*texts, options=None):
    """A turn whose context is spoken by user and system in turns, the user first; the last text is the response."""
    speakers = itertools.cycle(("user", "system"))
    context = [Turn(speaker=speaker, text=text) for speaker, text in zip(speakers, texts[:-1], strict=False)]
    return TurnToScore(context, texts[-1], options=options)


def small_turns():
    """All turns of at most three short texts, whoever says them."""
    texts = ["a b", "a", "b c", " a ", "", "user"]
    for length in (0, 1, 2):
        for spoken in itertools.product(itertools.product(("user", "system"), texts), repeat=length):
            context = [Turn(speaker=speaker, text=text) for speaker, text in spoken]
            for response in ("a", "b c", " a"):
                yield TurnToScore(context, response)


def score(scorer, asked):
    [pack] = scorer.encode([asked])
    [raw] = scorer.score([pack])
    return replace(raw, tokens=pack.tokens[0])


@pytest.mark.parametrize("folder", starter_bundles(), ids=lambda folder: folder.name)
def test_turns_of_equal_inputs_are_the_same_tokens(folder):
    scorer = SCORERS[folder.name](read_bundle(folder), PathBackend())
    seen = {}
    count = 0
    for each in map(scorer.trim, small_turns()):
        [pack] = scorer.encode([each])
        tokens = [pack.rows, pack.tokens, pack.structure if isinstance(pack.structure, int) else None]
        assert seen.setdefault(pack_fields(scorer.inputs_of(each)), tokens) == tokens
        count += 1
    assert len(seen) < count


def test_no_two_sequences_of_fields_give_the_same_bytes():
    pieces = ["", "a", "1", 1, -1, (), ("",), ("a",), ("a", ""), ("", "a"), "s1:a", "t0:", ("1", "a")]
    sequences = [combination for length in (0, 1, 2, 3) for combination in itertools.product(pieces, repeat=length)]
    assert len({pack_fields(each) for each in sequences}) == len(sequences)


def test_a_scorer_that_does_not_say_what_it_reads_is_taken_to_read_everything():
    reader = FakeScorer()
    asked = [
        TurnToScore([Turn(speaker=speaker, text=text)], response, options=None, asked=options)
        for speaker in ("user", "system")
        for text in ("a", "a b")
        for response in ("c", "b c")
        for options in ({}, {"n": 1}, {"n": True}, {"n": "1"}, {"n": 1.0}, {"m": 1})
    ]
    assert len({pack_fields(reader.inputs_of(each)) for each in asked}) == len(asked)


def test_a_fed_score_comes_back_from_its_pieces_bit_for_bit(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    own = {"odd": {"positive": ["yes", "no", "maybe"], "negative": ["so?", "and?", "well?"]}}
    for options in ({}, {"loss": "whole_sequence"}, {"own_qualities": own, "qualities": ["odd", "clear"]}):
        asked = turn("hi", "hello", "how are you?", "fine", options=scorer.read_options(options))
        whole = score(scorer, asked)
        assert scorer.join(asked, scorer.split(asked, whole)) == whole


def test_a_quality_of_a_larger_question_is_the_one_asked_alone_bit_for_bit(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b")
    for texts in (("hi",), ("hi", "hello", "how are you?", "fine"), ("x" * 2000, "and?", "so long")):
        every = turn(*texts, options=scorer.read_options({}))
        known = dict(zip(scorer.fragments_of(every), scorer.split(every, score(scorer, every)), strict=True))
        for name in ("kind", "clear"):
            alone = turn(*texts, options=scorer.read_options({"qualities": [name]}))
            assert scorer.join(alone, [known[part] for part in scorer.fragments_of(alone)]) == score(scorer, alone)


def test_a_long_follow_up_that_shortens_the_context_is_not_left_out(tmp_path):
    scorer, _ = make_fed_scorer(tmp_path / "b", window=200)
    own = {"long": {"positive": ["a very long follow-up"], "negative": []}}
    both = turn("x" * 300, "hello", options=scorer.read_options({"qualities": ["kind", "long"], "own_qualities": own}))
    kind = turn("x" * 300, "hello", options=scorer.read_options({"qualities": ["kind"]}))
    assert score(scorer, both).details["kind"] != score(scorer, kind).details["kind"]
    assert not set(scorer.fragments_of(both)) & set(scorer.fragments_of(kind))


def fragments(scorer, positive, negative, name="mine", **options):
    own = {name: {"positive": positive, "negative": negative}}
    return scorer.fragments_of(turn("hi", options=scorer.read_options({"own_qualities": own, **options})))


def test_a_part_is_told_by_its_follow_ups_and_its_loss_not_by_its_name(tmp_path):
    parts = partial(fragments, make_fed_scorer(tmp_path / "b")[0])
    one, other, third = "Thanks!", "That's rude!", "What?"  # the bundle's
    different = [
        parts([one], [other]), parts([other], [one]), parts([one, other], []), parts([], [one, other]),
        parts([one, other], [third]), parts([other, one], [third]),
        parts([one], [other], loss="whole_sequence"),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    assert parts([one], [other], name="yours") == different[0]


def test_a_callers_question_is_one_part_that_everything_asked_tells(tmp_path):
    parts = partial(fragments, make_fed_scorer(tmp_path / "b")[0])
    different = [
        parts(["a b"], ["c"]), parts(["a b"], ["c"], name="yours"),
        parts(["a b"], ["c"], qualities=["mine", "kind"]), parts(["a b"], ["c"], qualities=["kind", "mine"]),
        parts(["a"], ["b c"]), parts(["a b", "c"], []), parts([], ["a b", "c"]), parts(["a", "b"], ["c"]),
        parts(["b", "a"], ["c"]), parts(["a b"], ["c"], loss="whole_sequence"),
    ]  # fmt: skip
    assert all(len(each) == 1 for each in different)
    assert len(set(different)) == len(different)
