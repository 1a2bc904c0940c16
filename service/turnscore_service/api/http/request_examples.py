"""Examples: one request of each call, as `/docs` offers it to be sent.

They name no scorer: any service answers, and where an encoder is loaded it compares texts.
"""

from typing import Any

from pydantic import BaseModel
from turnscore_wire import BatchRequest, DialogueRequest, RankRequest, ScoreRequest, SimilarityRequest

_QUESTION = {"speaker": "user", "text": "hi, what did you do today?"}
_VIVID = "i hiked up a volcano and nearly lost my hat. ever been on one?"

EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    ScoreRequest: {"context": [_QUESTION], "response": _VIVID},
    BatchRequest: {"items": [{"context": [_QUESTION], "response": text} for text in (_VIVID, "ok.")]},
    DialogueRequest: {
        "turns": [
            _QUESTION,
            {"speaker": "system", "text": _VIVID},
            {"speaker": "user", "text": "no, is that not dangerous?"},
            {"speaker": "system", "text": "not this one, it sleeps. would you like to see some pictures?"},
        ]
    },
    SimilarityRequest: {"texts": ["not much.", _VIVID], "references": ["i went up a mountain.", "nothing."]},
    RankRequest: {"context": [_QUESTION], "candidates": ["ok.", _VIVID, "not much."]},
}
