"""The options of every kind of training and export: a dataclass each, which is the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from turnscore_assessment.command_line import SeedOption, file_option, input_file
from typer import Option

DataFolder = Annotated[Path, Option(help="Folder with the data files under their published names.")]
OptionalDataFolder = Annotated[Path | None, Option(help="Folder with the data files under their published names.")]
DialogueFiles = Annotated[list[Path] | None, Option(help="Dialogues (JSON lines) instead of --data; repeatable.")]
BundleFolder = Annotated[Path, Option(help="Folder for the bundle; must be empty or missing.")]
BundleVersion = Annotated[str, Option(help="Version of the bundle, such as 1.0.0.")]
Checkpoint = Annotated[Path, Option(help="Folder that turnscore train wrote.")]
StoredBundle = Annotated[str, Option(help="A bundle: its folder (with a /), or its name.")]
GraphNames = Annotated[
    list[str] | None, Option(help="Graph to write: fp32, cpu-int8, cuda-fp16; repeatable. Default: fp32 and cpu-int8.")
]
Tolerance = Annotated[float, Option(min=0, help="Largest allowed difference of this graph's values.")]
Licence = Annotated[str, Option(help="Licence of the weights, for the manifest.")]
Threads = Annotated[int, Option(min=0, help="CPU threads; 0 leaves the choice to torch.")]
ReferenceTurns = Annotated[int, Option(min=200, help="Real turns for parity and calibration.")]
EncoderName = Annotated[str, Option(help="A BERT: a folder, a name on the hub, or `minilm-l6`.")]
FalseAlarms = Annotated[float, Option(min=0.001, max=0.5, help="The largest share of good turns called low.")]


@dataclass(frozen=True, kw_only=True)
class BundleOptions:
    """What every export of a checkpoint is given."""

    version: BundleVersion
    output: BundleFolder
    turns: ReferenceTurns = 4000
    graph: GraphNames = None
    int8_tolerance: Tolerance = 0.15
    fp16_tolerance: Tolerance = 0.02
    licence: Licence = "that of the encoder and of the training data"
    threads: Threads = 0


@dataclass(frozen=True, kw_only=True)
class CheckpointOptions(BundleOptions):
    """What the export of a checkpoint that `turnscore train` wrote is given."""

    checkpoint: Checkpoint
    data: DataFolder


@dataclass(frozen=True, kw_only=True)
class EngagementExportOptions(CheckpointOptions):
    """Write the bundle of an engagement checkpoint; fails unless graphs and checkpoint agree as served."""


@dataclass(frozen=True, kw_only=True)
class SentimentExportOptions(CheckpointOptions):
    """Write the bundle of a sentiment/stop checkpoint; fails unless graphs and checkpoint agree as served."""


@dataclass(frozen=True, kw_only=True)
class QualityExportOptions(CheckpointOptions):
    """Write the bundle of a quality checkpoint; fails unless every head of the graphs agrees with it as served."""

    checkpoint: Annotated[Path, Option(help="Folder that turnscore train wrote, with its value.json.")]


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(BundleOptions):
    """What the export of published checkpoints is given: any real turns."""

    data: OptionalDataFolder = None
    dialogues: DialogueFiles = None


@dataclass(frozen=True, kw_only=True)
class TextEncoderExportOptions(PublishedOptions):
    """Write the bundle of a sentence encoder, as published; fails unless graphs and encoder agree as served."""

    encoder: Annotated[str, Option(help="A sentence encoder (BERT): its folder, or `minilm-l6`.")]
    pooling: Annotated[Literal["mean", "cls"] | None, Option(help="In place of what the folder asks for.")] = None
    token_limit: Annotated[int, Option(min=8, help="Most tokens of a text that the encoder reads.")] = 256
    int8_tolerance: Tolerance = 0.05  # Chosen: twice all-MiniLM-L6-v2's largest difference of a cosine on 2,000 turns.
    licence: Licence = "that of the encoder"


@dataclass(frozen=True, kw_only=True)
class RelevanceExportOptions(PublishedOptions):
    """Write the bundle of a model that scores if a response fits; fails unless graphs and checkpoint agree as served.

    Of ctx-ruber and pone fp32 alone is written unless --graph names others.
    """

    checkpoint: Annotated[
        str, Option(help="A BERT or RoBERTa for pairs: folder or hub name; or the folder of ctx-ruber or pone.")
    ]
    turns: ReferenceTurns = 2000
    token_limit: Annotated[int, Option(min=16, help="Most tokens of a row.")] = 128
    licence: Licence = "that of the checkpoint"


@dataclass(frozen=True, kw_only=True)
class UsrExportOptions(PublishedOptions):
    """Write the bundle of USR, of any BERT or RoBERTa; fails unless graphs and checkpoints agree as served."""

    checkpoint: Annotated[
        Path | None, Option(help="Folder of usr that experiments/baselines.py wrote, instead of the next three.")
    ] = None
    masked: Annotated[str | None, Option(help="A BERT or RoBERTa for masked words: folder or hub name.")] = None
    retrieval: Annotated[str | None, Option(help="A BERT or RoBERTa for pairs: folder or hub name.")] = None
    formula: Annotated[Path | None, Option(help="The regression, JSON. Default: equal weights.")] = None
    turns: ReferenceTurns = 400
    token_limit: Annotated[int, Option(min=16, help="Most tokens of a row.")] = 96
    int8_tolerance: Tolerance = 0.3
    licence: Licence = "that of the checkpoints"


@dataclass(frozen=True, kw_only=True)
class FedExportOptions:
    """Write the FED bundle of a language model, or only verify it; fails unless the one pass gives the same numbers."""

    checkpoint: Annotated[str, Option(help="GPT-2 architecture: a folder, or a name such as DialoGPT's.")]
    version: BundleVersion = "0.0.0"
    output: Annotated[Path | None, Option(help="Folder for the bundle; must be empty or missing.")] = None
    verify: Annotated[bool, Option("--verify", help="Only compare with the published way; needs no data.")] = False
    dialogues: Annotated[list[Path] | None, Option(help="Dialogues for the percentiles; repeatable.")] = None
    turns: Annotated[int, Option(min=100, help="System turns of these dialogues to score.")] = 300
    graph: GraphNames = None
    qualities: Annotated[Path | None, Option(help="A JSON file of qualities instead of the published ones.")] = None
    join: Annotated[Literal["stripped", "spaced"], Option(help="Whether spaces next to separators stay.")] = "stripped"
    loss: Annotated[Literal["response_only", "whole_sequence"], Option(help="The default loss.")] = "response_only"
    licence: Licence = "that of the checkpoint"
    threads: Threads = 0
    stand_in: Annotated[bool, Option("--stand-in", help="Mark the bundle as a stand-in for a better one.")] = False


@dataclass(frozen=True, kw_only=True)
class CombinationOptions:
    """Write the percentiles of a combination of scorers over real turns, for TURNSCORE_COMBINATIONS."""

    output: Annotated[Path, Option(dir_okay=False, help="File for the percentiles, JSON.")]
    weight: Annotated[list[str], Option(help="A part's weight: `engagement=0.5`, `quality.relevant=1`; repeatable.")]
    bundle: Annotated[list[str], Option(help="A bundle's folder (with a /) or name; repeatable.")]
    data: OptionalDataFolder = None
    dialogues: DialogueFiles = None
    turns: ReferenceTurns = 2000


@dataclass(frozen=True, kw_only=True)
class SelfTestOptions:
    """Rebuild a bundle with its graphs' own outputs as self-test; weights stay byte for byte."""

    bundle: Annotated[Path, Option(help="Folder of a bundle, of any age.")]
    version: BundleVersion
    output: BundleFolder


