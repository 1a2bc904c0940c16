"""What the bundles of BERT scorers share: graphs in every precision, and what these promise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from turnscore_models import GraphVariant, SelfTest

from turnscore_exporters.bundles.writer import (
    CALIBRATION_FILE,
    FP32_TOLERANCE,
    GRAPH_FILES,
    SELF_TEST_FILE,
    TOKENIZER_FILE,
    GraphPromise,
    calibrate,
)
from turnscore_exporters.graphs.export import BertGraph, GraphContract, export_fp32
from turnscore_exporters.graphs.fp16 import convert_fp16
from turnscore_exporters.graphs.int8 import quantize_int8
from turnscore_exporters.graphs.unpadding import skip_padding
from turnscore_exporters.json_files import write_json
from turnscore_exporters.training.checkpoints import Factors
from turnscore_exporters.training.encoders import Encoder

MIN_PARITY_TURNS = 200
# Chosen from what was measured, see docs/deploy.md.
FP16_TOLERANCE = 0.02
PRECISIONS: dict[GraphVariant, str] = {
    "fp32": "fp32",
    "cpu-int8": "int8 weights and activations, a scale per token",
    "cuda-fp16": "fp16; softmax, sums of layer norms, pooling and heads fp32",
}


@dataclass(frozen=True)
class GraphChoice:
    """The graphs that the bundle keeps, and the largest allowed difference of a value of the reduced ones."""

    kept: Sequence[GraphVariant]
    int8_tolerance: float
    fp16_tolerance: float = FP16_TOLERANCE

    def promises(self) -> dict[GraphVariant, GraphPromise]:
        """The promise of each graph that is written; fp32 is always among them, since the others are made from it."""
        tolerances: dict[GraphVariant, float] = {
            "fp32": FP32_TOLERANCE,
            "cpu-int8": self.int8_tolerance,
            "cuda-fp16": self.fp16_tolerance,
        }
        written: list[GraphVariant] = ["fp32", *(each for each in self.kept if each != "fp32")]
        return {variant: GraphPromise(PRECISIONS[variant], tolerances[variant]) for variant in written}


@dataclass(frozen=True, kw_only=True)
class BundleSource:
    """The source of a bundle's files. `expected` are the checkpoint's values of the reference turns."""

    model: BertGraph
    encoder: Encoder
    contract: GraphContract
    expected: Sequence[float]
    reference: str
    self_test: SelfTest
    smoothing: Factors | None = None
    """Factors that the weights were trained with int8 rounding for."""
    probe_inputs: Mapping[str, NDArray[Any]] | None = None
    """What the fp32 graph is fed to find its large channels; without it, generated inputs of a BERT's."""


def write_files(source: BundleSource, choice: GraphChoice, output: Path) -> None:
    """Writes the graphs, the tokenizer, the calibration curve and the self-test."""
    fp32 = output / GRAPH_FILES["fp32"]
    export_fp32(source.model, source.contract, fp32)
    if "cpu-int8" in choice.kept:
        quantize_int8(fp32, output / GRAPH_FILES["cpu-int8"], source.probe_inputs, source.smoothing)
        skip_padding(output / GRAPH_FILES["cpu-int8"])
    if "cuda-fp16" in choice.kept:
        convert_fp16(fp32, output / GRAPH_FILES["cuda-fp16"])
    source.encoder.tokenizer.save(str(output / TOKENIZER_FILE), pretty=False)
    write_json(output / CALIBRATION_FILE, calibrate(source.expected, source.reference))
    write_json(output / SELF_TEST_FILE, source.self_test)
