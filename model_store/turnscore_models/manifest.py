"""What a bundle's files say, and what is raised where they are wrong: manifest, calibrations, self-test."""

import json
from itertools import chain
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, JsonValue, model_validator


class BundleError(Exception):
    """A bundle cannot be used; the message names the bundle or file and the reason."""


class BundleNotFoundError(BundleError):
    """No bundle of that name or version is known."""


class InvalidManifestError(BundleError):
    """`manifest.json` is missing, unreadable, or of a format this version does not know."""


class UnknownKindError(BundleError):
    """No installed scorer serves bundles of this kind."""


class MissingBundleFileError(BundleError):
    """A file that the manifest lists is not in the bundle."""


class CorruptBundleError(BundleError):
    """A file's SHA-256 differs from the manifest's."""


class MismatchedGraphError(BundleError):
    """A graph's inputs, outputs or scores are not those the manifest promises."""


class BundleExistsError(BundleError):
    """The store already holds this name and version with other content."""


class FetchError(BundleError):
    """An archive of bundles could not be had, or is not the one that was named."""


MANIFEST_FILE = "manifest.json"

MAX_FILES = 1000  # In a bundle, or an archive of some. Ours have seven at most.
MAX_DEPTH = 8  # Folders in each other. Ours have one.

GraphVariant = Literal["cpu-int8", "cuda-fp16", "fp32"]  # which machine and precision a graph was made for


def _refuse_escape(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise ValueError("must be a relative path inside the bundle")
    if len(path.parts) > MAX_DEPTH + 1:
        raise ValueError(f"must have at most {MAX_DEPTH} folders")
    return name


def _refuse_non_finite(value: JsonValue) -> JsonValue:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("holds a number that is not JSON: it is infinite or none") from None
    return value


# The kind whose bundles are scorers of their own names: a service may have many.
CRITERION = "criterion"

NAME_PATTERN = r"^[a-z][a-z0-9_-]{0,62}$"
BundleName = Annotated[str, Field(pattern=NAME_PATTERN)]
_VERSION_PART = "(0|[1-9][0-9]{0,8})"  # one way to write a number, so that no two versions are the same one
VERSION_PATTERN = rf"^{_VERSION_PART}\.{_VERSION_PART}\.{_VERSION_PART}$"
BundleVersion = Annotated[str, Field(pattern=VERSION_PATTERN)]
FileName = Annotated[str, AfterValidator(_refuse_escape)]
FiniteJson = Annotated[JsonValue, AfterValidator(_refuse_non_finite)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TensorSpec(_Part):
    """One input or output of a graph; a dimension is a number or the name of a dynamic axis."""

    name: str
    dtype: str = Field(description="ONNX Runtime's name, such as `tensor(int64)`.")
    shape: list[int | str]


class JointSpec(_Part):
    """The second graph of an encoder that is cut in two: it reads what the first one gave for several texts.

    Its inputs `response_X` and `context_X` are the first one's outputs X, of each response and of all context texts.
    """

    file: FileName
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]


class GraphSpec(_Part):
    """One graph of a bundle, or the first of two: what it computes of a text may be kept and used again."""

    file: FileName
    joint: JointSpec | None = Field(default=None, description="Absent: the graph is whole.")
    precision: str = Field(description="Precision of weights and activations, such as `int8 dynamic`.")
    opset: int
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    parity_tolerance: Annotated[float, Field(gt=0)] = Field(
        description="Largest absolute difference of a value from the checkpoint's that the bundle may show."
    )
    parity_measured: dict[str, float] = Field(
        description="What the export measured against the checkpoint on real turns: "
        "`turns`, `max_abs`, `mean_abs`, `spearman`."
    )

    @property
    def files(self) -> list[str]:
        """Of the graph, or of both."""
        return [self.file] if self.joint is None else [self.file, self.joint.file]


class HeadsSpec(_Part):
    """One set of heads: a graph of its own over the features that the encoder's graph gives.

    It goes from bundle to bundle together with its file, so that neither encoder nor other heads know of it.
    """

    file: FileName
    sha256: Sha256 = Field(description="Of the file.")
    encoders: list[Sha256] = Field(
        description="Digest of the encoder that it is for, in each precision: the SHA-256 of its graph's file; of one "
        "cut in two, that of both files' SHA-256 in hexadecimal, one after the other."
    )
    outputs: list[str]
    parity_measured: dict[str, float] = Field(
        description="What the export measured against the checkpoint's heads on its features: `turns`, `max_abs`."
    )


class SharedFiles(_Part):
    """Files that lie in another bundle: an encoder is kept once, however many bundles have heads on its features."""

    bundle: BundleName = Field(description="The other bundle's name; any version of it with these very files will do.")
    files: Annotated[list[FileName], Field(min_length=1)]


class Recall(_Part):
    """Which share of the bad turns, or of the good ones, a threshold finds, with its interval of 95 %."""

    share: Annotated[float, Field(ge=0, le=1)]
    low: Annotated[float, Field(ge=0, le=1)]
    high: Annotated[float, Field(ge=0, le=1)]
    turns: int = Field(description="Turns that it was counted over.")


class Threshold(_Part):
    """The value below which a turn is called low, or from which it is called good, and what is promised of it."""

    value: float
    source: str = Field(description="Which rated turns it was made of.")
    false_alarm_rate: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="At most this share of good turns like those is called low; of bad ones, good."
    )
    confidence: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="Probability that the promise holds, over draws of such turns."
    )
    recall: Recall | None = None


