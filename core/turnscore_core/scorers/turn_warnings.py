"""Warnings: what a caller should know of a turn before its score is believed. Exact rules; knows no model."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from turnscore_wire import Turn

CONTEXT_NOT_READ = "context_not_read"  # the turn before the response was not read whole, or not at all
RESPONSE_CUT = "response_cut"  # the end of the response was not read
REPEATS_USER = "repeats_user"  # the response is what the user said last, or holds little else
REPEATS_ITSELF = "repeats_itself"  # the response is an earlier turn of the system, or says the same words over and over
NOT_IN_LANGUAGE = "not_in_language"  # the response is hardly in the language that the model was made for
STUCK = "stuck"  # the system says the same again and again, or two things in turn, while the user asks again

# In the order of their bits in cached scores; a new one comes last.
WARNINGS = (CONTEXT_NOT_READ, RESPONSE_CUT, REPEATS_USER, REPEATS_ITSELF, NOT_IN_LANGUAGE, STUCK)

REPEAT_TURNS = 16  # of the latest turns of a context, in which an earlier turn of the system is looked for
# Of the end of a turn, by which a repeated turn is known. Chosen: two turns that end alike for so long are one.
TAIL_CHARS = 256
# Of the end of a turn, that are folded to find its tail: three invisible characters to a letter hide nothing.
_FOLDED_CHARS = 4 * TAIL_CHARS
_NOT_COMPARED = {"Cf", "Mn", "Me"}
_LOOKED_AT_CHARS = 1000  # of a response, for its language and for loops: a language shows in few words
_LEAST_SAME = 3  # words of a turn that is said again as a whole: "hi", "good morning" and "yes, please" are no repeats
_LEAST_HELD = 5  # words of a text that is held in another as a run
_MOST_OF_IT = 0.8
_LOOP_WORDS = 16  # words of the longest run of which two in a row are found
_LEAST_LOOP = 6  # words that a loop has at least: "no no no" is no loop, "no no no no no no" is

# What follows was chosen on 44,397 turns, nearly all English, and 86 sentences in 17 languages: docs/client.md.
_LEAST_WORDS = 4
_FOREIGN_SHARE = 0.25
_ENGLISH_SHARE = 0.1
_PIECES_PER_WORD = 1.7
_LAST_LATIN = "\u024f"
_WORDS_AND_NUMBERS = re.compile(r"\w+(?:'\w+)*")
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_ENGLISH_WORDS = (
    "the you to is that it what for of and have are at about can your not there be know how yes with would my good "
    "want will they this don from but great need one day all did love too thanks sure hello help time really hi go "
    "just or where has nice any anything when who get yeah been if much should something make okay thank as which "
    "some see right people also very why them by oh name more could other does their cool his her she him our it's "
    "i'm don't that's lol haha please ok sorry never always because think like said tell talk than then were had its "
    "into out up down over again still even only well here let us going doing"
)
_FOREIGN_WORDS = (
    "ich du und nicht ist das mit der die den dem ein eine einen mir mich dir wir sie auf für von zu im wie sehr aber "
    "auch noch kann hast habe haben que de la el los las un una con por para muy mi tu se lo como pero más yo qué "
    "gusta todo je ne pas le les des une est et au ce il elle nous vous avec pour dans sur mais très qu'est ma on di "
    "gli per sono non ti ho hai è e molto qualche da della nel che o não com uma um muito é os eu na mas het een ik "
    "niet en van dat met voor wat ben zijn hebt heb op er jag att och det som på är med för inte vi har min nie się "
    "jest w z jak ale co mam bardzo bir ve bu için çok sen yang saya kamu dan tidak ini itu apa dengan akan"
)
_ENGLISH, _FOREIGN = frozenset(_ENGLISH_WORDS.split()), frozenset(_FOREIGN_WORDS.split())

# What follows was chosen by experiments/stuck.py: docs/models/reaction.md.
STUCK_FROM = 0.55  # sameness
_ASKED_WEIGHT = 0.2
_NEW_WORD = 0.05
_MOST_NEW_WORDS = 6
_SHARED_WORDS = 0.3  # share of the shorter text's words, for one of two answers in turn
_STEM = 5  # letters by which "download" and "downloaded" are one word
_LEAST_BEFORE = 4  # turns before one that may be stuck: two of each speaker
_SENTENCE_END = re.compile(r"[.!?:;\n]+")
Pattern = tuple[tuple[int, int], ...]
_THREE: Pattern = ((0, 1), (0, 2), (1, 2))
_TWO_IN_TURN: Pattern = ((0, 2), (1, 3))

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A turn that may be stuck, as far as words tell; whether it is, its texts' vectors say.

    `texts` are the system's latest, the response first, then the two of the user's latest turns. `patterns` are pairs
    of places of texts that must be alike. `new_words` are those of the user's latest turn that were not said before.
    """

    texts: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    new_words: int

    def sameness(self, vectors: Sequence[Vector | None]) -> float:
        """How much the turns are alike, about 0 to 1.2, by the texts' vectors of length 1; at most, where some lack."""

        def cosine(one: int, other: int) -> float:
            first, second = vectors[one], vectors[other]
            return 1.0 if first is None or second is None else float(first @ second)

        asked = _ASKED_WEIGHT * cosine(-2, -1) - _NEW_WORD * min(self.new_words, _MOST_NEW_WORDS)
        return asked + max(min(cosine(*pair) for pair in pattern) for pattern in self.patterns)


