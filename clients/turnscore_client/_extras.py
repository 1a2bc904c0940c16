"""Extras: what a part of this package needs and a plain installation does not bring. Names the extra, no more."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Imports inside raise an ImportError that says what to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{what} needs an extra; in a checkout of turnscore: pip install './clients[{extra}]'", name=error.name
        ) from error