class Manifest(_Part):
    """Everything that is known of one version of one scorer."""

    format_version: Literal[1] = 1
    name: BundleName
    version: BundleVersion
    kind: str = Field(description="The scorer that can read this bundle, such as `engagement`.")
    files: dict[FileName, Sha256] = Field(
        default_factory=dict,
        max_length=MAX_FILES,
        description="Every file but the manifest, with its SHA-256; `write_bundle` fills it.",
    )
    graphs: Annotated[dict[GraphVariant, GraphSpec], Field(min_length=1)]
    heads: dict[BundleName, HeadsSpec] = Field(
        default_factory=dict, description="Sets of heads on the graphs' features, by name; without any, graphs answer."
    )
    shared: SharedFiles | None = Field(
        default=None, description="Those of `files` that are another bundle's; absent: all are in this one's folder."
    )
    tokenizer: FileName
    calibration: FileName = Field(description="Percentiles 0 to 100 of `value` over reference turns.")
    self_test: FileName = Field(description="Turns with the values that the checkpoint gives them.")
    token_limit: Annotated[int, Field(ge=8)] = Field(description="Tokens the model takes for one text.")
    options: dict[str, FiniteJson] = Field(default_factory=dict, description="What only this kind reads.")
    training: dict[str, FiniteJson] = Field(description="Encoder, data, command and date of the training.")
    agreement: dict[str, FiniteJson] = Field(description="Measured agreement with people, with baselines.")
    threshold: Threshold | None = Field(default=None, description="Below it: `low`. Absent: scores carry no label.")
    good_threshold: Threshold | None = Field(default=None, description="From it on: `good`. Absent: no turn is.")
    stand_in: bool = Field(
        default=False, description="Whether the model only stands in for the one that the scorer is meant for."
    )
    licence: str

    @property
    def named_files(self) -> set[str]:
        """The files that other fields of the manifest point at; each must be in `files`."""
        graphs = chain.from_iterable(each.files for each in self.graphs.values())
        heads = (each.file for each in self.heads.values())
        return {self.tokenizer, self.calibration, self.self_test, *graphs, *heads}

    @property
    def scorer(self) -> str:
        """The name that callers ask for: the kind, or a criterion's own name."""
        return self.name if self.kind == CRITERION else self.kind

    @property
    def reference(self) -> str:
        """`name:version`, as replies carry it."""
        return f"{self.name}:{self.version}"


class Calibration(_Part):
    """The calibration curve: the reference turns' percentiles."""

    percentiles: Annotated[list[float], Field(min_length=101, max_length=101)] = Field(
        description="`value` at percentile 0, 1, ..., 100; never decreasing."
    )
    turns: int = Field(description="How many reference turns it was taken over.")
    source: str = Field(description="Which turns these were.")

    @model_validator(mode="after")
    def _never_decreases(self) -> "Calibration":
        if any(low > high for low, high in zip(self.percentiles, self.percentiles[1:], strict=False)):
            raise ValueError("percentiles must never decrease")
        return self


class GraphOutput(_Part):
    """What one graph gave for a turn on the machine that exported it, through the code that serves."""

    value: float
    details: dict[str, float] = Field(
        default_factory=dict, description="Every part of the score but its percentiles, as replies name them."
    )


class SelfTestTurn(_Part):
    """One turn with what the checkpoint and each graph give it; checked each time the bundle is loaded."""

    context: list[tuple[Literal["user", "system"], str]]
    response: str
    value: float | None = Field(default=None, description="The checkpoint's; absent where it was not at hand.")
    graphs: dict[GraphVariant, GraphOutput] = Field(default_factory=dict)


class SelfTest(_Part):
    """The turns that a bundle is checked on when it is loaded.

    A graph that `tolerances` names is compared with its own outputs. One that it does not name, as in bundles written
    before it existed, is compared with the checkpoint's values, within the manifest's `parity_tolerance`.
    """

    turns: Annotated[list[SelfTestTurn], Field(min_length=1)]
    tolerances: dict[GraphVariant, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="Largest absolute difference of a value or a detail from `graphs`."
    )

    @model_validator(mode="after")
    def _has_outputs_for_each_tolerance(self) -> "SelfTest":
        for place, turn in enumerate(self.turns):
            if missing := self.tolerances.keys() - turn.graphs.keys():
                raise ValueError(f"turn {place} has no output of {', '.join(sorted(missing))}")
        return self


class CombinationCalibration(Calibration):
    """The percentiles of a weighted sum of scorers' parts. Other versions, or weights, have others."""

    models: dict[str, str] = Field(
        default_factory=dict, description="By scorer the bundle that scored the turns, `name:version`; may be unknown."
    )
    weights: dict[str, FiniteFloat] = Field(default_factory=dict, description="By part; none where models has none.")
