"""What can be wrong with a Redis, in one word: labels with few values, without anything that was sent or received."""

from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    InvalidResponse,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError


class GarbageError(Exception):
    """The answer is not a Redis', or is garbage."""


_CAUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    ((TimeoutError, RedisTimeoutError), "timeout"),
    ((GarbageError, InvalidResponse, UnicodeDecodeError), "garbage"),
    ((AuthenticationError, AuthorizationError, NoPermissionError), "forbidden"),
    (BusyLoadingError, "loading"),
    (OutOfMemoryError, "full"),
    (ReadOnlyError, "read_only"),
    ((ClusterDownError, ClusterError, RedisClusterException, MasterNotFoundError), "failing_over"),
    ((RedisConnectionError, OSError), "connection"),
    (ResponseError, "refused"),
    (RedisError, "other"),
)
_PREFIXES = {
    "NOAUTH": "forbidden",
    "WRONGPASS": "forbidden",
    "MISCONF": "read_only",
    "NOREPLICAS": "read_only",
    "MASTERDOWN": "failing_over",
    "UNBLOCKED": "failing_over",
    "ERR unknown command": "garbage",
}


def cause_of(error: BaseException) -> str:
    """The word for what a store raised."""
    if isinstance(error, ResponseError):
        text = str(error)
        for prefix, cause in _PREFIXES.items():
            if text.startswith(prefix):
                return cause
    return next((cause for kinds, cause in _CAUSES if isinstance(error, kinds)), "other")