@dataclass(frozen=True, kw_only=True)
class PercentilesOptions:
    """Rebuild a bundle with percentiles among turns that no shipped model was trained on; weights stay."""

    bundle: StoredBundle
    data: DataFolder
    version: BundleVersion
    output: BundleFolder
    turns: Annotated[int | None, Option(min=100, help="Most turns of the population.")] = None


@dataclass(frozen=True, kw_only=True)
class ReactionExportOptions(PercentilesOptions):
    """Write the bundle of reaction, calibrated, for the heads on user turns in a bundle of quality."""


@dataclass(frozen=True, kw_only=True)
class DequantizeOptions:
    """Write a quality checkpoint from a bundle's int8 graph, where the original checkpoint is lost."""

    bundle: StoredBundle
    output: Annotated[Path, Option(help="Folder for the checkpoint.")]
    reaction: Annotated[
        str | None, Option(help="A bundle of reaction on its encoder, where the bundle has no heads for user turns.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """What every training is given."""

    data: DataFolder
    output: Annotated[Path, Option(help="Folder for the checkpoint; an interrupted run resumes.")]
    seed: SeedOption = 0
    threads: Threads = 0


@dataclass(frozen=True, kw_only=True)
class EngagementTrainOptions(TrainOptions):
    """Train the engagement classifier and report its agreement with people."""

    encoder: EncoderName = "minilm-l6"
    recipe: Annotated[Literal["mixed", "paper"], Option(help="The starter's or Ghazarian et al. 2020's.")] = "mixed"
    labels: Annotated[Literal["published", "corrected"], Option(help="Recipe paper: which ratings are the labels.")] = (
        "published"
    )
    pooling: Annotated[Literal["mean", "max"], Option(help="Pooling over a text's tokens.")] = "mean"
    transfer: Annotated[bool, Option(help="Recipe paper: go on with the transfer pairs.")] = True
    steps: Annotated[int | None, Option(help="Recipe mixed: steps of the encoder; fewer for a trial.")] = None
    any_counts: Annotated[bool, Option("--any-counts", help="Accept other pair counts than published.")] = False


@dataclass(frozen=True, kw_only=True)
class SentimentTrainOptions(TrainOptions):
    """Train the sentiment/stop model on what users said next; report labels and agreement with people."""

    recipe: Annotated[Literal["starter", "paper"], Option(help="The starter's or Ghazarian et al. 2022's.")] = "starter"
    encoder: Annotated[
        str | None, Option(help="A BERT: a folder, a hub's name, or `minilm-l6` (starter); paper: BERT-base.")
    ] = None
    target: Annotated[
        Literal["two", "sentiment", "sum"] | None,
        Option(help="Both outputs (starter), one regression on sentiment, or on their sum (paper)."),
    ] = None
    token_limit: Annotated[
        int | None, Option(min=16, help="Most tokens of context and response together: 80; paper: 512.")
    ] = None
    epochs: Annotated[int | None, Option(min=1, help="2; paper: 10.")] = None
    steps: Annotated[int | None, Option(help="Most steps; for a trial.")] = None
    sets: Annotated[Path | None, Option(help="Your own descriptions of the sets of dialogues, JSON.")] = None


@dataclass(frozen=True, kw_only=True)
class QualityTrainOptions(TrainOptions):
    """Train the quality model on judged responses and user turns, and on what people really said."""

    encoder: EncoderName = "minilm-l6"
    init_from: Annotated[Path | None, Option(help="A checkpoint to start from.", exists=True)] = None
    marks: Annotated[Path | None, Option(help="A teacher's marks: experiments/quality_teacher.py.", exists=True)] = None
    passes: Annotated[float, Option(min=0.001, help="How often the judged responses are read.")] = 2.5
    share: Annotated[float, Option(min=0.0001, max=1, help="Share of the data; small in a trial.")] = 1.0
    learning_rate: Annotated[float, Option(min=0, help="Learning rate of the encoder.")] = 6e-5
    device: Annotated[str, Option(help="cpu or cuda.")] = "cpu"


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(TrainOptions):
    """Train a small dialogue language model (GPT-2 architecture) for FED and report its held-out perplexity."""

    steps: Annotated[int, Option(min=1, help="Training steps of about 2,048 tokens.")] = 1800
    layers: Annotated[int, Option(min=1)] = 6
    width: Annotated[int, Option(min=8, help="Width of the hidden states; a multiple of the heads.")] = 256
    heads: Annotated[int, Option(min=1)] = 4
    positions: Annotated[int, Option(min=32, help="The longest context, follow-up included, in tokens.")] = 256
    vocabulary: Annotated[int, Option(min=300, help="Entries of the byte-level BPE.")] = 8192


@dataclass(frozen=True, kw_only=True)
class CriterionTrainOptions:
    """Learn a criterion of your own from judged responses: a bundle that scores it in quality's pass.

    Fails with the reason, and writes nothing, where the criterion is not learned from these rows.
    """

    files: Annotated[list[Path], input_file("Rows that turnscore judge wrote; .gz is unpacked.")]
    name: Annotated[
        str,
        Option(
            help="The criterion, by which callers will ask for it; also the mark to learn, unless --mark says another."
        ),
    ]
    version: BundleVersion = "1.0.0"
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            help="Folder for the bundle; default: build/NAME-VERSION. Features stay next to it, for other criteria.",
        ),
    ] = None
    mark: Annotated[str | None, Option(help="The mark to learn; default: the name. People's are people.NAME.")] = None
    scale: Annotated[str | None, Option(help="Lowest and highest mark, such as 1,5; default: as the rows say.")] = None
    rubric: Annotated[Path | None, file_option("The rubric that judges were given, for the card.")] = None
    encoder: Annotated[str, Option(help="The bundle of quality on whose features it works.")] = "quality"
    deep: Annotated[
        bool,
        Option("--deep", help="Train the upper layers, too; kept where that is better: it costs a pass for each turn."),
    ] = False
    keep_deep: Annotated[bool, Option("--keep-deep", help="--deep, kept also where it may be no better.")] = False
    data: Annotated[Path | None, Option(help="Data folder: percentiles among its turns, not the judged ones.")] = None
    turns: Annotated[int, Option(min=100, help="Most of these turns.")] = 2000
    false_alarms: Annotated[
        float, Option(min=0.001, max=0.5, help="Largest share of good turns called low, and of bad ones called good.")
    ] = 0.05
    licence: Licence = "that of the encoder and of the judgements"


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """Fit a scorer's bundle to turns that your own people rated, and give it a threshold for bad turns.

    Good rated turns that a share of false alarms needs, with 95% confidence: 299 for 1%, 149 for 2%, 59 for 5%, 29 for
    10%, 19 for 15%, 14 for 20%, 9 for 30%. Fewer than --false-alarms needs give the weaker promise.
    """

    file: Annotated[Path, input_file("Rated turns, JSON lines; .gz is unpacked.")]
    scorer: Annotated[str, Option(help="The scorer to calibrate.")] = "quality"
    bundle: Annotated[
        str | None, Option(help="The scorer's bundle: a folder (with a /) or name; default: its name.")
    ] = None
    url: Annotated[str | None, Option(help="A running service that scores the turns with this bundle.")] = None
    output: Annotated[Path, Option(file_okay=False, help="Folder for the new version; empty or missing.")] = Path(
        "build/calibrated"
    )
    new_version: Annotated[
        str | None, Option(help="Version of the new bundle; default: one that only this run has.")
    ] = None
    good_from: Annotated[float | None, Option(help="The rating from which a turn is good.")] = None
    false_alarms: FalseAlarms = 0.05
