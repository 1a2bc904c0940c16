"""Replies: what the service sends. A reader ignores fields it does not know, so that fields may be added."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnscore_wire.errors import ErrorDetail, ErrorReply
from turnscore_wire.limits import Limits


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True)


class TokenCount(_Reply):
    """Tokens the model saw, and tokens cut because they were more than it takes."""

    used: int
    dropped: int


class Score(_Reply):
    """What one scorer says of one system turn."""

    value: float = Field(description="The score as its paper defines it; see the scorer's page.")
    percentile: float | None = Field(
        description="Share of the bundle's reference turns (0 to 100) that score lower: the number to read. "
        "Null where none was scored this way: for qualities of the caller's own."
    )
    details: dict[str, float] = Field(description="The parts the value is made of; empty for engagement.")
    model: str = Field(description="The bundle that answered, as `name:version`.")
    tokens: TokenCount
    cached: bool = Field(description="Whether the score was computed for an earlier request.")


class Timing(_Reply):
    """Where the time of a request went, in milliseconds. Of several items, the slowest."""

    total: float = Field(description="From the decoded request to the finished reply.")
    tokenize: float = Field(description="Turning text into tokens, waiting for a thread included.")
    queue: float = Field(description="Waiting for a place in a batch.")
    inference: float = Field(description="In the runtime, with the whole batch.")


Errors = Annotated[
    dict[str, ErrorDetail],
    Field(
        description="Scorers that failed while others answered, by name. "
        "When all fail, the request fails with the first one's error."
    ),
]


class ScoreReply(_Reply):
    """The scores of one system turn, by scorer."""

    request_id: str
    scores: dict[str, Score]
    errors: Errors = Field(default_factory=dict)
    timing_ms: Timing


class BatchReply(_Reply):
    """One result an item, in the order asked for."""

    request_id: str
    results: list[ScoreReply | ErrorReply]


class DialogueTurnScores(_Reply):
    """The scores of one system turn of a dialogue; `index` is its place in the request's turns, from 0."""

    index: int
    scores: dict[str, Score]
    errors: Errors = Field(default_factory=dict)


class DialogueAggregate(_Reply):
    """One scorer's values over the turns of a dialogue that count for it."""

    mean: float = Field(description="The dialogue's score as the papers define it.")
    min: float
    max: float
    turns: int = Field(description="How many turns it was taken over.")


class DialogueReply(_Reply):
    """Every system turn's scores and each scorer's view of the whole dialogue."""

    request_id: str
    turns: list[DialogueTurnScores]
    dialogue: dict[str, DialogueAggregate]
    timing_ms: Timing


class ModelDescription(_Reply):
    """One loaded bundle."""

    scorer: str
    model: str = Field(description="`name:version`, as replies carry it.")
    digest: str = Field(description="SHA-256 over every file of the bundle that can change a score.")
    graph: str = Field(description="The graph that runs, such as `cpu-int8`.")
    token_limit: int = Field(description="Tokens the model takes for one text.")


class ModelsReply(_Reply):
    """What this service has loaded, and how much it takes at once."""

    request_id: str
    models: list[ModelDescription]
    limits: Limits


class HealthReply(_Reply):
    """The answer of /livez and of a ready /readyz."""

    status: Literal["alive", "ready"]
