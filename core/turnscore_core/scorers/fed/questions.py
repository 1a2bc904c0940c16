"""FED's questions: what a caller asks, as far as it can be said without tokenizing. Refuses what is wrong, by name.

The follow-ups that bundle and deployment know are tokenized when the scorer is loaded. A question that has others is
the caller's: its tokens are counted, and refused where there are too many, in the tokenizer's stage (fed_plans.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from turnscore_core.scorers.fed.dialogue_tokens import DialogueTokenizer
from turnscore_core.scorers.fed.options import FedBundleOptions, Loss, Quality, read_request
from turnscore_core.scorers.fields import fingerprint

_BYTES_PER_TOKEN = 2
"""Of a caller's follow-up, for admission: English has four to five, other scripts two or less. Chosen."""
_FOLLOW_UP_SHARE = 4
"""A follow-up may take a quarter of the window, the context has the rest. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FedQuestion:
    """What one turn is scored on, in the order asked."""

    key: tuple[object, ...]
    """Equal questions have equal keys, and only the keys are compared. Holds no text but the qualities' names."""
    qualities: tuple[tuple[str, Quality], ...] = field(compare=False)
    loss: Loss = field(compare=False)
    parts: tuple[bytes, ...] = field(compare=False)
    """A fingerprint for each piece of its score, of all but the turn that the piece depends on: a piece a quality,
    whose name it leaves out, or one piece where the question is the caller's."""
    room: int | None = field(compare=False)
    """Tokens of a turn that fit the window beside its longest follow-up. None where it is the caller's."""
    fed_tokens: int = field(compare=False)
    """Of the follow-ups: those that the model is fed, or an estimate where the question is the caller's."""

    @property
    def is_callers(self) -> bool:
        """Whether it has a follow-up that neither bundle nor deployment knows."""
        return self.room is None

    @property
    def texts(self) -> list[str]:
        """The distinct follow-ups, in order."""
        texts = [text for _, quality in self.qualities for text in (*quality.positive, *quality.negative)]
        return list(dict.fromkeys(texts))


class FedQuestions:
    """Makes questions for one bundle."""

    def __init__(self, tokenizer: DialogueTokenizer, options: FedBundleOptions, window: int) -> None:
        """Tokenizes what is known. Raises RuntimeError where a follow-up leaves no room for a context."""
        self._options = options
        self._window = window
        self.longest_allowed = window // _FOLLOW_UP_SHARE
        self._known = {**options.qualities, **options.own_qualities}
        texts = list(dict.fromkeys(text for each in self._known.values() for text in _texts_of(each)))
        self.tokens: Mapping[str, Sequence[int]] = dict(zip(texts, tokenizer.encode_follow_ups(texts), strict=True))
        """Of each follow-up that is known."""
        self._prefixes = _number_prefixes(self.tokens)
        self.longest = max(len(self.tokens[text]) for each in options.qualities.values() for text in _texts_of(each))
        """Tokens of the bundle's longest follow-up, which decides how much context fits whatever is asked of it."""
        longest = max(map(len, self.tokens.values()))
        if longest > self.longest_allowed:
            raise RuntimeError(f"a follow-up of {longest} tokens leaves no room for a context")
        self._parts = {
            (name, loss): _part(quality, loss, self.room_beside(self.longest))
            for name, quality in self._known.items()
            for loss in ("response_only", "whole_sequence")
        }
        self.default = self.ask(*read_request({}, options))

    def read(self, options: Mapping[str, JsonValue]) -> FedQuestion:
        """The question that a request's options ask. Raises InvalidRequestError with the option's name."""
        return self.ask(*read_request(options, self._options)) if options else self.default

    def ask(self, qualities: Mapping[str, Quality], loss: Loss) -> FedQuestion:
        """The question of these qualities, in their order."""
        asked = tuple(qualities.items())
        texts = [text for quality in qualities.values() for text in _texts_of(quality)]
        if any(text not in self.tokens for text in texts):
            return self._ask_callers(asked, loss, texts)
        room = self.room_beside(max(len(self.tokens[text]) for text in texts))
        parts = tuple(self._part_of(name, quality, loss, room) for name, quality in asked)
        fed = 0
        for text in texts:
            fed |= self._prefixes[text]
        return FedQuestion(
            key=(loss, *qualities, *parts),
            qualities=asked,
            loss=loss,
            parts=parts,
            room=room,
            fed_tokens=fed.bit_count(),
        )

    def room_beside(self, longest: int) -> int:
        """Tokens of a turn that fit the window when a follow-up of `longest` tokens stands after them."""
        return self._window - max(self.longest, longest)

    def _ask_callers(self, asked: Sequence[tuple[str, Quality]], loss: Loss, texts: Sequence[str]) -> FedQuestion:
        described = ((name, quality.positive, quality.negative) for name, quality in asked)
        part = fingerprint((loss, *(each for three in described for each in three)))
        estimate = sum(len(text.encode()) // _BYTES_PER_TOKEN + 1 for text in set(texts))
        return FedQuestion(
            key=(loss, part), qualities=tuple(asked), loss=loss, parts=(part,), room=None, fed_tokens=estimate
        )

    def _part_of(self, name: str, quality: Quality, loss: Loss, room: int) -> bytes:
        if self._known.get(name) is quality and room == self.room_beside(self.longest):
            return self._parts[name, loss]
        return _part(quality, loss, room)


def _texts_of(quality: Quality) -> tuple[str, ...]:
    return (*quality.positive, *quality.negative)


def _part(quality: Quality, loss: Loss, room: int) -> bytes:
    """`room` too: a longer follow-up of another quality leaves less of the context to read."""
    return fingerprint((loss, quality.positive, quality.negative, room))


def _number_prefixes(tokens: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Of each text the beginnings that something follows, a bit each: what a tree of several texts feeds, in a tree
    that need not be built."""
    numbers: dict[tuple[int, ...], int] = {}
    return {
        text: sum(1 << numbers.setdefault(tuple(ids[:end]), len(numbers)) for end in range(1, len(ids)))
        for text, ids in tokens.items()
    }
