"""Shapes: the models that are measured, how much of each, and the arithmetic that a row of tokens needs. Pure."""

from dataclasses import dataclass

MEASURED_QUALITIES = (8, 18)
"""FED's eight for turns, and all of its eighteen."""
CONTEXT_TOKENS = 100


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A transformer's. The MLP is four times as wide as the states."""

    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int

    def row_operations(self, tokens: int) -> int:
        """Floating point operations of the layers for a row: matmuls alone, a multiplication and an addition each."""
        return 2 * self.layers * (12 * self.width**2 * tokens + 2 * self.width * tokens**2)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is measured."""

    encoder: Shape
    language_models: tuple[Shape, ...]
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    runs: int
    """Timed runs of each batch."""
    rounds: int
    """Times that FED's ways take turns."""
    matmul: int
    """Rows and columns of the matrices that find the device's peak."""
    clients: tuple[int, ...]
    turn_tokens: tuple[int, ...]
    """Tokens of a served turn, both rows together."""
    turns_per_request: tuple[int, ...]
    requests_per_client: int
    most_turns: int
    """Of one measurement, unless the clients are more."""
    fed_turns: int
    """The same of FED, whose turns take longer."""
    requests_per_second: float
    """Of FED, arriving at random."""
    paced_seconds: float


# Specified: BERT-base (Devlin et al. 2019); DialoGPT's three sizes are GPT-2's (Zhang et al. 2020).
FULL = Scale(
    encoder=Shape(name="bert-base", layers=12, width=768, heads=12, vocabulary=30_522, positions=512),
    language_models=(
        Shape(name="dialogpt-small", layers=12, width=768, heads=12, vocabulary=50_257, positions=1024),
        Shape(name="dialogpt-medium", layers=24, width=1024, heads=16, vocabulary=50_257, positions=1024),
        Shape(name="dialogpt-large", layers=36, width=1280, heads=20, vocabulary=50_257, positions=1024),
    ),
    batches=(1, 4, 16, 64, 256),
    lengths=(16, 32, 64, 128),
    runs=50,
    rounds=20,
    matmul=8192,
    clients=(1, 8, 32, 128, 512),
    turn_tokens=(32, 64),
    turns_per_request=(1, 16, 64),
    requests_per_client=30,
    most_turns=64_000,
    fed_turns=1500,
    requests_per_second=50,
    paced_seconds=30,
)
TINY = Scale(
    encoder=Shape(name="tiny-bert", layers=2, width=64, heads=2, vocabulary=3000, positions=128),
    language_models=(Shape(name="tiny-dialogpt", layers=2, width=64, heads=2, vocabulary=3000, positions=256),),
    batches=(1, 4),
    lengths=(8, 32),
    runs=3,
    rounds=1,
    matmul=256,
    clients=(4,),
    turn_tokens=(32,),
    turns_per_request=(1, 16),
    requests_per_client=4,
    most_turns=128,
    fed_turns=8,
    requests_per_second=20,
    paced_seconds=1.5,
)
