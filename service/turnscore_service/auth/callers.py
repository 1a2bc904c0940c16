"""Callers: who has called, what their key may still spend, and in whose name work is done. Lets nobody in."""

from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from turnscore_service import metrics
from turnscore_service.auth.turn_budget import TurnBudget


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller: a key's name, or nobody in particular if no key is needed."""

    key_name: str | None = None
    budget: TurnBudget | None = None
    network: str = ""
    """The network it calls from (`network_of`), if nothing else is known of it."""

    @property
    def share(self) -> str:
        """In whose name their work shares with others': of a key, or of a network without one."""
        return self.network if self.key_name is None else f"key {self.key_name}"

    def require_budget(self, turns: int) -> None:
        """Raises OverloadedError where the key has asked for too much to be answered these turns. Costs nothing."""
        if not turns or self.budget is None or self.key_name is None:
            return
        try:
            self.budget.require()
        except Exception:
            metrics.KEY_TURNS.labels(self.key_name, "refused").inc(turns)
            raise

    def charge(self, turns: int) -> None:
        """Counts turns that are admitted or known already. Never refuses."""
        if self.key_name is None:
            return
        if self.budget is not None:
            self.budget.take(turns)
        metrics.KEY_TURNS.labels(self.key_name, "allowed").inc(turns)


ANYBODY = Caller()
CALLER: ContextVar[Caller] = ContextVar("turnscore_caller", default=ANYBODY)
"""In whose name this task works; set where a caller is let in."""


@lru_cache(maxsize=1024)
def anybody_from(address: str) -> Caller:
    """Nobody in particular, at that address."""
    return Caller(network=network_of(address))


@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The network that shares as one caller: an IPv4 address, or the /64 of an IPv6 one, which one host may have whole.

    A text that is no address counts as a caller of that name.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, 64), strict=False))
    return str(found)


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies whose X-Forwarded-For counts."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def address_of(self, peer: str, forwarded: str | None) -> str:
        """The caller: the peer, or of a trusted proxy the last in its X-Forwarded-For that is none of them."""
        if not forwarded or not self.networks:
            return peer.strip()
        hops = [*forwarded.split(","), peer]
        while len(hops) > 1 and self._include(hops[-1]) and hops[-2].strip():
            hops.pop()
        return hops[-1].strip()

    def _include(self, address: str) -> bool:
        try:
            found = ip_address(address.strip())
        except ValueError:
            return False
        return any(found in network for network in self.networks)
