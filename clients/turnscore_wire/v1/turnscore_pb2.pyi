from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Speaker(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPEAKER_UNSPECIFIED: _ClassVar[Speaker]
    SPEAKER_USER: _ClassVar[Speaker]
    SPEAKER_SYSTEM: _ClassVar[Speaker]

class ErrorCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_CODE_UNSPECIFIED: _ClassVar[ErrorCode]
    ERROR_CODE_INVALID_REQUEST: _ClassVar[ErrorCode]
    ERROR_CODE_UNAUTHENTICATED: _ClassVar[ErrorCode]
    ERROR_CODE_NOT_FOUND: _ClassVar[ErrorCode]
    ERROR_CODE_TOO_LARGE: _ClassVar[ErrorCode]
    ERROR_CODE_OVERLOADED: _ClassVar[ErrorCode]
    ERROR_CODE_INTERNAL: _ClassVar[ErrorCode]
    ERROR_CODE_NOT_READY: _ClassVar[ErrorCode]
    ERROR_CODE_DEADLINE_EXCEEDED: _ClassVar[ErrorCode]

class CacheMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_MODE_UNSPECIFIED: _ClassVar[CacheMode]
    CACHE_MODE_USE: _ClassVar[CacheMode]
    CACHE_MODE_BYPASS: _ClassVar[CacheMode]
    CACHE_MODE_REFRESH: _ClassVar[CacheMode]

class Label(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LABEL_UNSPECIFIED: _ClassVar[Label]
    LABEL_LOW: _ClassVar[Label]
    LABEL_FAIR: _ClassVar[Label]
    LABEL_GOOD: _ClassVar[Label]

class MessageRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_ROLE_UNSPECIFIED: _ClassVar[MessageRole]
    MESSAGE_ROLE_USER: _ClassVar[MessageRole]
    MESSAGE_ROLE_ASSISTANT: _ClassVar[MessageRole]
    MESSAGE_ROLE_SYSTEM: _ClassVar[MessageRole]
    MESSAGE_ROLE_DEVELOPER: _ClassVar[MessageRole]
    MESSAGE_ROLE_TOOL: _ClassVar[MessageRole]
    MESSAGE_ROLE_FUNCTION: _ClassVar[MessageRole]
SPEAKER_UNSPECIFIED: Speaker
SPEAKER_USER: Speaker
SPEAKER_SYSTEM: Speaker
ERROR_CODE_UNSPECIFIED: ErrorCode
ERROR_CODE_INVALID_REQUEST: ErrorCode
ERROR_CODE_UNAUTHENTICATED: ErrorCode
ERROR_CODE_NOT_FOUND: ErrorCode
ERROR_CODE_TOO_LARGE: ErrorCode
ERROR_CODE_OVERLOADED: ErrorCode
ERROR_CODE_INTERNAL: ErrorCode
ERROR_CODE_NOT_READY: ErrorCode
ERROR_CODE_DEADLINE_EXCEEDED: ErrorCode
CACHE_MODE_UNSPECIFIED: CacheMode
CACHE_MODE_USE: CacheMode
CACHE_MODE_BYPASS: CacheMode
CACHE_MODE_REFRESH: CacheMode
LABEL_UNSPECIFIED: Label
LABEL_LOW: Label
LABEL_FAIR: Label
LABEL_GOOD: Label
MESSAGE_ROLE_UNSPECIFIED: MessageRole
MESSAGE_ROLE_USER: MessageRole
MESSAGE_ROLE_ASSISTANT: MessageRole
MESSAGE_ROLE_SYSTEM: MessageRole
MESSAGE_ROLE_DEVELOPER: MessageRole
MESSAGE_ROLE_TOOL: MessageRole
MESSAGE_ROLE_FUNCTION: MessageRole

class Turn(_message.Message):
    __slots__ = ("speaker", "text")
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    speaker: Speaker
    text: str
    def __init__(self, speaker: _Optional[_Union[Speaker, str]] = ..., text: _Optional[str] = ...) -> None: ...

class MessagePart(_message.Message):
    __slots__ = ("type", "text")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    type: str
    text: str
    def __init__(self, type: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ChatMessage(_message.Message):
    __slots__ = ("role", "content", "parts", "calls_tools")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    CALLS_TOOLS_FIELD_NUMBER: _ClassVar[int]
    role: MessageRole
    content: str
    parts: _containers.RepeatedCompositeFieldContainer[MessagePart]
    calls_tools: bool
    def __init__(self, role: _Optional[_Union[MessageRole, str]] = ..., content: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[MessagePart, _Mapping]]] = ..., calls_tools: _Optional[bool] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ("scorers", "options", "deadline_ms", "context", "response", "cache", "cache_namespace", "messages", "conversation", "speaker")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Struct
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    SCORERS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    scorers: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.MessageMap[str, _struct_pb2.Struct]
    deadline_ms: int
    context: _containers.RepeatedCompositeFieldContainer[Turn]
    response: str
    cache: CacheMode
    cache_namespace: str
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    conversation: str
    speaker: Speaker
    def __init__(self, scorers: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, _struct_pb2.Struct]] = ..., deadline_ms: _Optional[int] = ..., context: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., response: _Optional[str] = ..., cache: _Optional[_Union[CacheMode, str]] = ..., cache_namespace: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., conversation: _Optional[str] = ..., speaker: _Optional[_Union[Speaker, str]] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ScoreRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[ScoreRequest, _Mapping]]] = ...) -> None: ...

