"""What a caller may give, typed and documented once for both kinds of client, both transports and the mock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

from pydantic import JsonValue
from turnscore_wire import CacheMode, ChatMessage, ScoreRequest, Turn


class Clock(Protocol):
    """Time in seconds from any fixed point, and two ways to let some of it pass."""

    def now(self) -> float:
        """Seconds since a fixed point; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Returns that much later."""

    async def sleep_async(self, seconds: float) -> None:
        """Returns that much later, letting others run meanwhile."""


@dataclass(frozen=True)
class Tls:
    """An encrypted connection; the files hold PEM and are read when the client is made.

    `ca_file` holds the authorities that may have signed the service's certificate; when left out the public
    ones: over HTTP those of certifi, or of SSL_CERT_FILE in the environment, over gRPC those that it ships.
    `cert_file` and `key_file` are the caller's own, for a service that asks for one (mutual TLS); both or neither, or
    ValueError.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("tls: cert_file and key_file go together")


class SupportsModelDump(Protocol):
    """A message of a library that keeps them as pydantic models, such as openai's."""

    def model_dump(self) -> dict[str, Any]:
        """The message as a mapping."""


# A turn: the wire's own type, a mapping with `speaker` and `text`, or such a pair.
TurnLike = Turn | Mapping[str, str] | tuple[str, str]

# A message as chatbots keep it: the wire's own type, a mapping in OpenAI's chat form, or an object of a library.
MessageLike = ChatMessage | Mapping[str, Any] | SupportsModelDump

# One item of a batch: the wire's own type, or a mapping with `response` and what else `score` takes.
ItemLike = ScoreRequest | Mapping[str, Any]

# Options for each scorer, by its name.
Options = Mapping[str, Mapping[str, JsonValue]]


class ClientOptions(TypedDict, total=False):
    """What every client takes."""

    # Else the environment's TURNSCORE_API_KEY.
    api_key: str | None
    # Encrypts: `Tls()` trusts the public authorities.
    tls: Tls | None
    # For a whole call: connecting, waiting, every retry and the delays between.
    timeout_seconds: float
    max_retries: int
    clock: Clock | None


class CallOptions(TypedDict, total=False):
    """What every call takes."""

    # For the whole call, retries included; else the client's own.
    timeout_seconds: float | None
    # Comes back in the reply and stands in the service's log; without one the service makes one.
    request_id: str | None
    # Travels with the request, such as a trace's: headers over HTTP, metadata over gRPC.
    metadata: Mapping[str, str] | None


class ReadingChoice(TypedDict, total=False):
    """What a request says about the reading of its texts; each is a field of the wire's requests, sent where given."""

    # Counted from this call: when the service drops the work. What is left of `timeout_seconds` says so otherwise.
    deadline_ms: int | None
    # `use`, `bypass` or `refresh`; else `use`.
    cache: CacheMode | None
    # Only scores of this namespace are found, and they are kept there.
    cache_namespace: str | None


class ScoringChoice(ReadingChoice, total=False):
    """What a request says about the scoring besides."""

    # Who scores; else the service's default ones.
    scorers: Sequence[str] | None
    # The scorers' own options.
    options: Options | None
    # Your name for the conversation, the same for each of its turns: one version of each scorer answers all of it.
    conversation: str | None


class ScoringOptions(ScoringChoice, CallOptions, total=False):
    """What every call that scores takes."""


class SimilarityOptions(ReadingChoice, CallOptions, total=False):
    """What a comparison of texts takes."""


class TurnOptions(TypedDict, total=False):
    """What a turn of a conversation takes."""

    # When the service drops the work for this turn; else the conversation's own.
    deadline_ms: int | None
    # For this turn; else the conversation's own.
    timeout_seconds: float | None


CHOICES = tuple(ScoringChoice.__annotations__)


def check_names(given: Mapping[str, object], known: frozenset[str]) -> None:
    """Raises TypeError for an option that there is not, as Python does for an argument."""
    for name in given:
        if name not in known:
            raise TypeError(f"unexpected keyword argument {name!r}; there are {', '.join(sorted(known))}")
