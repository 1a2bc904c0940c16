"""A checkpoint becomes a bundle: graphs in every precision, the files next to them, parity as served, the manifest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray
from pydantic import JsonValue
from tokenizers import Tokenizer
from turnscore_core.scorers.scorer import Scorer, TurnToScore
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import SelfTest

from turnscore_exporters.bundles import writer
from turnscore_exporters.bundles.self_test import build_self_test, open_examined, self_test_turns
from turnscore_exporters.graphs.export import BertGraph, GraphContract, export_fp32, skip_padding
from turnscore_exporters.graphs.fp16 import convert_fp16
from turnscore_exporters.graphs.int8 import quantize_int8
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import BundleOptions


class Tokenizes(Protocol):
    """What a bundle needs of a model besides its graphs."""

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def token_limit(self) -> int: ...


Score = Callable[[Sequence[TurnToScore]], Sequence[float]]


def write_graphs(
    model: BertGraph,
    contract: GraphContract,
    choice: writer.GraphChoice,
    output: Path,
    probe_inputs: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Writes the fp32 graph, and what is made of it."""
    fp32 = output / writer.GRAPH_FILES["fp32"]
    export_fp32(model, contract, fp32)
    if "cpu-int8" in choice.kept:
        quantize_int8(fp32, output / writer.GRAPH_FILES["cpu-int8"], probe_inputs)
        skip_padding(output / writer.GRAPH_FILES["cpu-int8"])
    if "cuda-fp16" in choice.kept:
        convert_fp16(fp32, output / writer.GRAPH_FILES["cuda-fp16"])


def write_rest(tokenizer: Tokenizer, expected: Sequence[float], source: str, test: SelfTest, output: Path) -> None:
    """Writes the tokenizer, the calibration curve and the self-test."""
    tokenizer.save(str(output / writer.TOKENIZER_FILE), pretty=False)
    write_json(output / writer.CALIBRATION_FILE, writer.calibrate(expected, source))
    write_json(output / writer.SELF_TEST_FILE, test)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint to export, and the real turns to hold its graphs to it on."""

    scorer: type[Scorer]
    encoder: Tokenizes
    write_graphs: Callable[[writer.GraphChoice, Path], None]
    score: Score
    turns: Sequence[TurnToScore]
    source: str
    training: Mapping[str, Any]
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    agreement: Mapping[str, JsonValue] = field(default_factory=dict)


def score_as_pairs(score: Callable[[Sequence[tuple[str, str]]], Sequence[float]]) -> Score:
    """The function over turns of one over (query, reply) texts; a turn without context has an empty query."""
    return lambda turns: score([(each.context[-1].text if each.context else "", each.response) for each in turns])


def export_checkpoint(made: Checkpoint, options: BundleOptions) -> Bundle:
    """Writes the bundle into the empty or missing folder, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on the reference turns, ExporterError if there are fewer
    than 200 of them; the folder is then removed.
    """
    choice = writer.choose_graphs(options.graph, options.int8_tolerance, options.fp16_tolerance)
    with writer.fresh_folder(options.output, len(made.turns), writer.MIN_PARITY_TURNS):
        expected = made.score(made.turns)
        tested = self_test_turns(made.scorer.KIND)
        made.write_graphs(choice, options.output)
        test = build_self_test(tested, made.score(tested))
        write_rest(made.encoder.tokenizer, expected, made.source, test, options.output)
        bundle = writer.start_bundle(
            options.output,
            made.scorer.KIND,
            options.version,
            choice.promises(),
            token_limit=made.encoder.token_limit,
            options=dict(made.options),
            training=dict(made.training),
            agreement=dict(made.agreement),
            licence=options.licence,
        )
        measured = {}
        for variant, spec in bundle.manifest.graphs.items():
            served = writer.serve_turns(made.scorer(bundle, open_examined(bundle, variant)), made.turns)
            drift = writer.check_parity(variant, made.turns, served, expected, spec.parity_tolerance)
            measured[variant] = drift.to_dict()
        return writer.finish_bundle(bundle, measured, choice.kept, made.agreement)