class DialogueRequest(_message.Message):
    __slots__ = ("scorers", "options", "deadline_ms", "turns", "cache", "cache_namespace", "messages", "conversation")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Struct
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    SCORERS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    scorers: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.MessageMap[str, _struct_pb2.Struct]
    deadline_ms: int
    turns: _containers.RepeatedCompositeFieldContainer[Turn]
    cache: CacheMode
    cache_namespace: str
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    conversation: str
    def __init__(self, scorers: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, _struct_pb2.Struct]] = ..., deadline_ms: _Optional[int] = ..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., cache: _Optional[_Union[CacheMode, str]] = ..., cache_namespace: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., conversation: _Optional[str] = ...) -> None: ...

class RankRequest(_message.Message):
    __slots__ = ("scorers", "options", "deadline_ms", "context", "candidates", "weights", "cache", "cache_namespace", "messages", "conversation")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Struct
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    SCORERS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    scorers: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.MessageMap[str, _struct_pb2.Struct]
    deadline_ms: int
    context: _containers.RepeatedCompositeFieldContainer[Turn]
    candidates: _containers.RepeatedScalarFieldContainer[str]
    weights: _containers.ScalarMap[str, float]
    cache: CacheMode
    cache_namespace: str
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    conversation: str
    def __init__(self, scorers: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, _struct_pb2.Struct]] = ..., deadline_ms: _Optional[int] = ..., context: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., candidates: _Optional[_Iterable[str]] = ..., weights: _Optional[_Mapping[str, float]] = ..., cache: _Optional[_Union[CacheMode, str]] = ..., cache_namespace: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., conversation: _Optional[str] = ...) -> None: ...

class SimilarityRequest(_message.Message):
    __slots__ = ("texts", "references", "deadline_ms", "cache", "cache_namespace")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    references: _containers.RepeatedScalarFieldContainer[str]
    deadline_ms: int
    cache: CacheMode
    cache_namespace: str
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., references: _Optional[_Iterable[str]] = ..., deadline_ms: _Optional[int] = ..., cache: _Optional[_Union[CacheMode, str]] = ..., cache_namespace: _Optional[str] = ...) -> None: ...

class ModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TokenCount(_message.Message):
    __slots__ = ("used", "dropped", "truncated")
    USED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    used: int
    dropped: int
    truncated: bool
    def __init__(self, used: _Optional[int] = ..., dropped: _Optional[int] = ..., truncated: _Optional[bool] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("value", "percentile", "details", "model", "tokens", "cached", "warnings", "label", "stand_in", "reasons", "signals")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VALUE_FIELD_NUMBER: _ClassVar[int]
    PERCENTILE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    STAND_IN_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    value: float
    percentile: float
    details: _containers.ScalarMap[str, float]
    model: str
    tokens: TokenCount
    cached: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    label: Label
    stand_in: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    signals: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, value: _Optional[float] = ..., percentile: _Optional[float] = ..., details: _Optional[_Mapping[str, float]] = ..., model: _Optional[str] = ..., tokens: _Optional[_Union[TokenCount, _Mapping]] = ..., cached: _Optional[bool] = ..., warnings: _Optional[_Iterable[str]] = ..., label: _Optional[_Union[Label, str]] = ..., stand_in: _Optional[bool] = ..., reasons: _Optional[_Iterable[str]] = ..., signals: _Optional[_Iterable[str]] = ...) -> None: ...

class Timing(_message.Message):
    __slots__ = ("total", "tokenize", "queue", "inference", "cache")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    total: float
    tokenize: float
    queue: float
    inference: float
    cache: float
    def __init__(self, total: _Optional[float] = ..., tokenize: _Optional[float] = ..., queue: _Optional[float] = ..., inference: _Optional[float] = ..., cache: _Optional[float] = ...) -> None: ...

class ScoreReply(_message.Message):
    __slots__ = ("request_id", "scores", "errors", "timing_ms", "index", "skipped")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Score
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Score, _Mapping]] = ...) -> None: ...
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ErrorDetail
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    TIMING_MS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    scores: _containers.MessageMap[str, Score]
    errors: _containers.MessageMap[str, ErrorDetail]
    timing_ms: Timing
    index: int
    skipped: int
    def __init__(self, request_id: _Optional[str] = ..., scores: _Optional[_Mapping[str, Score]] = ..., errors: _Optional[_Mapping[str, ErrorDetail]] = ..., timing_ms: _Optional[_Union[Timing, _Mapping]] = ..., index: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class BatchReply(_message.Message):
    __slots__ = ("request_id", "results")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    results: _containers.RepeatedCompositeFieldContainer[BatchResult]
    def __init__(self, request_id: _Optional[str] = ..., results: _Optional[_Iterable[_Union[BatchResult, _Mapping]]] = ...) -> None: ...

class BatchResult(_message.Message):
    __slots__ = ("score_reply", "error_reply")
    SCORE_REPLY_FIELD_NUMBER: _ClassVar[int]
    ERROR_REPLY_FIELD_NUMBER: _ClassVar[int]
    score_reply: ScoreReply
    error_reply: ErrorReply
    def __init__(self, score_reply: _Optional[_Union[ScoreReply, _Mapping]] = ..., error_reply: _Optional[_Union[ErrorReply, _Mapping]] = ...) -> None: ...

class DialogueTurnScores(_message.Message):
    __slots__ = ("index", "scores", "errors")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Score
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Score, _Mapping]] = ...) -> None: ...
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ErrorDetail
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    index: int
    scores: _containers.MessageMap[str, Score]
    errors: _containers.MessageMap[str, ErrorDetail]
    def __init__(self, index: _Optional[int] = ..., scores: _Optional[_Mapping[str, Score]] = ..., errors: _Optional[_Mapping[str, ErrorDetail]] = ...) -> None: ...