def find_repeats(context: Sequence[Turn], response: str) -> tuple[str, ...]:
    """`repeats_user` and `repeats_itself`, of the latest turns of a context; letters' case and marks do not count."""
    latest = context[max(0, len(context) - REPEAT_TURNS) :]
    words = _last_words(response)
    heard = next((turn.text for turn in reversed(latest) if turn.speaker == "user" and turn.text.strip()), "")
    found = []
    if _is_same(words, _last_words(heard)):
        found.append(REPEATS_USER)
    own = (_last_words(turn.text) for turn in latest if turn.speaker == "system")
    start = _WORDS_AND_NUMBERS.findall(fold(response[:_LOOKED_AT_CHARS]))
    if _has_loop(start) or any(_is_same(words, each) for each in own):
        found.append(REPEATS_ITSELF)
    return tuple(found)


def find_suspect(context: Sequence[Turn], response: str) -> Suspect | None:
    """The response as a suspect, if it says nothing new: no number or name that the same answer lacked before.

    The user must have spoken last, and the system twice before.
    """
    if len(context) < _LEAST_BEFORE:
        return None
    latest = [turn for turn in context[max(0, len(context) - REPEAT_TURNS) :] if _WORD.search(turn.text)]
    own = [response, *(turn.text for turn in reversed(latest) if turn.speaker == "system")][:4]
    asked = [turn.text for turn in reversed(latest) if turn.speaker == "user"][:2]
    if len(own) < 3 or len(asked) < 2 or latest[-1].speaker != "user" or not _WORD.search(response):
        return None
    facts, words = (
        [_find_facts(response[:TAIL_CHARS]) | _find_facts(response), *map(_find_facts, own[1:])],
        [set(_WORDS_AND_NUMBERS.findall(_tail(text))) for text in own],
    )
    patterns = []
    if facts[0] <= words[1] | words[2] and facts[1] <= words[2]:
        patterns.append(_THREE)
    if len(own) > 3 and facts[0] <= words[2] and facts[1] <= words[3]:
        stems = [_find_stems(text) for text in own]
        shared = (len(stems[a] & stems[b]) / max(1, min(len(stems[a]), len(stems[b]))) for a, b in _TWO_IN_TURN)
        patterns += [_TWO_IN_TURN] * all(share >= _SHARED_WORDS for share in shared)
    if not patterns:
        return None
    new = _find_stems(asked[0])
    for turn in latest[:-1] if new else ():
        new -= _find_stems(turn.text)
    compared = own if _TWO_IN_TURN in patterns else own[:3]
    return Suspect((*compared, *asked), tuple(patterns), len(new))


