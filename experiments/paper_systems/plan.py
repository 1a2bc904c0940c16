"""What a training of a system is given, how long it takes at either size, and what it gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from turnscore_assessment.data.dialogues import LabelledTurn
from turnscore_exporters.errors import ExporterError
from turnscore_exporters.training.encoders import load_encoder
from turnscore_exporters.training.loop import LoopSettings

from paper_systems.data import Baseline, EvalTurn, read_exchanges, split_exchanges, split_words, without_judged
from paper_systems.ruber import FileVectors, PieceVectors, WordVectors


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much data, and how long: steps of each training loop."""

    exchanges: int = 0  # Exchanges of `dialogue_text.jsonl.gz`, about; 0 where the file is not read.
    steps: int = 0
    learning_rate: float = 0.0
    batch_size: int = 0  # Rows per step, of usr and 3p; the others have their paper's.

    def with_choices(self, **chosen: Any) -> "Size":
        """The size with the chosen values in place of its own; a value that the size does not use stays 0."""
        return replace(self, **{name: value for name, value in chosen.items() if value and getattr(self, name)})


# Steps are chosen: a minute or two of one core for each loop. RUBER's own 1e-4, 3P's and Bi-RNN's 1e-5 would change
# next to nothing in so few.
SMALL: Mapping[str, Size] = {
    "ruber": Size(exchanges=12_000, steps=150, learning_rate=1e-3),
    "ctx-ruber": Size(exchanges=12_000, steps=1000, learning_rate=1e-3),
    "pone": Size(exchanges=12_000, steps=1000, learning_rate=1e-3),
    "usr": Size(exchanges=12_000, steps=100, learning_rate=5e-5, batch_size=16),
    "3p": Size(steps=80, learning_rate=5e-5, batch_size=16),
    "svm": Size(),
    "bi-rnn": Size(steps=300, learning_rate=1e-3),
}
# About as much as was published, where the data have it: ctx-ruber's 22,000 pairs (Ghazarian et al. 2020), as many as
# PONE's of DailyDialog, ten rounds over the thumbs for 3P; for USR an epoch half as large as Topical-Chat's. RUBER read
# pairs of Weibo by the million: here it reads all that equal shares of three sources leave, seven times. Learning rates
# are the papers', steps but for 3P chosen; the SVM's data and its C are the published ones at either size.
FULL: Mapping[str, Size] = {
    "ruber": Size(exchanges=400_000, steps=10_000, learning_rate=1e-4),
    "ctx-ruber": Size(exchanges=25_000, steps=4000, learning_rate=1e-3),
    "pone": Size(exchanges=85_000, steps=5000, learning_rate=1e-3),
    "usr": Size(exchanges=120_000, steps=2700, learning_rate=5e-5, batch_size=32),
    "3p": Size(steps=4000, learning_rate=1e-5, batch_size=8),
    "svm": Size(),
    "bi-rnn": Size(steps=20_000, learning_rate=1e-5),
}


def find_size(name: str, *, is_full: bool) -> Size:
    """The size of that name; ExporterError listing the names for another."""
    sizes = FULL if is_full else SMALL
    if name not in sizes:
        raise ExporterError(f"no baseline is called {name!r}; choose one of {', '.join(sizes)}")
    return sizes[name]


TEXT_FILE = "dialogue_text.jsonl.gz"


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """What a training is given."""

    name: str
    data: Path
    output: Path
    size: Size
    encoder: str = "minilm-l6"
    words: Path | None = None
    seed: int = 0
    most_turns: int = 3000  # judged ones that are scored of a set
    check_counts: bool = True  # whether ConvAI's pairs have to be as many as were published
    judged: Sequence[EvalTurn] = field(default_factory=tuple)  # Judged turns that no training may have seen.

    def state(self, name: str) -> Path:
        """The state file from which an interrupted training resumes."""
        return self.output / "state" / f"{name}.state"

    def settings(self, name: str, share: float = 1.0, rate: float = 1.0) -> LoopSettings:
        """The settings of a loop with these shares of the steps and the rate; a state of other settings is refused."""
        return LoopSettings(
            steps=max(1, round(share * self.size.steps)),
            run_key=f"{name} {self.encoder} {self.words} {self.size} {share} seed {self.seed}",
            seed=self.seed,
            learning_rate=rate * self.size.learning_rate,
            description=name,
        )

    @cached_property
    def parts(self) -> tuple[list[LabelledTurn], list[LabelledTurn]]:
        """The exchanges to train on and those held out, without any that share a text with a judged turn."""
        drawn = read_exchanges(self.data / TEXT_FILE, self.size.exchanges, self.seed)
        return split_exchanges(without_judged(drawn, self.judged))

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
    seen: frozenset[str] = frozenset()  # Judged dialogues that were trained on, which it is not tested on.
    exchanges: int = 0