class DialogueAggregate(_message.Message):
    __slots__ = ("mean", "min", "max", "turns", "percentile_mean", "percentile_min", "percentile_max")
    MEAN_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    PERCENTILE_MEAN_FIELD_NUMBER: _ClassVar[int]
    PERCENTILE_MIN_FIELD_NUMBER: _ClassVar[int]
    PERCENTILE_MAX_FIELD_NUMBER: _ClassVar[int]
    mean: float
    min: float
    max: float
    turns: int
    percentile_mean: float
    percentile_min: float
    percentile_max: float
    def __init__(self, mean: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., turns: _Optional[int] = ..., percentile_mean: _Optional[float] = ..., percentile_min: _Optional[float] = ..., percentile_max: _Optional[float] = ...) -> None: ...

class DialogueReply(_message.Message):
    __slots__ = ("request_id", "turns", "dialogue", "timing_ms", "skipped")
    class DialogueEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DialogueAggregate
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DialogueAggregate, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    DIALOGUE_FIELD_NUMBER: _ClassVar[int]
    TIMING_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    turns: _containers.RepeatedCompositeFieldContainer[DialogueTurnScores]
    dialogue: _containers.MessageMap[str, DialogueAggregate]
    timing_ms: Timing
    skipped: int
    def __init__(self, request_id: _Optional[str] = ..., turns: _Optional[_Iterable[_Union[DialogueTurnScores, _Mapping]]] = ..., dialogue: _Optional[_Mapping[str, DialogueAggregate]] = ..., timing_ms: _Optional[_Union[Timing, _Mapping]] = ..., skipped: _Optional[int] = ...) -> None: ...

class RankedCandidate(_message.Message):
    __slots__ = ("index", "combined", "scores", "errors")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Score
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Score, _Mapping]] = ...) -> None: ...
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ErrorDetail
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COMBINED_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    index: int
    combined: float
    scores: _containers.MessageMap[str, Score]
    errors: _containers.MessageMap[str, ErrorDetail]
    def __init__(self, index: _Optional[int] = ..., combined: _Optional[float] = ..., scores: _Optional[_Mapping[str, Score]] = ..., errors: _Optional[_Mapping[str, ErrorDetail]] = ...) -> None: ...

class RankReply(_message.Message):
    __slots__ = ("request_id", "candidates", "weights", "timing_ms", "skipped")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    TIMING_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    candidates: _containers.RepeatedCompositeFieldContainer[RankedCandidate]
    weights: _containers.ScalarMap[str, float]
    timing_ms: Timing
    skipped: int
    def __init__(self, request_id: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[RankedCandidate, _Mapping]]] = ..., weights: _Optional[_Mapping[str, float]] = ..., timing_ms: _Optional[_Union[Timing, _Mapping]] = ..., skipped: _Optional[int] = ...) -> None: ...

class EncodedText(_message.Message):
    __slots__ = ("tokens", "cached")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    tokens: TokenCount
    cached: bool
    def __init__(self, tokens: _Optional[_Union[TokenCount, _Mapping]] = ..., cached: _Optional[bool] = ...) -> None: ...

class TextSimilarities(_message.Message):
    __slots__ = ("similarities", "best", "tokens", "cached")
    SIMILARITIES_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    similarities: _containers.RepeatedScalarFieldContainer[float]
    best: int
    tokens: TokenCount
    cached: bool
    def __init__(self, similarities: _Optional[_Iterable[float]] = ..., best: _Optional[int] = ..., tokens: _Optional[_Union[TokenCount, _Mapping]] = ..., cached: _Optional[bool] = ...) -> None: ...

