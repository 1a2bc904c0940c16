"""Endpoints: the service's calls by their names over both doors, and the types that travel. One line for each."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel
from turnscore_wire import (
    BatchReply,
    BatchRequest,
    DialogueReply,
    DialogueRequest,
    ModelsReply,
    RankReply,
    RankRequest,
    ScoreReply,
    ScoreRequest,
    SimilarityReply,
    SimilarityRequest,
)

Request = ScoreRequest | BatchRequest | DialogueRequest | RankRequest | SimilarityRequest
R_co = TypeVar("R_co", bound=BaseModel, covariant=True)


@dataclass(frozen=True, kw_only=True)
class Endpoint(Generic[R_co]):
    """One call of the service; without a type of request it is a question without a body."""

    path: str
    rpc: str
    """Its name over gRPC."""
    reply_type: type[R_co]
    request_type: type[Request] | None = None

    @property
    def method(self) -> str:
        """HTTP's."""
        return "GET" if self.request_type is None else "POST"

    @property
    def request_message(self) -> str:
        """What the request is called in turnscore.proto."""
        return f"{self.rpc}Request" if self.request_type is None else self.request_type.__name__


SCORE = Endpoint(path="/v1/score", rpc="Score", reply_type=ScoreReply, request_type=ScoreRequest)
SCORE_BATCH = Endpoint(path="/v1/score_batch", rpc="ScoreBatch", reply_type=BatchReply, request_type=BatchRequest)
SCORE_DIALOGUE = Endpoint(
    path="/v1/score_dialogue", rpc="ScoreDialogue", reply_type=DialogueReply, request_type=DialogueRequest
)
RANK = Endpoint(path="/v1/rank", rpc="Rank", reply_type=RankReply, request_type=RankRequest)
SIMILARITY = Endpoint(
    path="/v1/similarity", rpc="Similarity", reply_type=SimilarityReply, request_type=SimilarityRequest
)
MODELS = Endpoint(path="/v1/models", rpc="Models", reply_type=ModelsReply)

ENDPOINTS: tuple[Endpoint[BaseModel], ...] = (SCORE, SCORE_BATCH, SCORE_DIALOGUE, RANK, SIMILARITY, MODELS)
