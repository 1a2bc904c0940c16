"""A shared cache level that is a dict, so that the cache can be tested without a server."""

from collections.abc import Sequence


class DictLevel:
    """Holds what it is given; `is_sick` makes it answer nothing. Can be shared by several caches."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.ttl_ms: dict[str, int] = {}
        self.asked: list[list[str]] = []
        self.is_sick = False

    async def fetch(self, keys: Sequence[str], seconds: float) -> Sequence[bytes | None] | None:
        self.asked.append(list(keys))
        return None if self.is_sick else [self.entries.get(key) for key in keys]

    def put(self, key: str, entry: bytes, ttl_ms: int) -> None:
        self.entries[key] = entry
        self.ttl_ms[key] = ttl_ms
