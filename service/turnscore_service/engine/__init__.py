"""The engine: scores many dialogues in the caller's own process. No door, no event loop, no admission, no deadline."""

from turnscore_service.engine.core import Engine, OptionsError
from turnscore_service.engine.dialogues import Dialogue, DialogueResult, ModelIdentity, TurnResult
from turnscore_service.engine.redis_scores import RedisScores
from turnscore_service.engine.shared_scores import SharedScores

__all__ = [
    "Dialogue",
    "DialogueResult",
    "Engine",
    "ModelIdentity",
    "OptionsError",
    "RedisScores",
    "SharedScores",
    "TurnResult",
]
