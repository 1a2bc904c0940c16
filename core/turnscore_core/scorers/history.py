"""History: the turns before one that is scored, and texts without what a scorer cannot read.

A token is taken to be `CHARS_PER_TOKEN` characters long at most. What lies beyond so many characters a token of the
scorer's limit is left out before anything is hashed or tokenized, as if it had not been sent. White space around a
text does not count.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
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
    ends, is_any_cut = [], False
    for turn, most in zip(turns, chars, strict=True):
        if len(turn.text) <= most:
            ends.append(turn)
            continue
        text, is_cut = keep_end(turn.text, most)
        ends.append(Turn.model_construct(speaker=turn.speaker, text=text))
        is_any_cut = is_any_cut or is_cut
    return ends, is_any_cut


Claim = Callable[[Turn], bool]


class History(Sequence[Turn]):
    """The first turns of a dialogue, oldest first. Copies nothing: a dialogue of n turns has n of them.

    What all of them know of the dialogue's turns comes from one pass over these.
    """

    __slots__ = ("_answers", "_chars", "_counts", "_length", "_spoken", "_turns", "_user_runs")

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns, self._length = turns, len(turns)
        self._spoken: list[Turn] = []  # the turns with more to them than white space
        self._counts = [0]  # how many of the first n turns are spoken
        self._chars = [0]  # the characters of the first n spoken turns, without the white space around them
        self._user_runs = [(0, 0)]  # where the user's last run of turns among the first n begins and ends
        self._answers: dict[Claim, dict[int, bool]] = {}
        begin = end = 0
        for place, turn in enumerate(turns):
            if length := len(turn.text.strip()):
                self._spoken.append(turn)
                self._chars.append(self._chars[-1] + length)
            if turn.speaker == "user":
                begin, end = begin if end == place else place, place + 1
            self._counts.append(len(self._spoken))
            self._user_runs.append((begin, end))

    def before(self, place: int) -> "History":
        earlier = copy(self)
        earlier._length = place
        return earlier

    @property
    def last_user_run(self) -> tuple[int, int]:
        """Where the user's last run of turns begins and ends; an empty place where the user said nothing."""
        return self._user_runs[self._length]

    def latest(self, *, turns: int, chars: int, begin: int = 0, end: int | None = None) -> tuple[list[Turn], bool]:
        """The latest of the spoken turns between two places, oldest first, and whether any text of them was left out.

        At most so many turns and characters, white space around texts not counted: the oldest may lose its beginning.
        """
        first, last = self._counts[begin], self._counts[self._length if end is None else end]
        most = self._chars[last] - chars
        oldest = max(first, last - turns, bisect_right(self._chars, most) - 1)
        kept = self._spoken[oldest:last]
        excess = most - self._chars[oldest]
        if kept and excess > 0:
            kept[0] = Turn.model_construct(speaker=kept[0].speaker, text=kept[0].text.strip()[excess:])
        return kept, oldest > first or excess > 0

    def latest_of(self, claim: Claim, most: int) -> tuple[list[Turn], bool]:
        """The latest spoken turns of which the claim is true, oldest first, and whether there are more than so many.

        A dialogue's turn is asked once.
        """
        answers = self._answers.setdefault(claim, {})
        kept: list[Turn] = []
        for place in range(self._counts[self._length] - 1, -1, -1):
            if place not in answers:
                answers[place] = claim(self._spoken[place])
            if answers[place]:
                if len(kept) == most:
                    return kept[::-1], True
                kept.append(self._spoken[place])
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
