"""Settings of the score cache. Read from the environment by turnscore_service.settings, under TURNSCORE_CACHE__."""

import hashlib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, SecretStr
from turnscore_wire import CacheNamespace


class CacheSettings(BaseModel):
    """What is remembered, for how long, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: CacheNamespace = Field(
        default="default", description="Scores are found only by requests of the namespace that they were kept in."
    )
    secret: SecretStr | None = Field(
        default=None,
        description="Keys are hashed with it, so that nobody who reads the cache can test a guess at a text, and "
        "entries are sealed with it, so that nobody who writes to it can forge a score. Alike for all that share one.",
    )
    ttl_seconds: NonNegativeInt = Field(
        default=86_400, description="How long a score is kept; 0 keeps none. Chosen: a day."
    )
    scorer_ttl_seconds: dict[str, NonNegativeInt] = Field(
        default_factory=dict, description='The same for single scorers, as JSON: `{"fed": 3600, "engagement": 0}`.'
    )
    ttl_jitter: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="Share by which each score's end is drawn earlier, so that not all end together."
    )
    local_max_bytes: NonNegativeInt = Field(
        default=32 * 1024 * 1024,
        description="Memory of the level in the process, for each worker; 0 turns it off. Chosen: some 50,000 turns "
        "of engagement, 28,000 of FED on all qualities.",
    )
    local_ttl_seconds: PositiveInt = Field(
        default=600, description="How long the level in the process keeps a score at most. Chosen."
    )

    def secret_bytes(self) -> bytes:
        """32 bytes made of the secret; none without one."""
        return hashlib.sha256(self.secret.get_secret_value().encode()).digest() if self.secret else b""

    def ttl_of(self, scorer: str) -> int:
        """Seconds for which that scorer's scores are kept; 0 for not at all."""
        return self.scorer_ttl_seconds.get(scorer, self.ttl_seconds)
