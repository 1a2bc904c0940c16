"""Shapes: the models that are measured, how much of each, and the arithmetic that a row of tokens needs. Pure."""

from dataclasses import dataclass

MEASURED_QUALITIES = (8, 18)
"""FED's eight for turns, and all of its eighteen."""
CONTEXT_TOKENS = 100


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
    turns_a_request: tuple[int, ...]
    requests_a_client: int
    most_turns: int
    """Of one measurement, unless the clients are more."""
    fed_turns: int
    """The same of FED, whose turns take longer."""
    requests_a_second: float
    """Of FED, arriving at random."""
    paced_seconds: float


# Specified: BERT-base (Devlin et al. 2019); DialoGPT's three sizes are GPT-2's (Zhang et al. 2020).
FULL = Scale(
    Shape("bert-base", 12, 768, 12, 30_522, 512),
    (
        Shape("dialogpt-small", 12, 768, 12, 50_257, 1024),
        Shape("dialogpt-medium", 24, 1024, 16, 50_257, 1024),
        Shape("dialogpt-large", 36, 1280, 20, 50_257, 1024),
    ),
    batches=(1, 4, 16, 64, 256),
    lengths=(16, 32, 64, 128),
    runs=50,
    rounds=20,
    matmul=8192,
    clients=(1, 8, 32, 128, 512),
    turn_tokens=(32, 64),
    turns_a_request=(1, 16, 64),
    requests_a_client=30,
    most_turns=64_000,
    fed_turns=1500,
    requests_a_second=50,
    paced_seconds=30,
)
TINY = Scale(
    Shape("tiny-bert", 2, 64, 2, 3000, 128),
    (Shape("tiny-dialogpt", 2, 64, 2, 3000, 256),),
    batches=(1, 4),
    lengths=(8, 32),
    runs=3,
    rounds=1,
    matmul=256,
    clients=(1, 4),
    turn_tokens=(32,),
    turns_a_request=(1, 16),
    requests_a_client=4,
    most_turns=128,
    fed_turns=8,
    requests_a_second=20,
    paced_seconds=1.5,
)
