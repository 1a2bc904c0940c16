"""Ranks responses in the shape that the clients of rerankers send and read: Cohere's (`rerank`, v1 and v2) and Jina's.

The query is the user's turn, the documents are the candidates of `ScoringPipeline.rank`. What has no counterpart there
and changes no order is taken and ignored; everything else that is unknown is refused.
"""

from typing import Annotated

from pydantic import BaseModel, FailFast, Field
from turnscore_core.errors import ScoringError
from turnscore_core.scoring import Deadline
from turnscore_wire import MAX_DEADLINE_MS, RankRequest, Turn
from turnscore_wire.messages import SpokenText, WireRequest
from turnscore_wire.requests import ScorerName

from turnscore_service.api.calls import ServiceCall
from turnscore_service.scheduling.pipeline import ScoringPipeline

# A ranking's fields, by which its errors name what is wrong, as they are called here.
_FIELDS = {"candidates": "documents", "context": "query", "scorers": "model"}
_Ignored = Annotated[int | bool | None, Field(description="Taken from clients that send it, and ignored.")]


class RerankDocument(WireRequest):
    text: SpokenText


class RerankRequest(WireRequest):
    """Several responses to one turn of the user, to be put in order, as a reranker's client asks."""

    query: SpokenText = Field(description="The user's turn that is answered.")
    documents: Annotated[list[SpokenText | RerankDocument], Field(min_length=1), FailFast()] = Field(
        description="The responses to choose from: texts, or objects with a `text`."
    )
    model: ScorerName | None = Field(
        default=None, description="Name of the scorer to ask. When left out, those that a ranking asks by default."
    )
    top_n: Annotated[int, Field(ge=1)] | None = Field(default=None, description="How many are returned; else all.")
    return_documents: bool | None = Field(default=None, description="Whether results carry their texts; else not.")
    deadline_ms: Annotated[int, Field(ge=1, le=MAX_DEADLINE_MS)] | None = Field(
        default=None, description="Milliseconds after which the answer is worthless to the caller."
    )
    max_chunks_per_doc: _Ignored = None
    max_tokens_per_doc: _Ignored = None
    priority: _Ignored = None
    truncation: _Ignored = None


class RerankResult(BaseModel):
    index: int = Field(description="The document's place in the request, from 0.")
    relevance_score: float = Field(description="A hundredth of the ranking's `combined`: 0 to 1.")
    document: RerankDocument | None = None


class RerankTokens(BaseModel):
    input_tokens: int


class RerankMeta(BaseModel):
    tokens: RerankTokens
    warnings: list[str] = Field(description="Says of each document that could not be scored why; it has no result.")


class RerankUsage(BaseModel):
    total_tokens: int


class RerankReply(BaseModel):
    """The documents, best first; equals keep their order. `meta` is as Cohere's clients read it, `usage` as Jina's."""

    id: str = Field(description="The request's id.")
    model: str = Field(description="The bundles that answered, as `name:version`, joined by `+`.")
    results: list[RerankResult]
    meta: RerankMeta
    usage: RerankUsage


async def rerank(pipeline: ScoringPipeline, request: RerankRequest, request_id: str, deadline: Deadline) -> RerankReply:
    """Puts several responses to one turn of the user in order, as the clients of rerankers ask.

    Raises as `rank` does, with this request's fields.
    """
    texts = [each if isinstance(each, str) else each.text for each in request.documents]
    ranking = RankRequest(
        context=[Turn(speaker="user", text=request.query)],
        candidates=texts,
        scorers=None if request.model is None else [request.model],
    )
    try:
        ranked = await pipeline.rank(ranking, request_id, deadline)
    except ScoringError as error:
        if error.field is None:
            raise
        field, _, place = error.field.partition(".")
        named = f"documents.{place}" if field == "candidates" and place else _FIELDS.get(field, field)
        raise type(error)(error.message, field=named, retry_after_ms=error.retry_after_ms) from None
    results, warnings = [], []
    for each in ranked.candidates:
        if each.combined is None:
            codes = ", ".join(sorted({error.code for error in each.errors.values()}))
            warnings.append(f"documents.{each.index} could not be scored: {codes}")
        else:
            document = RerankDocument(text=texts[each.index]) if request.return_documents else None
            results.append(RerankResult(index=each.index, relevance_score=each.combined / 100, document=document))
    tokens = sum(score.tokens.used for each in ranked.candidates for score in each.scores.values())
    return RerankReply(
        id=request_id,
        model="+".join(score.model for score in ranked.candidates[0].scores.values()),
        results=results[: request.top_n],
        meta=RerankMeta(tokens=RerankTokens(input_tokens=tokens), warnings=warnings),
        usage=RerankUsage(total_tokens=tokens),
    )


RERANK = ServiceCall("Rank responses as a reranker", RerankRequest, RerankReply, rerank)
