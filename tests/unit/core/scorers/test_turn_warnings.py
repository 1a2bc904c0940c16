"""Warnings: exact rules, each with what it must not mistake for a fault, and what each scorer says of what it read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.bundles import make_quality_bundle
from support.fakes import FakeScorer, encoded
from support.fed import PathBackend
from turnscore_core.inference.tokenizer import TextTokenizer
from turnscore_core.loaded_scorer import choose_variant, load_scorer
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.quality import QualityScorer
from turnscore_core.scorers.scorer import TokenPack, TurnToScore
from turnscore_core.scorers.sentiment_stop import SentimentStopScorer
from turnscore_core.scorers.turn_warnings import (
    NOT_IN_LANGUAGE,
    STUCK,
    WARNINGS,
    find_repeats,
    find_suspect,
    is_foreign,
)
from turnscore_models.bundle import read_bundle, starter_bundles
from turnscore_wire import Turn

STARTERS = {folder.name: folder for folder in starter_bundles()}
FOREIGN = json.loads(Path(__file__).with_name("sentences.json").read_text(encoding="utf-8"))
ENGLISH = FOREIGN.pop("en")
LEAST_FOUND = 0.9
BY_HAND = json.loads((Path(__file__).parents[4] / "experiments" / "stuck_loops.json").read_text(encoding="utf-8"))[
    "by_hand"
]
# As the example of Microsoft Foundry's documentation has it: a judge of turns passes each of them.
RESET_LINKS = [
    "i forgot my password and can't sign in",
    "I've sent a reset link to your email.",
    "it never arrived",
    "I've sent another reset link.",
    "still nothing, and i looked in spam too",
    "I've sent another reset link.",
]
GOES_ON = [
    "i want to book a table for tonight",
    "Sure! For how many people?",
    "four",
    "Great. At what time would you like to come?",
    "half past seven",
    "Would you like to sit inside or on the terrace?",
    "on the terrace please",
    "Shall I book a table for four on the terrace, at half past seven?",
]
CORRECTED = [
    "a ride to the station please",
    "You would like a pool ride for 2 to the station. Is that correct?",
    "no, a regular one",
    "You would like a regular ride for 2 to the station. Is that correct?",
    "my brother wants to come too",
    "You would like a regular ride for 3 to the station. Is that correct?",
]


@pytest.fixture(scope="module")
def tokenizer():
    return TextTokenizer.of(STARTERS["sentiment_stop"] / "tokenizer.json")


def spoken(*texts):
    """User and system in turns; the user last."""
    return [
        Turn(speaker="system" if (len(texts) - place) % 2 == 0 else "user", text=text)
        for place, text in enumerate(texts)
    ]


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_not_taken_for_another_language(tokenizer, text):
    [ids] = tokenizer.encode([text])
    assert not is_foreign(text, len(ids))


def test_nine_of_ten_sentences_of_other_languages_are_found(tokenizer):
    found = {
        name: [is_foreign(text, len(tokenizer.encode([text])[0])) for text in texts] for name, texts in FOREIGN.items()
    }
    every = [each for language in found.values() for each in language]
    assert sum(every) >= LEAST_FOUND * len(every), found
    assert all(any(each) for each in found.values()), found


def test_a_few_words_of_another_script_are_enough():
    assert is_foreign("\u306f\u3044\u3002", 3)
    assert not is_foreign("\u306f", 1)


REPEATS = [
    (("i baked bread this morning",), "I baked bread this morning!", ["repeats_user"]),
    (("i baked bread this morning with rye",), "well, i baked bread this morning with rye", ["repeats_user"]),
    (("i baked bread",), "i baked bread too, but mine had olives in it and it took all day", []),
    (("hi",), "hi", []),
    (("good morning",), "good morning!", []),
    (("a", "what is your name?", "ann"), "What is your name", ["repeats_itself"]),
    (("a", "yes, please", "so?"), "yes, please", []),
    (("a", "there is a bus at 8:30 for 23 dollars", "later?"), "There is a bus at 9:30 for 25 dollars", []),
    (("hi",), "no no no no no no no", ["repeats_itself"]),
    (("hi",), "no, no, no!", []),
    (("hi",), "ha ha ha ha ha", []),
    (("hi",), "i like to run i like to run i like to run", ["repeats_itself"]),
    (("hi",), "i do not know what you mean. i do not know what you mean.", ["repeats_itself"]),
    (("hi",), "knock knock. who is there? knock knock. who is it?", []),
    ((), "hello there, how are you?", []),
    (("a good " * 99 + "end",), "so that is the end", []),
]


@pytest.mark.parametrize(("context", "response", "expected"), REPEATS)
def test_repeats_are_told_from_politeness(context, response, expected):
    assert list(find_repeats(spoken(*context), response)) == expected


@pytest.mark.parametrize(
    "hidden",
    [
        "i baked\u200b bread\u200d this\u2060 morning",
        "i ba\u00adked bre\u00adad this morn\u00ading",
        "i b\u0301a\u0301ked bread this morning",
        "\uff49 \uff42\uff41\uff4b\uff45\uff44 bread this morning",
        "i baked bread this morning" + "\u200b" * 700,
    ],
    ids=["zero width", "soft hyphens", "accents", "full width", "padded"],
)
def test_characters_that_are_not_seen_hide_no_repeat(hidden):
    assert list(find_repeats(spoken("i baked bread this morning"), hidden)) == ["repeats_user"]
    assert list(find_repeats(spoken("a", hidden, "so?"), "i baked bread this morning")) == ["repeats_itself"]


def warned(scorer, context, response):
    turn = TurnToScore(context, response)
    warnings = {scorer.encode([each])[0].warnings for each in (turn, scorer.trim(turn))}
    assert len(warnings) == 1, "what is trimmed changes no warning"
    [[found]] = warnings
    return found


@pytest.fixture(scope="module", params=["engagement", "sentiment_stop", "quality"])
def scorer(request, tmp_path_factory):
    backend = PathBackend()
    if request.param == "quality":
        return QualityScorer(make_quality_bundle(tmp_path_factory.mktemp("warnings") / "bundle"), backend)
    kinds = {each.KIND: each for each in (EngagementScorer, SentimentStopScorer)}
    return kinds[request.param](read_bundle(STARTERS[request.param]), backend)


def test_what_was_not_read_is_said(scorer):
    long, short = "so what " * 400, "so what"
    assert warned(scorer, spoken(short), "and you?") == ()
    assert "response_cut" in warned(scorer, spoken(short), long)
    assert "context_not_read" in warned(scorer, spoken(long), "and you?")
    assert "context_not_read" not in warned(scorer, spoken(long, short, short), "and you?")
    assert warned(scorer, [], "and you?") == ()


def test_a_context_that_a_long_response_leaves_no_room_for_was_not_read():
    scorer = SentimentStopScorer(read_bundle(STARTERS["sentiment_stop"]), None)
    assert warned(scorer, spoken("so"), "well then " * 300) == ("context_not_read", "response_cut")


def test_quality_says_what_is_repeated_or_in_another_language(tmp_path):
    scorer = QualityScorer(make_quality_bundle(tmp_path / "bundle"), PathBackend())
    assert warned(scorer, spoken("a b c d", "q", *("x", "y") * 6, "so?"), "a b c d") == ()
    assert warned(scorer, spoken("a b c d", *("x", "y") * 6, "so?"), "a b c d") == ("repeats_itself",)
    assert warned(scorer, spoken("e f g"), "e f g") == ("repeats_user",)
    german = "Ich weiß nicht, wann der Zug fährt."
    assert warned(scorer, spoken("e f g"), german)[-1] == "not_in_language"
    other = make_quality_bundle(tmp_path / "german", language="de")
    assert "not_in_language" not in warned(QualityScorer(other, PathBackend()), spoken("e f g"), german)


@pytest.fixture(scope="module")
def shipped():
    bundle = read_bundle(STARTERS["quality"])
    scorer = load_scorer(bundle, choose_variant(bundle), threads=1).scorer
    assert isinstance(scorer, QualityScorer)
    return scorer


def replies_of(texts):
    """The turns of the system, which answers the user every time."""
    turns = [Turn(speaker=("user", "system")[place % 2], text=text) for place, text in enumerate(texts)]
    return [TurnToScore(turns[:place], turns[place].text) for place in range(1, len(turns), 2)]


def stuck(scorer, texts):
    """Of each reply, scored alone, whether it carries the warning."""
    packs = (scorer.encode([scorer.trim(turn)]) for turn in replies_of(texts))
    return ["stuck" in score.warnings for pack in packs for score in scorer.score(pack)]


def test_the_third_reset_link_is_stuck_and_a_conversation_that_goes_on_is_not(shipped):
    assert stuck(shipped, RESET_LINKS) == [False, False, True]
    assert stuck(shipped, GOES_ON) == [False] * 4
    assert stuck(shipped, CORRECTED) == [False] * 3


def test_loops_written_by_hand_are_found_by_kind(shipped):
    found = {}
    for kind, texts in BY_HAND:
        found.setdefault(kind, []).append(any(stuck(shipped, texts)))
    assert len(found) == 4
    assert all(sum(each) >= 8 for each in found.values()), found


FIRST = ("where is my parcel?", "It is on its way.", "but where?")


SUSPECTS = [
    (spoken(*FIRST, "On the way, it is.", "where??"), "Your parcel is on its way.", True),
    (spoken(*FIRST, "On the way, it is.", "where??"), "It is 3 km away.", False),
    (spoken(*FIRST, "On the way, it is.", "where??"), "It is in Hull.", False),
    (spoken(*FIRST, "It's in Hull.", "where??"), "Your parcel is on its way.", False),
    (spoken(*FIRST), "Your parcel is on its way.", False),
    (spoken(*FIRST, "On the way, it is.", " "), "Your parcel is on its way.", False),
    (spoken(*FIRST, "On the way, it is.", "where??"), "...", False),
    (spoken("a 1", *FIRST, "On the way, it is.", "where??")[1:-1], "Your parcel is on its way.", False),
]


@pytest.mark.parametrize(("context", "response", "is_suspect"), SUSPECTS)
def test_a_turn_with_a_new_number_or_name_is_no_suspect(context, response, is_suspect):
    assert (find_suspect(context, response) is not None) == is_suspect


def test_two_answers_in_turn_are_a_suspect_by_their_words():
    said = ["Restart the printer.", "no", "Check the paper tray.", "still broken", "Try to restart the printer.", "hm"]
    suspect = find_suspect(spoken("it's broken", *said), "Please check the tray for paper.")
    assert ((0, 2), (1, 3)) in suspect.patterns
    other = find_suspect(spoken("it's broken", *said), "What a lovely day.")
    assert other is None or ((0, 2), (1, 3)) not in other.patterns


class WarningScorer(FakeScorer):
    """Warns of every second turn of a batch, by its words and by its score. Reads one character of a response."""

    def trim(self, turn):
        return turn.trimmed(turn.context, turn.response[:1], is_cut=False, is_response_cut=len(turn.response) > 1)

    def encode(self, turns):
        packs = []
        for place in range(len(turns)):
            pack = encoded(2, place=place)
            warnings = ((WARNINGS[1], WARNINGS[4]),) if place % 2 else ()
            packs.append(TokenPack(rows=pack.rows, answers=pack.answers, tokens=pack.tokens, warnings=warnings))
        return packs

    def score(self, batch):
        scores = super().score(batch)
        return [
            replace(each, warnings=(STUCK,)) if pack.warnings else each
            for each, pack in zip(scores, batch, strict=True)
        ]


async def test_warnings_are_in_replies_computed_and_cached(serve):
    asked = {"candidates": ["a", "b", "cc", "dd"]}
    of_words = ["response_cut", "not_in_language", "stuck"]
    async with serve(fake=WarningScorer()) as (client, _):
        for is_cached in (False, True):
            scores = [
                each["scores"]["fake"] for each in (await client.post("/v1/rank", json=asked)).json()["candidates"]
            ]
            assert [each["warnings"] for each in scores] == [[], of_words, ["response_cut"], of_words]
            assert [each["cached"] for each in scores] == [is_cached] * 4


def test_a_text_that_is_not_in_english_is_never_called_stuck(shipped):
    said = (
        *("你今天做了什么？", "我今天去爬山了", "你喜欢吃什么？", "我喜欢吃面条"),
        *("晚上有什么计划？", "晚上我打算看电影", "好的"),
    )
    [pack] = shipped.encode([TurnToScore(spoken(*said), "周末我打算在家休息")])
    assert pack.structure.suspect is None
    assert NOT_IN_LANGUAGE in pack.warnings[0]


def test_a_reply_that_begins_with_something_new_is_not_stuck_for_its_footer(shipped):
    footer = "please note that this conversation may be recorded so that we can keep making our service better " * 4
    context = spoken("hello", f"hi there. {footer}", "and now?", f"one moment. {footer}", "and?")
    turns = [TurnToScore(context, f"{start} {footer}") for start in ("just a moment.", "your order is 4711 from Oslo.")]
    stuck, new = shipped.encode([shipped.trim(each) for each in turns])
    assert stuck.structure.suspect is not None
    assert new.structure.suspect is None
