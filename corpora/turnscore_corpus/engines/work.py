"""Work: the blocks left, and how each worker makes the engine that scores them. Does nothing by itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from turnscore_core.engine import Engine, SharedScores

from turnscore_corpus.blocks import BlockSummary, TurnEngine
from turnscore_corpus.engines.bundles import choose_bundles
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.output_folder import OutputFolder

NAMESPACE = "corpus"
"""Namespace of scores in a Redis, apart from a service's."""
OnBlock = Callable[[BlockSummary], object]


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """How a worker makes its engine. Can be pickled."""

    models: tuple[str, ...] | None = None
    """Bundles, as TURNSCORE_MODELS takes them; each worker must be able to read them. None: the starter bundles."""
    scorers: tuple[str, ...] | None = None
    """The scorers asked for; None: all but stand-ins."""
    options: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    threads: int = 1
    lanes: int = 1
    device: str = "cpu"
    max_batch_tokens: int | None = None
    redis: str | None = field(default=None, repr=False)
    """The address of a Redis in which workers share known scores."""
    namespace: str = NAMESPACE

    def open(self) -> TurnEngine:
        """Loads the models. Raises BundleError, DeviceError, OptionsError."""
        engine: TurnEngine = Engine(
            choose_bundles(self.models, self.scorers),
            threads=self.threads,
            lanes=self.lanes,
            device=self.device,
            options=self.options,
            max_batch_tokens=self.max_batch_tokens,
            shared=None if self.redis is None else _open_redis(self.redis),
            namespace=self.namespace,
        )
        return engine


def _open_redis(address: str) -> SharedScores:
    from turnscore_service.cache.redis_scores import RedisScores

    return RedisScores(address)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The rest of a run."""

    blocks: Sequence[Block]
    open_engine: Callable[[], TurnEngine]
    """Each worker calls it once, in its process."""
    output: OutputFolder
    on_block: OnBlock
    """The run calls it, in its own process, as each block is committed."""
