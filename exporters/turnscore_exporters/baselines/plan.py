"""What a training of a baseline is given, and what it gives. Trains nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from turnscore_exporters.baselines.encoders.word_vectors import FileVectors, PieceVectors, WordVectors
from turnscore_exporters.baselines.material.asked import Asked, Baseline
from turnscore_exporters.baselines.material.exchanges import (
    Exchange,
    Part,
    read_exchanges,
    split_exchanges,
    split_words,
)
from turnscore_exporters.baselines.material.leaks import without_judged
from turnscore_exporters.baselines.sizes import Size
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import LoopSettings

TEXT_FILE = "dialogue_text.jsonl.gz"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training is given."""

    data: Path
    output: Path
    size: Size
    encoder: str = "minilm-l6"
    words: Path | None = None
    seed: int = 0
    judged: Sequence[Asked] = field(default_factory=tuple)
    """Judged turns that no training may have seen."""

    def state(self, name: str) -> Path:
        """The state file from which an interrupted training resumes."""
        return self.output / "state" / f"{name}.state"

    def settings(self, name: str, share: float = 1.0) -> LoopSettings:
        """The settings of a loop with this share of the steps; a state of other settings is refused."""
        steps = max(1, round(share * self.size.steps))
        key = f"{name} {self.encoder} {self.words} {self.size} {share} seed {self.seed}"
        return LoopSettings(steps=steps, run_key=key, seed=self.seed, description=name)

    @cached_property
    def parts(self) -> Mapping[Part, list[Exchange]]:
        """The exchanges of the data, without those that share a text with a judged turn."""
        drawn = read_exchanges(self.data / TEXT_FILE, self.size.exchanges, self.seed)
        return split_exchanges(without_judged(drawn, self.judged))

    @property
    def train(self) -> list[Exchange]:
        return self.parts[Part.TRAIN]

    def word_vectors(self, texts: Sequence[str]) -> WordVectors:
        """The file's vectors for these texts' words and the judged turns'; else the encoder's word table."""
        if self.words is None:
            return PieceVectors(load_encoder(self.encoder))
        asked = [text for each in self.judged for text in (*each.context, each.response, *each.references)]
        return FileVectors(self.words, {word for text in (*texts, *asked) for word in split_words(text)})


@dataclass(frozen=True)
class Trained:
    """A trained baseline and what the report says of its training."""

    baseline: Baseline
    facts: Mapping[str, Any]
    seen: frozenset[str] = frozenset()
    """Judged dialogues that were trained on, which it is not tested on."""
    exchanges: int = 0
    """How many exchanges it was trained on, if any."""
