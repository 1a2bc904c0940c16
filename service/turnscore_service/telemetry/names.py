"""Names: every span attribute and event attribute there is, with the version of the convention that it is from.

No attribute holds text of a dialogue, an address or a key.
"""

from typing import Final

SPAN_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
"""OpenTelemetry's semantic conventions 1.44.0: `http.*` and `error.type` are stable, `rpc.*` in development."""

EVENT_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""Its conventions for generative AI (open-telemetry/semantic-conventions-genai). All are in development and had no
release by October 2026, so the names stand here and not in a library."""

HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
RPC_SYSTEM: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_STATUS: Final = "rpc.response.status_code"
ERROR_TYPE: Final = "error.type"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_VALUE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

CALL: Final = "turnscore.call"
REQUEST_ID: Final = "turnscore.request_id"
TURNS: Final = "turnscore.turns"
"""Turns of the chatbot that were scored."""
CACHED: Final = "turnscore.cached_scores"
"""Scores that came from the cache."""
TOKENIZE: Final = "turnscore.tokenize.duration"
QUEUE: Final = "turnscore.queue.duration"
INFERENCE: Final = "turnscore.inference.duration"
CACHE: Final = "turnscore.cache.duration"
"""In seconds; of several turns, that of the slowest."""

MODEL: Final = "turnscore.model"
"""The evaluator, for which the convention has no name yet (its issue 359)."""
PERCENTILE: Final = "turnscore.percentile"
STAND_IN: Final = "turnscore.stand_in"
TURN_INDEX: Final = "turnscore.turn_index"
ITEM_INDEX: Final = "turnscore.item_index"
CANDIDATE_INDEX: Final = "turnscore.candidate_index"
"""Of a ranking, whose candidates were not all said."""