class SimilarityReply(_message.Message):
    __slots__ = ("request_id", "texts", "references", "model", "digest", "timing_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIMING_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    texts: _containers.RepeatedCompositeFieldContainer[TextSimilarities]
    references: _containers.RepeatedCompositeFieldContainer[EncodedText]
    model: str
    digest: str
    timing_ms: Timing
    def __init__(self, request_id: _Optional[str] = ..., texts: _Optional[_Iterable[_Union[TextSimilarities, _Mapping]]] = ..., references: _Optional[_Iterable[_Union[EncodedText, _Mapping]]] = ..., model: _Optional[str] = ..., digest: _Optional[str] = ..., timing_ms: _Optional[_Union[Timing, _Mapping]] = ...) -> None: ...

class ModelDescription(_message.Message):
    __slots__ = ("scorer", "model", "digest", "graph", "max_text_tokens", "option_limits", "is_default", "stand_in", "threshold", "threshold_percentile", "good_threshold", "speaker", "max_turn_tokens")
    class OptionLimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SCORER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OPTION_LIMITS_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    STAND_IN_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PERCENTILE_FIELD_NUMBER: _ClassVar[int]
    GOOD_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    MAX_TURN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    scorer: str
    model: str
    digest: str
    graph: str
    max_text_tokens: int
    option_limits: _containers.ScalarMap[str, int]
    is_default: bool
    stand_in: bool
    threshold: float
    threshold_percentile: float
    good_threshold: float
    speaker: Speaker
    max_turn_tokens: int
    def __init__(self, scorer: _Optional[str] = ..., model: _Optional[str] = ..., digest: _Optional[str] = ..., graph: _Optional[str] = ..., max_text_tokens: _Optional[int] = ..., option_limits: _Optional[_Mapping[str, int]] = ..., is_default: _Optional[bool] = ..., stand_in: _Optional[bool] = ..., threshold: _Optional[float] = ..., threshold_percentile: _Optional[float] = ..., good_threshold: _Optional[float] = ..., speaker: _Optional[_Union[Speaker, str]] = ..., max_turn_tokens: _Optional[int] = ...) -> None: ...

class VersionDescription(_message.Message):
    __slots__ = ("scorer", "model", "digest", "graph", "role", "share")
    SCORER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRAPH_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    scorer: str
    model: str
    digest: str
    graph: str
    role: str
    share: float
    def __init__(self, scorer: _Optional[str] = ..., model: _Optional[str] = ..., digest: _Optional[str] = ..., graph: _Optional[str] = ..., role: _Optional[str] = ..., share: _Optional[float] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_text_chars", "max_turns", "max_items", "max_candidates", "max_body_bytes")
    MAX_TEXT_CHARS_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    MAX_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_text_chars: int
    max_turns: int
    max_items: int
    max_candidates: int
    max_body_bytes: int
    def __init__(self, max_text_chars: _Optional[int] = ..., max_turns: _Optional[int] = ..., max_items: _Optional[int] = ..., max_candidates: _Optional[int] = ..., max_body_bytes: _Optional[int] = ...) -> None: ...

class ModelsReply(_message.Message):
    __slots__ = ("request_id", "models", "limits", "candidates")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    models: _containers.RepeatedCompositeFieldContainer[ModelDescription]
    limits: Limits
    candidates: _containers.RepeatedCompositeFieldContainer[VersionDescription]
    def __init__(self, request_id: _Optional[str] = ..., models: _Optional[_Iterable[_Union[ModelDescription, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., candidates: _Optional[_Iterable[_Union[VersionDescription, _Mapping]]] = ...) -> None: ...

class ConversationMessage(_message.Message):
    __slots__ = ("open", "turn", "messages")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    open: ConversationOpening
    turn: ConversationTurn
    messages: ConversationMessages
    def __init__(self, open: _Optional[_Union[ConversationOpening, _Mapping]] = ..., turn: _Optional[_Union[ConversationTurn, _Mapping]] = ..., messages: _Optional[_Union[ConversationMessages, _Mapping]] = ...) -> None: ...

class ConversationOpening(_message.Message):
    __slots__ = ("scorers", "options", "deadline_ms", "context", "cache", "cache_namespace", "messages", "conversation")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _struct_pb2.Struct
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...
    SCORERS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CACHE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    scorers: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.MessageMap[str, _struct_pb2.Struct]
    deadline_ms: int
    context: _containers.RepeatedCompositeFieldContainer[Turn]
    cache: CacheMode
    cache_namespace: str
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    conversation: str
    def __init__(self, scorers: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, _struct_pb2.Struct]] = ..., deadline_ms: _Optional[int] = ..., context: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., cache: _Optional[_Union[CacheMode, str]] = ..., cache_namespace: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., conversation: _Optional[str] = ...) -> None: ...

class ConversationTurn(_message.Message):
    __slots__ = ("speaker", "text", "deadline_ms")
    SPEAKER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    speaker: Speaker
    text: str
    deadline_ms: int
    def __init__(self, speaker: _Optional[_Union[Speaker, str]] = ..., text: _Optional[str] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class ConversationMessages(_message.Message):
    __slots__ = ("messages", "deadline_ms")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ChatMessage]
    deadline_ms: int
    def __init__(self, messages: _Optional[_Iterable[_Union[ChatMessage, _Mapping]]] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class ConversationReply(_message.Message):
    __slots__ = ("opened", "ack", "scored", "error", "draining", "user_turn")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    USER_TURN_FIELD_NUMBER: _ClassVar[int]
    opened: ConversationOpened
    ack: ConversationAck
    scored: ConversationScored
    error: ErrorDetail
    draining: ConversationDraining
    user_turn: ConversationScored
    def __init__(self, opened: _Optional[_Union[ConversationOpened, _Mapping]] = ..., ack: _Optional[_Union[ConversationAck, _Mapping]] = ..., scored: _Optional[_Union[ConversationScored, _Mapping]] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., draining: _Optional[_Union[ConversationDraining, _Mapping]] = ..., user_turn: _Optional[_Union[ConversationScored, _Mapping]] = ...) -> None: ...

class ConversationOpened(_message.Message):
    __slots__ = ("request_id", "scorers", "turns")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCORERS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    scorers: _containers.RepeatedScalarFieldContainer[str]
    turns: int
    def __init__(self, request_id: _Optional[str] = ..., scorers: _Optional[_Iterable[str]] = ..., turns: _Optional[int] = ...) -> None: ...

class ConversationAck(_message.Message):
    __slots__ = ("index", "skipped")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    index: int
    skipped: int
    def __init__(self, index: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class ConversationScored(_message.Message):
    __slots__ = ("index", "scores", "errors", "dialogue", "timing_ms", "skipped")
    class ScoresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Score
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Score, _Mapping]] = ...) -> None: ...
    class ErrorsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ErrorDetail
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...
    class DialogueEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DialogueAggregate
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DialogueAggregate, _Mapping]] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    DIALOGUE_FIELD_NUMBER: _ClassVar[int]
    TIMING_MS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    index: int
    scores: _containers.MessageMap[str, Score]
    errors: _containers.MessageMap[str, ErrorDetail]
    dialogue: _containers.MessageMap[str, DialogueAggregate]
    timing_ms: Timing
    skipped: int
    def __init__(self, index: _Optional[int] = ..., scores: _Optional[_Mapping[str, Score]] = ..., errors: _Optional[_Mapping[str, ErrorDetail]] = ..., dialogue: _Optional[_Mapping[str, DialogueAggregate]] = ..., timing_ms: _Optional[_Union[Timing, _Mapping]] = ..., skipped: _Optional[int] = ...) -> None: ...

class ConversationDraining(_message.Message):
    __slots__ = ("ends_in_ms",)
    ENDS_IN_MS_FIELD_NUMBER: _ClassVar[int]
    ends_in_ms: int
    def __init__(self, ends_in_ms: _Optional[int] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "field", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: ErrorCode
    message: str
    field: str
    retry_after_ms: int
    def __init__(self, code: _Optional[_Union[ErrorCode, str]] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ErrorReply(_message.Message):
    __slots__ = ("error", "request_id")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    error: ErrorDetail
    request_id: str
    def __init__(self, error: _Optional[_Union[ErrorDetail, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...
