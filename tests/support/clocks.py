"""A clock on which time passes by being added to."""


class ManualClock:
    """Seconds since nothing in particular."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds
