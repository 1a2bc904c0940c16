"""The transcript: what was said in one conversation, turn by turn or in messages. Pure; checks nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnscore_wire.messages import ChatMessage, map_messages
from turnscore_wire.turns import Turn


@dataclass(slots=True)
class Transcript:
    """The turns so far. Messages of an assistant's turn that tools are at work for wait for the rest of it."""

    turns: list[Turn]
    taken: int
    """Turns and messages that these turns came in: the place of the next one."""
    waiting: list[ChatMessage] = field(default_factory=list)

    def say(self, turn: Turn) -> int:
        """Adds a turn; its place. What waits becomes turns as it is."""
        self.turns.extend(map_messages(self.waiting).turns)
        self.turns.append(turn)
        self.taken += len(self.waiting) + 1
        self.waiting = []
        return self.taken - 1

    def hear(self, messages: Sequence[ChatMessage]) -> tuple[int, Turn | None]:
        """Adds messages. The system turn that they end with and the place of its last text, or None and the last place.

        No turn is given while the assistant's goes on, nor where the user spoke last.
        """
        together, first = [*self.waiting, *messages], self.taken
        mapped = map_messages(together)
        turns, cut = mapped.turns, len(together)
        if mapped.goes_on:
            finished = len(turns) - (bool(turns) and turns[-1].speaker == "system")
            turns, cut = turns[:finished], mapped.indices[finished - 1] + 1 if finished else 0
        self.turns.extend(turns)
        self.taken += cut
        self.waiting = together[cut:]
        if self.waiting or not turns or turns[-1].speaker == "user":
            return first + len(together) - 1, None
        return first + mapped.indices[-1], turns[-1]
