"""What a load asks: seeded dialogues as long as real ones, and turns of an exact length in tokens; of no real text.

The lengths of dialogues are drawn from quantiles of real ones (dialogue_lengths.toml); the words are common ones in
order of use, with made-up ones among them so that a word is as many tokens as in real dialogues.
"""

import json
import random
import re
import string
import tomllib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar

Item = dict[str, Any]  # A score request as it travels.

# Share of made-up words. Fitted: a word is then 1.26 word pieces and 1.37 of GPT-2's tokens; in the dialogues of the
# table, 1.29 and 1.36 were measured.
MADE_UP_SHARE = 0.1
PUNCTUATED_SHARE = 0.67  # Share of turns that end in . ? or !, measured in the dialogues of the table.

_FOLDER = Path(__file__).parent
_TABLE = tomllib.loads((_FOLDER / "dialogue_lengths.toml").read_text(encoding="utf-8"))


class Lengths:
    """A distribution of lengths, given by its quantiles."""

    LEVELS_PERCENT: ClassVar[list[float]] = _TABLE["levels_percent"]

    def __init__(self, name: str) -> None:
        self.quantiles: list[float] = _TABLE[name]["quantiles"]
        self.mean: float = _TABLE[name]["mean"]

    def draw(self, chance: random.Random) -> int:
        """One length, at least 1: the quantile of a level drawn evenly, straight lines between those known."""
        levels = self.LEVELS_PERCENT
        level = chance.uniform(levels[0], levels[-1])
        above = max(1, bisect_left(levels, level))
        low, high = self.quantiles[above - 1], self.quantiles[above]
        share = (level - levels[above - 1]) / (levels[above] - levels[above - 1])
        return int(max(1, round(low + share * (high - low))))


SYSTEM_TURNS = Lengths("system_turns_per_dialogue")
USER_WORDS = Lengths("words_per_user_turn")
SYSTEM_WORDS = Lengths("words_per_system_turn")


def _made_up_words(count: int) -> list[str]:
    chance = random.Random(0)
    consonants = [each for each in string.ascii_lowercase if each not in "aeiou"]
    return ["".join(chance.choice(consonants) + chance.choice("aeiou") for _ in range(3)) for _ in range(count)]


