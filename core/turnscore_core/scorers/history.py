"""History: the turns before one that is scored, and texts without what a scorer cannot read.

A token is taken to be `CHARS_PER_TOKEN` characters long at most. What lies beyond so many characters a token of the
scorer's limit is left out before anything is hashed or tokenized, as if it had not been sent. White space around a
text does not count.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import overload

from turnscore_wire import Turn

# English text has four to five characters a token. Chosen: fewer tokens than its scorer has room for are left only of
# text that is mostly white space, or whose words are longer than any dictionary's.
CHARS_PER_TOKEN = 16
FEWEST_CHARS = 2  # of a token, for estimates: half of what English has is on the safe side for other scripts


def keep_beginning(text: str, chars: int) -> tuple[str, bool]:
    """At most so many characters from the text's beginning, and whether any were left out."""
    spoken = text if len(text) <= chars else text.strip()
    return spoken[:chars], len(spoken) > chars


def keep_end(text: str, chars: int) -> tuple[str, bool]:
    """At most so many characters from the text's end, and whether any were left out."""
    spoken = text if len(text) <= chars else text.strip()
    return spoken[max(0, len(spoken) - chars) :], len(spoken) > chars


def keep_ends(text: str, chars: int, end_chars: int) -> tuple[str, bool]:
    """At most so many characters, of which `end_chars` are from the text's end, and whether any were left out."""
    spoken = text if len(text) <= chars else text.strip()
    if len(spoken) <= chars:
        return spoken, False
    return f"{spoken[: chars - end_chars - 1]} {spoken[len(spoken) - end_chars :]}", True


def keep_ends_of(turns: Sequence[Turn], chars: Sequence[int]) -> tuple[list[Turn], bool]:
    """At most so many characters from each turn's end, and whether any were left out."""
    kept = [keep_end(turn.text, most) for turn, most in zip(turns, chars, strict=True)]
    ends = [
        turn if text == turn.text else Turn.model_construct(speaker=turn.speaker, text=text)
        for turn, (text, _) in zip(turns, kept, strict=True)
    ]
    return ends, any(is_cut for _, is_cut in kept)


Claim = Callable[[Turn], bool]


class _Dialogue:
    """Facts about a dialogue's turns, from one pass over them."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.spoken: list[Turn] = []  # the turns with more to them than white space
        self.counts = [0]  # how many of the first n turns are spoken
        self.chars = [0]  # the characters of the first n spoken turns, without the white space around them
        self.user_runs = [(0, 0)]  # where the user's last run of turns among the first n begins and ends
        self.answers: dict[Claim, dict[int, bool]] = {}
        begin = end = 0
        for place, turn in enumerate(turns):
            if length := len(turn.text.strip()):
                self.spoken.append(turn)
                self.chars.append(self.chars[-1] + length)
            if turn.speaker == "user":
                begin, end = begin if end == place else place, place + 1
            self.counts.append(len(self.spoken))
            self.user_runs.append((begin, end))


class History(Sequence[Turn]):
    """The first turns of a dialogue, oldest first. Copies nothing: a dialogue of n turns has n of them."""

    __slots__ = ("_dialogue", "_length", "_turns")

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self._dialogue = _Dialogue(turns)
        self._length = len(turns)

    def before(self, place: int) -> "History":
        earlier = object.__new__(History)
        earlier._turns, earlier._dialogue, earlier._length = self._turns, self._dialogue, place
        return earlier

    @property
    def last_user_run(self) -> tuple[int, int]:
        """Where the user's last run of turns begins and ends; an empty place where the user said nothing."""
        return self._dialogue.user_runs[self._length]

    def latest(self, *, turns: int, chars: int, begin: int = 0, end: int | None = None) -> tuple[list[Turn], bool]:
        """The latest of the spoken turns between two places, oldest first, and whether any text of them was left out.

        At most so many turns and characters, white space around texts not counted: the oldest may lose its beginning.
        """
        known = self._dialogue
        first, last = known.counts[begin], known.counts[self._length if end is None else end]
        most = known.chars[last] - chars
        oldest = max(first, last - turns, bisect_right(known.chars, most) - 1)
        kept = known.spoken[oldest:last]
        excess = most - known.chars[oldest]
        if kept and excess > 0:
            kept[0] = Turn.model_construct(speaker=kept[0].speaker, text=kept[0].text.strip()[excess:])
        return kept, oldest > first or excess > 0

    def latest_of(self, claim: Claim, most: int) -> tuple[list[Turn], bool]:
        """The latest spoken turns of which the claim is true, oldest first, and whether there are more than so many.

        A dialogue's turn is asked once.
        """
        known = self._dialogue
        answers = known.answers.setdefault(claim, {})
        kept: list[Turn] = []
        for place in range(known.counts[self._length] - 1, -1, -1):
            if place not in answers:
                answers[place] = claim(known.spoken[place])
            if answers[place]:
                if len(kept) == most:
                    return kept[::-1], True
                kept.append(known.spoken[place])
        return kept[::-1], False

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> Turn: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Turn]: ...
    def __getitem__(self, place: int | slice) -> Turn | Sequence[Turn]:
        if isinstance(place, slice):
            return [self._turns[each] for each in range(self._length)[place]]
        return self._turns[range(self._length)[place]]

    def __iter__(self) -> Iterator[Turn]:
        return islice(self._turns, self._length)


def history_of(context: Sequence[Turn]) -> History:
    """The context as a history; a history unchanged."""
    return context if isinstance(context, History) else History(context)