def is_foreign(text: str, pieces: int) -> bool:
    """Whether a text is hardly English: by its script, by small words of other languages, or, where it has no small
    word of English, by how many `pieces` the tokenizer makes of a word. Four words are needed, of another script two
    letters."""
    start = text[:_LOOKED_AT_CHARS]
    letters = sum(map(str.isalpha, start))
    others = sum(map(_LAST_LATIN.__lt__, filter(str.isalpha, start)))
    if others >= 2 and 2 * others > letters:
        return True
    words = _WORD.findall(start.replace("\u2019", "'").lower())
    if len(words) < _LEAST_WORDS:
        return False
    english = sum(map(_ENGLISH.__contains__, words))
    if english > _ENGLISH_SHARE * len(words):
        return False
    foreign = [word for word in words if word in _FOREIGN]
    if len(set(foreign)) >= 2 and len(foreign) >= _FOREIGN_SHARE * len(words):
        return True
    marks = len(start) - sum(map(str.isalnum, start)) - sum(map(str.isspace, start))
    return english == 0 and len(text) <= _LOOKED_AT_CHARS and pieces - marks >= _PIECES_PER_WORD * len(words)


def fold(text: str) -> str:
    """The text as it is compared: in lower case and compatibility form, without accents and invisible characters.

    Zero-width characters and soft hyphens (category Cf) and combining marks would otherwise hide that a turn is said
    again.
    """
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKD", text.replace("\u2019", "'"))
    return "".join(each for each in folded if unicodedata.category(each) not in _NOT_COMPARED).lower()


def _tail(text: str) -> str:
    return fold(text.strip()[-TAIL_CHARS:])


def _find_facts(text: str) -> set[str]:
    """Numbers, and words with a capital that does not begin a sentence, folded."""
    found = set()
    for sentence in _SENTENCE_END.split(text.strip()[-TAIL_CHARS:].replace("\u2019", "'")):
        for place, word in enumerate(_WORDS_AND_NUMBERS.findall(sentence)):
            is_name = place > 0 and word[0].isupper() and word.partition("'")[0] != "I"
            if is_name or any(map(str.isdigit, word)):
                found.add(fold(word))
    return found


def _find_stems(text: str) -> set[str]:
    """The beginnings of its words but the most frequent ones."""
    words = _WORDS_AND_NUMBERS.findall(_tail(text))
    return {word[:_STEM] for word in words if word not in _ENGLISH and (len(word) > 2 or word.isdigit())}


def _last_words(text: str) -> list[str]:
    return _WORDS_AND_NUMBERS.findall(fold(text.strip()[-_FOLDED_CHARS:])[-TAIL_CHARS:])


def _is_same(said: Sequence[str], other: Sequence[str]) -> bool:
    """Whether both are one text, or the shorter one stands in the longer and is most of it."""
    if said == other:
        return len(said) >= _LEAST_SAME
    shorter, longer = sorted((said, other), key=len)
    if len(shorter) < max(_LEAST_HELD, _MOST_OF_IT * len(longer)):
        return False
    return f" {' '.join(shorter)} " in f" {' '.join(longer)} "


def _has_loop(words: Sequence[str]) -> bool:
    """Whether a run of words follows itself: three times where it is short, twice where it is six words or more."""
    for size in range(1, min(_LOOP_WORDS, len(words) // 2) + 1):
        needed = size if size >= _LEAST_LOOP else max(2 * size, _LEAST_LOOP - size)
        same = 0
        for word, later in zip(words, words[size:], strict=False):
            same = same + 1 if word == later else 0
            if same >= needed:
                return True
    return False
