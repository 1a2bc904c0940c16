"""Token counts: equal ones are one object, as making and checking one takes longer than looking it up. Pure."""

from functools import lru_cache

from turnscore_wire import TokenCount


@lru_cache(maxsize=4096)
def count_tokens(used: int, dropped: int, truncated: bool | None = None) -> TokenCount:  # for the cache
    """So many tokens. Without `truncated` that field counts as not set, and a conversation's messages leave it out."""
    if truncated is None:
        return TokenCount(used=used, dropped=dropped)
    return TokenCount(used=used, dropped=dropped, truncated=truncated)
