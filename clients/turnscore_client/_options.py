"""What a caller may give, typed and documented once for both kinds of client, both transports and the mock."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

from pydantic import JsonValue
from turnscore_wire import CacheMode, ChatMessage, ScoreRequest, Turn


class SupportsModelDump(Protocol):
    """A message of a library that keeps them as pydantic models, such as openai's."""

    def model_dump(self) -> dict[str, Any]:
        """The message as a mapping."""


TurnLike = Turn | Mapping[str, str] | tuple[str, str]
"""A turn: the wire's own type, a mapping with `speaker` and `text`, or such a pair."""

MessageLike = ChatMessage | Mapping[str, Any] | SupportsModelDump
"""A message as chatbots keep it: the wire's own type, a mapping in OpenAI's chat form, or an object of a library."""

ItemLike = ScoreRequest | Mapping[str, Any]
"""One item of a batch: the wire's own type, or a mapping with `response` and what else `score` takes."""

Options = Mapping[str, Mapping[str, JsonValue]]
"""Options for each scorer, by its name."""


class CallOptions(TypedDict, total=False):
    """What every call takes."""

    timeout_seconds: float | None
    """For the whole call, retries included; else the client's own."""
    request_id: str | None
    """Comes back in the reply and stands in the service's log; without one the service makes one."""
    metadata: Mapping[str, str] | None
    """Travels with the request, such as a trace's: headers over HTTP, metadata over gRPC."""


class ReadingChoice(TypedDict, total=False):
    """What a request says about the reading of its texts; each is a field of the wire's requests, sent where given."""

    deadline_ms: int | None
    """Counted from this call: when the service drops the work. What is left of `timeout_seconds` says so otherwise."""
    cache: CacheMode | None
    """`use`, `bypass` or `refresh`; else `use`."""
    cache_namespace: str | None
    """Only scores of this namespace are found, and they are kept there."""


class ScoringChoice(ReadingChoice, total=False):
    """What a request says about the scoring besides."""

    scorers: Sequence[str] | None
    """Who scores; else the service's default ones."""
    options: Options | None
    """The scorers' own options."""
    conversation: str | None
    """Your name for the conversation, the same for each of its turns: one version of each scorer answers all of it."""


class ScoringOptions(ScoringChoice, CallOptions, total=False):
    """What every call that scores takes."""


class SimilarityOptions(ReadingChoice, CallOptions, total=False):
    """What a comparison of texts takes."""


class TurnOptions(TypedDict, total=False):
    """What a turn of a conversation takes."""

    deadline_ms: int | None
    """When the service drops the work for this turn; else the conversation's own."""
    timeout_seconds: float | None
    """For this turn; else the conversation's own."""


CHOICES = tuple(ScoringChoice.__annotations__)


def check_names(given: Mapping[str, object], known: frozenset[str]) -> None:
    """Raises TypeError for an option that there is not, as Python does for an argument."""
    for name in given:
        if name not in known:
            raise TypeError(f"unexpected keyword argument {name!r}; there are {', '.join(sorted(known))}")
