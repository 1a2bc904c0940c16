"""Similarity: what asks how near texts are to others, and what answers it."""

from typing import Annotated

from pydantic import FailFast, Field

from turnscore_wire.messages import MAX_DEADLINE_MS, SpokenText, WireRequest
from turnscore_wire.replies import Reply, Timing, TokenCount
from turnscore_wire.requests import CacheMode, CacheNamespace


class SimilarityRequest(WireRequest):
    """Texts to compare with others by the sentence encoder. Texts and references together are at most `max_items`."""

    texts: Annotated[list[SpokenText], Field(min_length=1), FailFast()] = Field(
        description="The texts to compare; may hold the same one twice."
    )
    references: Annotated[list[SpokenText], FailFast()] = Field(
        default_factory=list,
        description="What they are compared with. Without any, the texts are compared with each other, and each counts "
        "twice.",
    )
    deadline_ms: Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS)] | None = Field(
        default=None,
        description="Milliseconds after which the answer is worthless to the caller; "
        "work not yet started is then dropped.",
    )
    cache: CacheMode | None = Field(
        default=None,
        description="`use`, also when left out: texts that were read before need no reading. `bypass`: every text is "
        "read, and nothing is kept. `refresh`: every text is read, and kept for later requests.",
    )
    cache_namespace: CacheNamespace | None = Field(
        default=None,
        description="Only what was kept under this name answers, and it is kept under it: one for each tenant or "
        "experiment that must not see what others asked. The service's own when left out.",
    )


class EncodedText(Reply):
    """What was read of one text."""

    tokens: TokenCount
    cached: bool = Field(description="Whether the text was read for an earlier request.")


class TextSimilarities(Reply):
    """How near one text is to each reference, or to each text where there are no references."""

    similarities: list[float] = Field(
        description="Cosines, -1 to 1, to six places, in the order of the request. A text with itself has 1."
    )
    best: int | None = Field(
        description="The place of the greatest, from 0, the first of equals; of texts that are compared with each "
        "other the text itself does not count. Null where there is no other."
    )
    tokens: TokenCount
    cached: bool = Field(description="Whether the text was read for an earlier request.")


class SimilarityReply(Reply):
    """Every text's similarities, in the order asked for."""

    request_id: str
    texts: list[TextSimilarities]
    references: list[EncodedText] = Field(
        default_factory=list, description="What was read of each; empty where the request has none."
    )
    model: str = Field(description="The bundle that answered, as `name:version`.")
    digest: str = Field(description="SHA-256 over every file of that bundle that can change a similarity.")
    timing_ms: Timing
