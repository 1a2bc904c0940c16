"""A quality checkpoint becomes a bundle: the encoder in each precision, its sets of heads, the formula of the value.

Refuses a part without parity: heads are compared with the checkpoint's on its features, each encoder graph by what the
heads make of its features.
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn
from turnscore_assessment.data.dialogues import STATED, Spoken, read_population
from turnscore_assessment.figures import Floats
from turnscore_core.batches import form_batches
from turnscore_core.inference.onnx_backend import Backend, OnnxBackend, pad_rows
from turnscore_core.scorers import quality
from turnscore_core.scorers.reaction import REACTIONS
from turnscore_core.scorers.scorer import TokenPack, TurnToScore
from turnscore_core.scorers.turn_warnings import find_repeats
from turnscore_models.bundle import Bundle, encoder_digest, sha256_of
from turnscore_models.manifest import GraphVariant, HeadsSpec

from turnscore_exporters.bundles import writer
from turnscore_exporters.bundles.checkpoint import write_rest
from turnscore_exporters.bundles.self_test import build_self_test, open_examined, self_test_turns
from turnscore_exporters.errors import CheckpointError, ParityError
from turnscore_exporters.graphs import export
from turnscore_exporters.graphs.export import GraphContract
from turnscore_exporters.graphs.fp16 import convert_fp16
from turnscore_exporters.graphs.int8 import MIN_HALF, move_rounding, quantize_int8, store_half
from turnscore_exporters.json_files import read_json, write_json
from turnscore_exporters.options import QualityExportOptions
from turnscore_exporters.quality.model import (
    HEAD_SETS,
    TURNS_AT_ONCE,
    HeadSet,
    JointPart,
    QualityModel,
    RowBuilder,
    RowPart,
    answer_rows,
    load_model,
    score_rows,
    smooth_joint_layers,
)
from turnscore_exporters.quality.value import VALUE_FILE, read_formula
from turnscore_exporters.training.encoders import Encoder

KIND = "quality"
GRAPH: GraphVariant = "cpu-int8"  # The one that is read again: for a checkpoint, or for other heads and layers.
# A checkpoint may have the second: the manifest's `threshold`.
HEADS_FILE, THRESHOLD_FILE = "heads.json", "threshold.json"
# Largest difference of a head from the checkpoint's on the same features. Chosen; fp16 weights cost 1e-4.
HEADS_TOLERANCE = 5e-3
PROBED = 256  # Turns that show which channels are large.
PAIRS, CONTEXT_AXES, FEATURE_AXES = ("pairs",), ("pairs", "context_tokens"), ("pairs", "columns")
ROW_CONTRACT = GraphContract(
    inputs={"input_ids": export.ROW_AXES, "attention_mask": export.ROW_AXES},
    outputs={"lower": (*export.ROW_AXES, ""), "upper": (*export.ROW_AXES, ""), "pooled": ("rows", "columns")},
    examples=(export.EXAMPLE_IDS, (export.EXAMPLE_IDS > 0).long()),
)
# What the second graph takes of each token of the context, and the first gives; int8 graphs keep it rounded.
KEPT = {"context_lower": "lower", "context_upper": "upper"}


def joint_contract(width: int) -> GraphContract:
    """The second graph's, with examples of token vectors of that width."""
    chance = torch.Generator().manual_seed(0)

    def draw(*axes: int) -> torch.Tensor:
        return torch.randn(*axes, generator=chance)

    return GraphContract(
        inputs={
            "response_lower": ("pairs", "tokens", ""),
            "response_mask": ("pairs", "tokens"),
            "response_pooled": ("pairs", ""),
            "context_lower": ("", "text_tokens", ""),
            "context_upper": ("", "text_tokens", ""),
            "context_pooled": ("texts", ""),
            "context_rows": ("pairs", ""),
            "context_tokens": CONTEXT_AXES,
            "places": CONTEXT_AXES,
            "key_order": ("pairs", "keys"),
        },
        outputs={quality.FEATURES: FEATURE_AXES},
        examples=(
            draw(2, 3, width),
            torch.tensor([[1, 1, 1], [1, 1, 0]]),
            draw(2, 2 * width + 1),
            draw(1, 7, width),  # with a first axis, for which a product with a matrix is a MatMul
            draw(1, 7, width),
            draw(3, 2 * width + 1),
            torch.tensor([[1, 2, *[-1] * (quality.COMPARED_ROWS - 2)], [-1] * quality.COMPARED_ROWS]),
            torch.tensor([[0, 1, 2, 5, 6], [-1] * 5]),
            torch.tensor([[0, 0, 0, 3, 3], [0] * 5]),
            torch.tensor([[0, 1, 2, 3, 4, 5, 6], [8, 9, *[-1] * 5]]),
        ),
    )


