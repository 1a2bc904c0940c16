"""turnscore_client: scores dialogue turns through a running turnscore service. Thin; loads no model."""

from turnscore_wire import (
    BatchReply,
    ChatMessage,
    ConversationScored,
    DialogueReply,
    ErrorCode,
    ErrorDetail,
    ErrorReply,
    MappedMessages,
    ModelsReply,
    RankedCandidate,
    RankReply,
    Score,
    ScoreReply,
    ScoreRequest,
    SimilarityReply,
    TextSimilarities,
    Turn,
)

from turnscore_client._async.client import AsyncTurnScoreClient
from turnscore_client._async.conversation import AsyncConversation
from turnscore_client._async.grpc_client import AsyncTurnScoreGrpcClient
from turnscore_client._background import BackgroundScorer, Scored
from turnscore_client._calls import read_messages
from turnscore_client._clock import Clock
from turnscore_client._errors import (
    ConnectionFailedError,
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    ServiceError,
    TooLargeError,
    TurnScoreError,
    UnauthenticatedError,
    UnexpectedReplyError,
    error_from_detail,
    error_from_reply,
)
from turnscore_client._options import (
    CallOptions,
    ItemLike,
    MessageLike,
    Options,
    ScoringOptions,
    SimilarityOptions,
    TurnLike,
    TurnOptions,
)
from turnscore_client._settings import __version__
from turnscore_client._sync.client import TurnScoreClient
from turnscore_client._sync.conversation import Conversation
from turnscore_client._sync.grpc_client import TurnScoreGrpcClient
from turnscore_client._tls import Tls

__all__ = [
    "AsyncConversation",
    "AsyncTurnScoreClient",
    "AsyncTurnScoreGrpcClient",
    "BackgroundScorer",
    "BatchReply",
    "CallOptions",
    "ChatMessage",
    "Clock",
    "ConnectionFailedError",
    "Conversation",
    "ConversationScored",
    "DeadlineExceededError",
    "DialogueReply",
    "ErrorCode",
    "ErrorDetail",
    "ErrorReply",
    "InternalError",
    "InvalidRequestError",
    "ItemLike",
    "MappedMessages",
    "MessageLike",
    "ModelsReply",
    "NotFoundError",
    "NotReadyError",
    "Options",
    "OverloadedError",
    "RankReply",
    "RankedCandidate",
    "Score",
    "ScoreReply",
    "ScoreRequest",
    "Scored",
    "ScoringOptions",
    "ServiceError",
    "SimilarityOptions",
    "SimilarityReply",
    "TextSimilarities",
    "Tls",
    "TooLargeError",
    "Turn",
    "TurnLike",
    "TurnOptions",
    "TurnScoreClient",
    "TurnScoreError",
    "TurnScoreGrpcClient",
    "UnauthenticatedError",
    "UnexpectedReplyError",
    "__version__",
    "error_from_detail",
    "error_from_reply",
    "read_messages",
]
