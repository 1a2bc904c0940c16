"""Options: what every integration takes, documented once; and the ids under which a turn is known elsewhere."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from turnscore_client._background import Scored
from turnscore_client._sync.calls import Calls
from turnscore_client._sync.client import TurnScoreClient
from turnscore_client._tls import Tls


@dataclass(frozen=True, kw_only=True)
class TurnIds:
    """Where a turn stands in the traces of its chatbot; None where its framework does not say."""

    trace_id: str | None = None
    span_id: str | None = None
    session_id: str | None = None
    """The conversation, as the chatbot names it."""


NO_IDS = TurnIds()

OnScored = Callable[[Scored], object]
"""Gets each outcome, with the turn's TurnIds as its `tag`; one at a time, in a thread of its own."""

Convert = Callable[[Sequence[Any]], Iterable[Mapping[str, Any]]]
"""Makes OpenAI's messages of a framework's own; it runs in a thread of ours."""


class ServiceOptions(TypedDict, total=False):
    """Which service is asked, and how."""

    url: str | None
    """Else TURNSCORE_URL, or http://localhost:3000."""
    api_key: str | None
    """Else TURNSCORE_API_KEY."""
    tls: Tls | None
    client: Calls | None
    """A client for threads of your own, in place of the three above. It is left open."""


class WatchOptions(ServiceOptions, total=False):
    """What scoring behind the chatbot's back takes."""

    on_scored: OnScored | None
    """What becomes of the scores, such as a writer; else they are logged."""
    scorers: Sequence[str] | None
    """Who scores; else the service's default ones."""
    max_waiting: int
    """Turns that wait or are being scored; one more is dropped and counted."""
    concurrency: int
    """Turns that are being scored at once, each in a thread."""
    timeout_seconds: float
    """For one turn, retries included."""


class GateOptions(WatchOptions, total=False):
    """What integrations that can gate take besides."""

    min_quality: float | None
    """A reply whose value of the scorer is below gets one chance more; None gates nothing."""
    gate_scorer: str
    """`quality`, whose values are probabilities that people call a turn good."""
    budget_seconds: float
    """For the scores and the second answer together. What is not ready then does not count."""


def open_client(given: ServiceOptions, *, timeout_seconds: float, max_retries: int) -> Calls:
    """The caller's own client, or one for the given service. Raises ValueError for an address or key that is none."""
    own = given.get("client")
    if own is not None:
        return own
    return TurnScoreClient(
        given.get("url"),
        api_key=given.get("api_key"),
        tls=given.get("tls"),
        timeout_seconds=timeout_seconds,
        max_retries=max_retries,
    )


def check_positive(name: str, value: float) -> None:
    """Raises ValueError for what is no bound."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a number above 0")
