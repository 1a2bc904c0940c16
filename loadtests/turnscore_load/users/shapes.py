"""Shapes: how many users there are at a moment of a run. Pure; bounded in users and in time."""

from dataclasses import dataclass
from typing import Literal, get_args

ShapeName = Literal["steady", "ramp", "spike", "soak"]
SHAPES: tuple[ShapeName, ...] = get_args(ShapeName)

MAX_USERS = 256
"""Chosen: far more than two cores can serve, few enough for one generator."""
MAX_SECONDS = 7200
"""Chosen: no run is left behind for longer than two hours."""

_RAMP_STEPS = 20
_SPIKE_BASE = 5
_SOAK_RISE = 0.05


@dataclass(frozen=True, slots=True)
class Shape:
    """A run of `seconds` with at most `users` users.

    steady: all users from the start. ramp: up to all of them in 20 equal steps. spike: a fifth of them, in the middle
    third of the time all at once. soak: all of them after the first twentieth of the time.
    """

    name: ShapeName
    users: int
    seconds: float

    def __post_init__(self) -> None:
        if self.name not in SHAPES:
            raise ValueError(f"the shape must be one of {', '.join(SHAPES)}")
        if not 1 <= self.users <= MAX_USERS:
            raise ValueError(f"users must be from 1 to {MAX_USERS}")
        if not 1 <= self.seconds <= MAX_SECONDS:
            raise ValueError(f"seconds must be from 1 to {MAX_SECONDS}")

    def users_at(self, seconds: float) -> int | None:
        """Users that many seconds after the start; None when the run is over."""
        if seconds >= self.seconds:
            return None
        part = seconds / self.seconds
        if self.name == "ramp":
            step = int(part * _RAMP_STEPS) + 1
            return max(1, round(self.users * step / _RAMP_STEPS))
        if self.name == "spike" and not 1 / 3 <= part < 2 / 3:
            return max(1, self.users // _SPIKE_BASE)
        if self.name == "soak" and part < _SOAK_RISE:
            return max(1, round(self.users * part / _SOAK_RISE))
        return self.users
