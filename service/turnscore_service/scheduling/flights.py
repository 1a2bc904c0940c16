"""Flights: scores that are being computed, so that equal turns are computed once. Computes nothing itself.

A flight lasts while any caller waits for it. Each caller decides for itself how long it waits; the last
to leave ends it. A failure goes to every caller that waits and is not kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from turnscore_core.errors import ScoringError
from turnscore_core.scorers.parts import ScorePart, ScoresInParts
from turnscore_core.scorers.scorer import TurnToScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Pieces of a score by fingerprint, and where their time went."""

    parts: Mapping[bytes, ScorePart]
    tokenize_seconds: float
    queue_seconds: float
    inference_seconds: float


class Flight:
    """Pieces of one turn's score on their way."""

    def __init__(
        self,
        flights: "Flights",
        key: str | None,
        parts: Iterable[bytes],
        *,
        turn: TurnToScore,
        chars: int,
        reader: ScoresInParts,
        keep: Callable[[Mapping[bytes, ScorePart]], None],
    ) -> None:
        """`turn` is as its scorer is to see it; `chars` are those that the scorer reads of it.

        `keep` is called with the finished pieces before they land.
        """
        self.turn = turn
        self.chars = chars
        self.reader = reader
        self.keep = keep
        self.landed: Computed | ScoringError | None = None
        """What became of it, once it has landed."""
        self.parts = frozenset(parts)
        self.on_land: list[Callable[[], object]] = []
        """Called when it lands."""
        self.on_empty: list[Callable[[bool], None]] = []
        """Called if the last caller leaves before it lands; with whether its time ran out."""
        self._flights = flights
        self._key = key
        self._waiting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether a caller waits for it."""
        return self._waiting > 0 and self.landed is None

    def enter(self) -> None:
        """One more caller waits."""
        self._waiting += 1

    def leave(self, *, expired: bool = False) -> None:
        """One caller no longer waits."""
        self._waiting -= 1
        if not self._waiting and self.landed is None:
            self._flights.remove(self._key, self)
            for stop in self.on_empty:
                stop(expired)
            self._forget_calls()

    def land(self, result: Computed | ScoringError) -> None:
        """Gives the result to every caller; only the first result counts."""
        if self.landed is None:
            self._flights.remove(self._key, self)
            self.landed = result
            for tell in self.on_land:
                tell()
            self._forget_calls()

    def _forget_calls(self) -> None:
        """Its calls know it, and it knows the scorer: a replaced model would stay until the next garbage collection."""
        self.on_land.clear()
        self.on_empty.clear()


class Flights:
    """The flights of one process, by key and piece. Belongs to one event loop."""

    def __init__(self) -> None:
        self._by_part: dict[tuple[str, bytes], Flight] = {}

    def find(self, key: str | None, part: bytes) -> Flight | None:
        """The flight that this piece of that turn is on; a turn without a key is on none."""
        return None if key is None else self._by_part.get((key, part))

    def add(self, key: str | None, flight: Flight) -> None:
        """Lets others join it; pieces that are on another flight stay there for the next question."""
        if key is not None:
            for part in flight.parts:
                self._by_part.setdefault((key, part), flight)

    def remove(self, key: str | None, flight: Flight) -> None:
        """Lets no other caller join."""
        if key is not None:
            for part in flight.parts:
                if self._by_part.get((key, part)) is flight:
                    del self._by_part[key, part]