@dataclass(frozen=True)
class TurnHeads:
    """Heads [turns, heads] of some turns, each one's warnings, and where asked for, [turns, reactions]."""

    heads: Floats
    warnings: Sequence[Sequence[str]]
    reactions: Floats = field(default_factory=lambda: np.zeros((0, len(REACTIONS))))

    def values(self, formula: quality.ValueFormula) -> list[float]:
        """The value of each turn."""
        named = (dict(zip(quality.HEADS, each, strict=True)) for each in self.heads.tolist())
        return [formula.value_of(each, warned) for each, warned in zip(named, self.warnings, strict=True)]


def read_reference(folder: Path, limit: int) -> list[TurnToScore]:
    """Draws at most `limit` turns of the population that no model was trained on."""
    population = [each.to_score() for each in read_population(folder).turns]
    return random.Random(0).sample(population, min(limit, len(population)))  # noqa: S311


def export_quality(options: QualityExportOptions) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on a value or a head of the reference turns,
    ExporterError if there are fewer than 200 of them; the folder is then removed.
    """
    reference = read_reference(options.data, options.turns)
    choice = writer.choose_graphs(options.graph, options.int8_tolerance, options.fp16_tolerance)
    with writer.fresh_folder(options.output, len(reference), writer.MIN_PARITY_TURNS):
        return _write(options, choice, reference)


def _write(options: QualityExportOptions, choice: writer.GraphChoice, reference: Sequence[TurnToScore]) -> Bundle:
    output = options.output
    model, encoder = load_model(options.checkpoint)
    formula = read_options(options.checkpoint, model).value
    probed = RowBuilder(encoder, model.settings.layout).build(_texts_of(reference[:PROBED]))
    parity = write_heads(model, probed[:TURNS_AT_ONCE], output)
    expected = score_turns(model, encoder, reference)
    values, heads = expected.values(formula), expected.heads
    smooth_joint_layers(model, probed)
    tested = self_test_turns(KIND)
    self_test = build_self_test(tested, score_turns(model, encoder, tested).values(formula))
    write_encoder(model, choice, output, probed)
    write_rest(encoder.tokenizer, values, STATED, self_test, output)
    curves = {name: writer.calibrate(heads[:, place].tolist(), STATED) for place, name in enumerate(quality.HEADS)}
    write_json(output / HEADS_FILE, quality.HeadCurves.model_validate({"curves": curves}))
    bundle = _start(options, choice, model, parity)
    measured: dict[GraphVariant, dict[str, float]] = {}
    for variant, spec in bundle.manifest.graphs.items():
        backend = open_examined(bundle, variant)
        scorer = quality.QualityScorer(bundle, backend)
        reactions = backend.open_part(bundle.path_of(bundle.manifest.heads["reaction"].file))
        served = serve_turns(scorer, reference, reactions)
        measured[variant] = _check(variant, reference, served, expected, formula, spec.parity_tolerance)
    return writer.finish_bundle(bundle, measured, choice.kept, bundle.manifest.agreement)


def write_encoder(
    model: QualityModel, choice: writer.GraphChoice, output: Path, probed: Sequence[quality.TurnRows]
) -> None:
    """Writes the encoder's two graphs in each precision; `probed` turns show which channels are large."""
    fp32, joint = output / writer.GRAPH_FILES["fp32"], output / writer.JOINT_FILES["fp32"]
    width = int(model.encoder.config.hidden_size)
    export.export_fp32(RowPart(model), ROW_CONTRACT, fp32)
    export.export_fp32(JointPart(model), joint_contract(width), joint)
    if "cpu-int8" in choice.kept:
        whole, second = output / writer.GRAPH_FILES["cpu-int8"], output / writer.JOINT_FILES["cpu-int8"]
        ids, mask = pad_rows(list(dict.fromkeys(row for turn in probed for row in (turn.response, *turn.context))), 0)
        quantize_int8(fp32, whole, {"input_ids": ids, "attention_mask": mask})
        encoder = quality.SplitEncoder(OnnxBackend(fp32, threads=1), OnnxBackend(joint, threads=1), 0, 0)
        quantize_int8(joint, second, encoder.prepare(probed))
        move_rounding(whole, second, KEPT)
        export.skip_padding(whole)
    if "cuda-fp16" in choice.kept:
        convert_fp16(fp32, output / writer.GRAPH_FILES["cuda-fp16"])
        shutil.copyfile(
            joint, output / writer.JOINT_FILES["cuda-fp16"]
        )  # as pooling and heads: small, and a sum of many


