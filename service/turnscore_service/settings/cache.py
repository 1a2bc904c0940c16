"""Settings of the score cache. A part of service.py; reads nothing by itself."""

import hashlib
from dataclasses import replace
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
)
from pydantic_core import PydanticCustomError
from turnscore_wire import CacheNamespace

from turnscore_service.settings.redis_address import RedisAddress, read_address


class CacheSettings(BaseModel):
    """What is remembered, for how long, and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: SecretStr | None = Field(
        default=None,
        description="The Redis that all processes share: `redis://`, `rediss://`, `unix://`, `redis+sentinel://` or "
        "`redis+cluster://` (docs/cache.md). In-process only when empty.",
    )
    username: str | None = Field(default=None, description="User of the Redis, before one in the URL.")
    password: SecretStr | None = Field(default=None, description="Password of the Redis, before one in the URL.")
    sentinel_username: str | None = Field(default=None, description="User of the Sentinels themselves.")
    sentinel_password: SecretStr | None = Field(default=None, description="Password of the Sentinels themselves.")
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

    timeout_ms: PositiveInt = Field(
        default=50,
        description="Milliseconds for one round trip to the Redis, connecting included; no retries. Chosen: the most "
        "that a sick Redis may cost a request.",
    )
    connections: PositiveInt = Field(
        default=2,
        description="Lookups on their way to the Redis at once, for each worker; what comes meanwhile goes together. "
        "Writes, probes and looking for cleared models use up to three more. Chosen.",
    )
    max_pending_writes: PositiveInt = Field(
        default=10_000,
        description="Scores waiting to be written to the Redis, for each worker; more are dropped. Chosen.",
    )
    write_delay_ms: NonNegativeInt = Field(
        default=10, description="How long a write waits for others to go with it. Chosen."
    )
    breaker_failures: PositiveInt = Field(
        default=5, description="Failures among the last round trips after which the Redis is left alone. Chosen."
    )
    breaker_window: PositiveInt = Field(default=20, description="How many round trips those are. Chosen.")
    breaker_probe_seconds: PositiveFloat = Field(
        default=1.0,
        description="Seconds until a Redis that was left alone is tried again, in the background; doubled while it "
        "keeps failing. Chosen.",
    )
    breaker_max_probe_seconds: PositiveFloat = Field(default=15.0, description="The most of that. Chosen.")
    clear_poll_seconds: PositiveFloat = Field(
        default=5.0,
        description="How often a worker asks the Redis whether `turnscore-cache clear` was run for one of its models. "
        "Alike for all that share one. Chosen.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr | None) -> SecretStr | None:
        try:
            return SecretStr(url.get_secret_value()) if url and read_address(url.get_secret_value()) else None
        except ValueError as error:
            raise PydanticCustomError("redis_address", "{reason}", {"reason": str(error)}) from None

    def address(self) -> RedisAddress | None:
        """Where the Redis is, with user and password; None without one."""
        if self.url is None:
            return None
        address = read_address(self.url.get_secret_value())
        password = self.password.get_secret_value() if self.password else address.password
        return replace(address, username=self.username or address.username, password=password)

    def secret_bytes(self) -> bytes:
        """32 bytes made of the secret; none without one."""
        return hashlib.sha256(self.secret.get_secret_value().encode()).digest() if self.secret else b""

    def ttl_of(self, scorer: str) -> int:
        """Seconds for which that scorer's scores are kept; 0 for not at all."""
        return self.scorer_ttl_seconds.get(scorer, self.ttl_seconds)
