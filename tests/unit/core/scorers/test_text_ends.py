"""A scorer reads of a trimmed turn what it reads of the whole one; where it does not, the rule says so."""

import random
import shutil

import pytest
from support.bundles import make_quality_bundle
from support.fed import PathBackend
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_core.scorers.history import CHARS_PER_TOKEN, History
from turnscore_core.scorers.quality import QualityScorer, RowLayout
from turnscore_core.scorers.scorer import TurnToScore, count_chars
from turnscore_core.scorers.sentiment_stop import SentimentStopScorer
from turnscore_core.scorers.turn_warnings import REPEAT_TURNS, TAIL_CHARS
from turnscore_models.bundle import read_bundle, starter_bundles, write_bundle
from turnscore_wire import Turn

QUALITY_END = 512  # characters of the end of a long response that quality keeps
SCORERS = {each.KIND: each for each in (EngagementScorer, SentimentStopScorer, FedScorer)}
WORDS = (
    *("so", "what", "did", "you", "do", "about", "those", "wonderful", "uncharacteristically", "12.50", "...", "don't"),
    *(
        "z\u0337\u0321a\u0338l\u0335go", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469", "你好世界",
        "здравствуйте",
    ),
    *("\u200b", "\u0301", "\x7f", "naïve", "\ufb01ne", "\ufffd", "[SEP]", "[unused0]", "<|endoftext|>", "?!"),
)  # fmt: skip


@pytest.fixture(scope="module", params=[*sorted(SCORERS), "quality"])
def scorer(request, tmp_path_factory):
    if request.param == "quality":
        return make_quality_scorer(tmp_path_factory.mktemp("quality") / "bundle")
    [folder] = [each for each in starter_bundles() if each.name == request.param]
    return SCORERS[request.param](read_bundle(folder), PathBackend())


def make_quality_scorer(folder):
    """With the tokenizer of a starter bundle, since words are cut into pieces by the rule."""
    layout = RowLayout(response_tokens=128, response_end_tokens=QUALITY_END // CHARS_PER_TOKEN)
    bundle = make_quality_bundle(folder, layout=layout.model_dump())
    [starter] = [each for each in starter_bundles() if each.name == "sentiment_stop"]
    shutil.copyfile(starter / "tokenizer.json", bundle.path_of("tokenizer.json"))
    return QualityScorer(write_bundle(folder, bundle.manifest), PathBackend())


def limit_of(scorer):
    """Characters that the scorer reads of one text."""
    if isinstance(scorer, QualityScorer):
        return CHARS_PER_TOKEN * scorer._layout.response_tokens
    return CHARS_PER_TOKEN * int(getattr(scorer, "_window", 0) or scorer._token_limit)


def said(chance, most_words):
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most_words)))[:8000]


def dialogues():
    """Dialogues of every length and of texts of every length; a tenth of the turns says nothing."""
    chance = random.Random(14)
    for turns, most_words in ((1, 5), (4, 20), (9, 3), (12, 200), (40, 60), (3, 1500), (300, 4), (1024, 2)) * 3:
        yield [
            Turn(
                speaker=chance.choice(["user", "system"]),
                text=chance.choice(["", " ", "\n\t", "\u200b"]) if chance.random() < 0.1 else said(chance, most_words),
            )
            for _ in range(turns)
        ]


def turns_of(dialogue):
    """Some of a dialogue's turns, with shared histories as `score_dialogue` makes them, and one with a plain list."""
    whole = History(dialogue)
    for place in sorted({0, 1, 2, len(dialogue) // 2, len(dialogue) - 1} & set(range(len(dialogue)))):
        response = dialogue[place].text if dialogue[place].text.strip() else "so long"
        yield TurnToScore(whole.before(place), response)
    yield TurnToScore(dialogue, "so long")


def rows_of(scorer, turn):
    """What the model is given."""
    packs = scorer.encode([turn])
    return [(pack.rows, pack.structure if isinstance(pack.structure, int) else None) for pack in packs]


def test_a_trimmed_turn_is_the_same_tokens(scorer):
    trimmed_turns = 0
    for dialogue in dialogues():
        for turn in turns_of(dialogue):
            trimmed = scorer.trim(turn)
            assert rows_of(scorer, trimmed) == rows_of(scorer, turn)
            [whole, rest] = [scorer.encode([each])[0].tokens[0] for each in (turn, trimmed)]
            assert rest.used == whole.used
            assert rest.dropped <= whole.dropped
            assert trimmed.is_cut or rest.dropped == whole.dropped
            assert scorer.counts_in_dialogue(trimmed) == scorer.counts_in_dialogue(turn)
            trimmed_turns += trimmed.is_cut
    assert trimmed_turns > 5


def test_what_is_left_is_bounded_whatever_was_sent(scorer):
    context = [Turn(speaker="user", text="so what? " * 100) for _ in range(1024)]
    left = scorer.trim(TurnToScore(context, "and? " * 1600))
    most = 2 * limit_of(scorer) + 1024
    if isinstance(scorer, QualityScorer):  # which looks for repeats in turns that the model does not read
        most += 3 * CHARS_PER_TOKEN * 64 + REPEAT_TURNS * TAIL_CHARS
    assert count_chars(scorer.inputs_of(left)) <= most
    assert scorer.estimate_tokens(left) <= scorer.estimate_tokens(TurnToScore(context, "and? " * 1600))


def test_a_turn_takes_as_many_tokens_as_its_model_names_and_no_more(scorer):
    context = [Turn(speaker="user", text="so what? " * 100) for _ in range(1024)]
    [count] = scorer.encode([scorer.trim(TurnToScore(context, "and? " * 1600))])[0].tokens
    most = scorer.max_turn_tokens(limit_of(scorer) // CHARS_PER_TOKEN)
    assert count.used <= most
    assert count.used == most or isinstance(scorer, FedScorer)  # whose callers may ask for more follow-ups


@pytest.mark.parametrize("blank", [" ", "\n", "\t "])
def test_white_space_around_a_text_takes_nothing_from_it(scorer, blank):
    padded, plain = blank * 4000 + "how are you?", "how are you?"
    for response in (padded, plain + blank * 4000):
        trimmed = scorer.trim(TurnToScore([Turn(speaker="user", text=padded)], response))
        assert rows_of(scorer, trimmed) == rows_of(scorer, TurnToScore([Turn(speaker="user", text=plain)], plain))
        assert not trimmed.is_cut


def test_a_gap_of_white_space_beyond_the_limit_ends_what_is_read(scorer):
    """The rule's edge: the whole turn has few tokens, but they are too far apart."""
    response = "first" + " " * 8000 + "last"
    trimmed = scorer.trim(TurnToScore([], response))
    kept = {"fed": ["last"], "quality": ["first", "last"]}.get(scorer.KIND, ["first"])
    assert trimmed.response.split() == kept
    assert (trimmed.is_cut, trimmed.is_response_cut) == (True, scorer.KIND != "fed")
    query = scorer.trim(TurnToScore([Turn(speaker="user", text=response)], "so?"))
    assert [each.text.strip() for each in query.context] == ["last"]
    assert query.is_cut
