"""Traffic: seeded dialogues as long as real ones, made of no real text. Knows no door and no clock.

The lengths are drawn from quantiles of real dialogues (dialogue_lengths.toml); the words are common ones in order of
use, with made-up ones among them so that a word is as many tokens as in real dialogues.
"""

import random
import string
import tomllib
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar

Item = dict[str, Any]
"""A score request as it travels."""

MADE_UP_SHARE = 0.1
"""Share of made-up words. Fitted: a word is then 1.26 word pieces and 1.37 of GPT-2's tokens; in the dialogues of the
table, 1.29 and 1.36 were measured."""
REMEMBERED_ITEMS = 512
"""How far back a repeat may reach; chosen."""
PUNCTUATED_SHARE = 0.67
"""Share of turns that end in . ? or !, measured in the dialogues of the table."""

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
    scorers: tuple[str, ...] = ()
    """All that are loaded when empty."""
    deadline_ms: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.repeat_share < 1:
            raise ValueError("the repeat share must be at least 0 and less than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One item to score, and what the two sides said just before it is asked."""

    item: Item
    is_repeat: bool
    user_words: int
    system_words: int


class Traffic:
    """One user's dialogues, one after the other. The same settings and user give the same asks, for ever."""

    def __init__(self, settings: TrafficSettings, user: str = "") -> None:
        self._settings = settings
        self._chance = random.Random(f"{settings.seed}/{user}")
        self._choice = _choice(settings)
        self._asked: deque[Ask] = deque(maxlen=REMEMBERED_ITEMS)
        self._fresh = self._converse()

    def next_ask(self) -> Ask:
        """The next turn of the dialogue, or, at the repeat share, an item asked before."""
        if self._asked and self._chance.random() < self._settings.repeat_share:
            earlier = self._chance.choice(self._asked)
            return Ask(
                item=earlier.item, is_repeat=True, user_words=earlier.user_words, system_words=earlier.system_words
            )
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

    def _converse(self) -> Iterator[Ask]:
        while True:
            context: list[dict[str, str]] = []
            for _ in range(SYSTEM_TURNS.draw(self._chance)):
                user_words, system_words = USER_WORDS.draw(self._chance), SYSTEM_WORDS.draw(self._chance)
                context.append(_turn("user", self._text(user_words)))
                response = self._text(system_words)
                item = {"context": list(context), "response": response, **self._choice}
                yield Ask(item=item, is_repeat=False, user_words=user_words, system_words=system_words)
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