_COMMON = (_FOLDER / "vocabulary.txt").read_text(encoding="utf-8").split()
_MADE_UP = _made_up_words(2000)
_WORDS = _COMMON + _MADE_UP
# Zipf's law, shifted as Mandelbrot does: the n-th word comes 1 / (n + 2.7) as often.
_ZIPF = [1 / (rank + 2.7) for rank in range(1, len(_COMMON) + 1)]
_EACH_MADE_UP = MADE_UP_SHARE / (1 - MADE_UP_SHARE) * sum(_ZIPF) / len(_MADE_UP)
_CUMULATIVE = list(accumulate(chain(_ZIPF, [_EACH_MADE_UP] * len(_MADE_UP))))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSettings:
    """What is asked. A `repeat_share` of the items were asked before, word for word, by the same user."""

    seed: int = 1
    repeat_share: float = 0.0
    scorers: tuple[str, ...] = ()  # all that are loaded when empty
    deadline_ms: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.repeat_share < 1:
            raise ValueError("the repeat share must be at least 0 and less than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficItem:
    """One item to score, and what the two sides said just before it is asked."""

    item: Item
    user_words: int
    system_words: int


class Traffic:
    """One user's dialogues, one after the other. The same settings and user give the same asks, for ever."""

    def __init__(self, settings: TrafficSettings, user: str = "") -> None:
        self._settings = settings
        self._chance = random.Random(f"{settings.seed}/{user}")
        self._choice = _choice(settings)
        self._asked: deque[TrafficItem] = deque(maxlen=512)  # how far back a repeat may reach; chosen
        self._fresh = self._converse()

    def next_ask(self) -> TrafficItem:
        """The next turn of the dialogue, or, at the repeat share, an item asked before."""
        if self._asked and self._chance.random() < self._settings.repeat_share:
            return self._chance.choice(self._asked)
        ask = next(self._fresh)
        self._asked.append(ask)
        return ask

    def item_of_length(self, context_words: Sequence[int], response_words: int) -> Item:
        """An item of exactly these lengths: for calls whose times are compared with each other."""
        context = [
            _turn("user" if (len(context_words) - place) % 2 else "system", self._text(words))
            for place, words in enumerate(context_words)
        ]
        return {"context": context, "response": self._text(response_words), **self._choice}

    def _converse(self) -> Iterator[TrafficItem]:
        while True:
            context: list[dict[str, str]] = []
            for _ in range(SYSTEM_TURNS.draw(self._chance)):
                user_words, system_words = USER_WORDS.draw(self._chance), SYSTEM_WORDS.draw(self._chance)
                context.append(_turn("user", self._text(user_words)))
                response = self._text(system_words)
                item = {"context": list(context), "response": response, **self._choice}
                yield TrafficItem(item=item, user_words=user_words, system_words=system_words)
                context.append(_turn("system", response))

    def _text(self, words: int) -> str:
        text = " ".join(self._chance.choices(_WORDS, cum_weights=_CUMULATIVE, k=words))
        return text + self._chance.choice(".?!") if self._chance.random() < PUNCTUATED_SHARE else text


def _choice(settings: TrafficSettings) -> Item:
    choice: Item = {}
    if settings.scorers:
        choice["scorers"] = list(settings.scorers)
    if settings.deadline_ms is not None:
        choice["deadline_ms"] = settings.deadline_ms
    return choice


def _turn(speaker: str, text: str) -> dict[str, str]:
    return {"speaker": speaker, "text": text}


# Silent reading of English, mean of 190 studies (Brysbaert 2019, How Many Words Do We Read Per Minute).
READING_WORDS_PER_MINUTE = 238
# Mean of 168,000 volunteers (Dhakal et al. 2018, Observations on Typing from 136 Million Keystrokes).
TYPING_WORDS_PER_MINUTE = 52
PATIENCE_SECONDS = 30.0  # how long an answer is waited for; longer than any deadline that is asked for here; chosen


def pause_seconds(read_words: int, typed_words: int, pace: float) -> float:
    """Seconds to read the system's turn and type the next; `pace` 2 is twice as fast as people are."""
    minutes = read_words / READING_WORDS_PER_MINUTE + typed_words / TYPING_WORDS_PER_MINUTE
    return 60 * minutes / pace


TYPICAL_PAUSE_SECONDS = pause_seconds(round(SYSTEM_WORDS.mean), round(USER_WORDS.mean), 1)

SPECIAL_TOKENS = 4  # of a turn's two rows: [CLS] and [SEP] each
_LEAST_WORDS = 2  # of a text; one word alone would soon come twice


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthMix:
    """Tokens of a turn, both rows and their special tokens together: drawn evenly on a logarithmic scale."""

    name: str
    least: int
    most: int
    turns_factor: float = 1.0  # how many turns are sent of it, the mixed lengths' being 1: long ones take longer

    def draw(self, count: int, chance: random.Random) -> list[int]:
        """The tokens of each turn: evenly spaced quantiles, shuffled, so that every sample has the same mean."""
        ratio = self.most / self.least
        lengths = [round(self.least * ratio ** ((place + 0.5) / count)) for place in range(count)]
        chance.shuffle(lengths)
        return lengths


# 256 tokens are two rows of 128: all that the starter bundle's model takes.
LENGTH_MIXES = {
    mix.name: mix
    for mix in (
        LengthMix(name="short", least=8, most=24, turns_factor=2),
        LengthMix(name="mixed", least=8, most=256),
        LengthMix(name="long", least=224, most=256, turns_factor=0.5),
    )
}


class ExactTraffic:
    """Turns made of words that are one token each. One object gives no text twice."""

    def __init__(self, tokenizer_file: Path, row_limit: int) -> None:
        """Of a BERT tokenizer; `row_limit` is the most tokens of a row, special ones included."""
        vocabulary = json.loads(tokenizer_file.read_text(encoding="utf-8"))["model"]["vocab"]
        self._words = [word for word in vocabulary if re.fullmatch("[a-z]{3,}", word)]
        self._row_limit = row_limit
        self._given: set[str] = set()
        self._chance = random.Random(0)

    def items(self, mix: LengthMix, count: int) -> list[Item]:
        """Fresh turns with one of the user's before each; those of two calls with the same arguments have the same
        lengths, in the same order."""
        shape = random.Random(f"{mix.name} {count}")
        return [self._item(tokens - SPECIAL_TOKENS, shape) for tokens in mix.draw(count, shape)]

    def _item(self, words: int, shape: random.Random) -> Item:
        """A turn of that many words, of which the query has between three and seven tenths."""
        most = min(words - _LEAST_WORDS, self._row_limit - 2)
        query = min(max(round(words * shape.uniform(0.3, 0.7)), _LEAST_WORDS, words - self._row_limit + 2), most)
        return {"context": [_turn("user", self._new_text(query))], "response": self._new_text(words - query)}

    def _new_text(self, words: int) -> str:
        while (text := " ".join(self._chance.choices(self._words, k=words))) in self._given:
            pass
        self._given.add(text)
        return text


def pack(items: Sequence[Item], size: int, **choice: Any) -> list[str]:
    """Bodies of so many items each, as JSON: of `/v1/score` for one, else of `/v1/score_batch`."""
    chosen = [{**item, **choice} for item in items]
    if size == 1:
        return [json.dumps(item) for item in chosen]
    return [json.dumps({"items": chosen[at : at + size]}) for at in range(0, len(chosen), size)]


def as_grpc(item: Item) -> Item:
    """The item with the speakers' names in turnscore.proto."""
    speakers = {"user": "SPEAKER_USER", "system": "SPEAKER_SYSTEM"}
    context = [{"speaker": speakers[turn["speaker"]], "text": turn["text"]} for turn in item.get("context", ())]
    return {**item, "context": context}
