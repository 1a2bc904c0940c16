"""What a request wants of the cache. Reads no request and no cache."""

from dataclasses import dataclass

from turnscore_wire import CacheMode


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """How a request wants the cache used."""

    mode: CacheMode = "use"
    namespace: str | None = None
    """None for the service's own."""


UNSAID = CacheChoice()
"""Of a request that says nothing of the cache."""