def write_heads(model: QualityModel, turns: Sequence[quality.TurnRows], output: Path) -> dict[str, dict[str, float]]:
    """Writes each set of heads below the folder; returns its parity with the model's heads on these turns' features.

    The graphs hold large matrices as fp16, and so does the model from then on. Raises ParityError.
    """
    with torch.inference_mode():
        features = answer_rows(model, turns).features
    parity = {
        name: write_head_set(HeadSet(model, name), outputs, features, output / heads_file(name))
        for name, outputs in HEAD_SETS.items()
    }
    for layer in (model.hidden, model.reaction_hidden):
        if layer.weight.numel() >= MIN_HALF:
            layer.weight.data.copy_(layer.weight.data.half())
    return parity


def write_head_set(heads: nn.Module, outputs: Sequence[str], features: torch.Tensor, path: Path) -> dict[str, float]:
    """Writes the graph of a set of heads, large matrices as fp16; its parity with the heads on these features.

    Raises ParityError.
    """
    contract = GraphContract({quality.FEATURES: FEATURE_AXES}, dict.fromkeys(outputs, PAIRS), (features[:2].clone(),))
    path.parent.mkdir(parents=True, exist_ok=True)
    export.trace_graph(heads, contract, path)
    graph = onnx.load(path)
    store_half(graph.graph)
    onnx.save(graph, path)
    export.check_graph(graph, contract, path)
    with torch.inference_mode():
        expected = torch.stack(heads(features), 1).numpy()
    found = OnnxBackend(path, threads=1).run({quality.FEATURES: features.numpy()})
    most = float(np.abs(np.stack([found[each] for each in outputs], 1) - expected).max())
    if not most <= HEADS_TOLERANCE:
        raise ParityError(f"the heads {path.stem}: differ from the checkpoint's by {most:.2e} on its own features")
    return {"turns": float(len(features)), "max_abs": round(most, 7)}


def read_heads(file: Path) -> dict[str, NDArray[Any]]:
    """Every constant of the graph of a set of heads as fp32, by its name in the model.

    Of a hidden layer that is a product of two, as 2.4.0's is, the product.
    """
    constants = read_constants(onnx.load(file).graph).items()
    found = {name.removeprefix("model.").removesuffix("/half"): value.astype(np.float32) for name, value in constants}
    if (narrow := found.pop("narrow.weight", None)) is not None:
        found["hidden.bias"] = found["hidden.bias"] + found["hidden.weight"] @ found.pop("narrow.bias")
        found["hidden.weight"] = found["hidden.weight"] @ narrow
    return found


