"""How a request wants to use the cache. Reads no request and no cache."""

from dataclasses import dataclass

from turnscore_wire import CacheMode


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """How a request wants the cache used."""

    mode: CacheMode = "use"
    namespace: str | None = None
    """None for the service's own namespace."""


UNSAID = CacheChoice()
"""The choice of a request that does not name the cache."""
