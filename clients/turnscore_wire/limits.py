"""Limits: how much one request may carry. A service returns its own in `GET /v1/models`."""

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

MAX_DEADLINE_MS = 600_000
"""The longest deadline a request may name: ten minutes. Chosen."""

REQUEST_ID_PATTERN = r"[A-Za-z0-9._:-]{1,128}"
"""A caller's request id; the service replaces any other by one of its own."""


class Limits(BaseModel):
    """A request beyond any of these is refused as `too_large`, before any work is done.

    The defaults are chosen: above the longest of the public dialogues turnscore was built on (measured in ConvAI 2017,
    DSTC9 and DBDC3: 630 turns, 4,924 characters a turn).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_text_chars: PositiveInt = Field(default=8_000, description="Characters in one turn or response.")
    max_turns: PositiveInt = Field(
        default=1024,
        description="Turns in one context or dialogue; as many messages, and four times as many parts in them.",
    )
    max_items: PositiveInt = Field(default=256, description="Items in one batch request.")
    max_candidates: PositiveInt = Field(default=64, description="Candidates in one rank request.")
    max_body_bytes: PositiveInt = Field(default=1024 * 1024, description="Bytes in one request body.")