def read_constants(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    """Every constant of a graph by its name."""
    nodes = {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
    return {name: onnx.numpy_helper.to_array(each) for name, each in nodes.items()} | {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer
    }


def heads_file(name: str) -> str:
    """The file of a set of heads in a bundle."""
    return f"heads/{name}.onnx"


def score_turns(model: QualityModel, encoder: Encoder, turns: Sequence[TurnToScore]) -> TurnHeads:
    """What the checkpoint gives for every turn."""
    warnings = [find_repeats(turn.context, turn.response) for turn in turns]
    rows = RowBuilder(encoder, model.settings.layout).build(_texts_of(turns))
    heads, reactions = (found.double().numpy() for found in score_rows(model, rows))
    return TurnHeads(heads, warnings, reactions)


def _texts_of(turns: Sequence[TurnToScore]) -> list[tuple[list[Spoken], str]]:
    said: list[list[Spoken]] = [
        [(each.speaker, each.text) for each in turn.context if each.text.strip()] for turn in turns
    ]
    return [(context, turn.response) for context, turn in zip(said, turns, strict=True)]


def serve_turns(
    scorer: quality.QualityScorer, turns: Sequence[TurnToScore], reaction_heads: Backend | None = None
) -> TurnHeads:
    """What the graphs give for them."""
    features, packs = serve_features(scorer, turns)
    reactions = np.zeros((len(turns), len(REACTIONS)))
    if reaction_heads is not None:
        found = reaction_heads.run({quality.FEATURES: features})
        reactions = np.stack([found[name] for name in REACTIONS], 1)
    return TurnHeads(scorer.answer(features), [pack.warnings[0] for pack in packs], reactions)


def serve_features(
    scorer: quality.HeadScorer, turns: Sequence[TurnToScore]
) -> tuple[NDArray[np.float32], list[TokenPack]]:
    """The features [turns, columns], computed in batches as the service forms them, and the turns' packs."""
    packs = scorer.encode(turns)
    computed: dict[int, Any] = {}
    for batch in form_batches(packs):
        computed.update(zip([pack.answers[0] for pack in batch], scorer.compute_features(batch), strict=True))
    return np.stack([computed[place] for place in range(len(turns))]), packs


def _check(
    variant: GraphVariant,
    turns: Sequence[TurnToScore],
    served: TurnHeads,
    expected: TurnHeads,
    formula: quality.ValueFormula,
    tolerance: float,
) -> dict[str, float]:
    """The drift of the value, and the largest of each head of every set. Raises ParityError, naming the head."""
    drift = writer.check_parity(variant, turns, served.values(formula), expected.values(formula), tolerance).to_dict()
    columns = [np.concatenate([each.heads, each.reactions], 1).T.tolist() for each in (served, expected)]
    for name, own, wanted in zip((*quality.HEADS, *REACTIONS), *columns, strict=True):
        try:
            # The reference turns are not user turns, of whom a few are rude: most reactions to them are all but 0.
            found = writer.check_parity(variant, turns, own, wanted, tolerance, keeps_order=name in quality.HEADS)
        except ParityError as error:
            raise ParityError(f"{name}: {error}") from error
        drift[f"{name}_max_abs"] = round(found.max_abs, 7)
    return drift


def read_options(checkpoint: Path, model: QualityModel) -> quality.QualityOptions:
    """The manifest's options: the layout that was trained, and the formula that lies next to the weights."""
    if not (checkpoint / VALUE_FILE).exists():
        raise CheckpointError(f"{checkpoint}: has no {VALUE_FILE}, which says how the heads become the value")
    value = read_formula(checkpoint).model_dump(exclude={"fitted_on"})
    return quality.QualityOptions.model_validate({"layout": model.settings.layout, "value": value, "heads": HEADS_FILE})


def _start(
    options: QualityExportOptions,
    choice: writer.GraphChoice,
    model: QualityModel,
    parity: Mapping[str, dict[str, float]],
) -> Bundle:
    encoders = [
        encoder_digest(
            *(sha256_of(options.output / files[variant]) for files in (writer.GRAPH_FILES, writer.JOINT_FILES))
        )
        for variant in choice.promises()
    ]
    heads = {
        name: HeadsSpec(
            file=heads_file(name),
            sha256=sha256_of(options.output / heads_file(name)),
            encoders=encoders,
            outputs=list(outputs),
            parity_measured=parity[name],
        )
        for name, outputs in HEAD_SETS.items()
    }
    training = {
        **read_json(options.checkpoint / "training.json"),
        VALUE_FILE: read_formula(options.checkpoint).fitted_on,
    }
    return writer.start_bundle(
        options.output,
        KIND,
        options.version,
        choice.promises(),
        heads=heads,
        token_limit=model.settings.layout.row_tokens,
        options=read_options(options.checkpoint, model).model_dump(mode="json"),
        training=training,
        agreement={"report": read_json(options.checkpoint / "report.json")},
        threshold=read_json(options.checkpoint / THRESHOLD_FILE) or None,
        licence=options.licence,
    )
