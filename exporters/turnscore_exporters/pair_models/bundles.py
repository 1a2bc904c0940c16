"""Exports relevance and USR as bundles: BERT or RoBERTa with published heads, or the network of ctx-RUBER and PONE."""

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import onnx
import torch
from onnx import compose
from torch import Tensor, nn
from transformers import BertModel
from turnscore_assessment.figures import Floats
from turnscore_assessment.files import check_row
from turnscore_core.scorers.relevance import RelevanceOptions, RelevanceScorer
from turnscore_core.scorers.usr import (
    MASKED,
    MASKED_INPUTS,
    RETRIEVAL,
    RETRIEVAL_INPUTS,
    PartWeight,
    UsrFormula,
    UsrOptions,
    UsrScorer,
)
from turnscore_models.bundle import Bundle

from turnscore_exporters.bundles.checkpoint import Checkpoint, export_checkpoint, score_as_pairs, write_graphs
from turnscore_exporters.bundles.writer import GRAPH_FILES, GraphChoice, turns_of
from turnscore_exporters.data.pairs import choose_reference_turns
from turnscore_exporters.engagement.model import CONTRACT
from turnscore_exporters.errors import CheckpointError, EncoderError, ExporterError
from turnscore_exporters.graphs.export import EXAMPLE_IDS, ROW_AXES, BertGraph, GraphContract, average_tokens
from turnscore_exporters.json_files import read_json
from turnscore_exporters.options import RelevanceExportOptions, UsrExportOptions
from turnscore_exporters.pair_models.models import (
    FrozenVectors,
    PairCheckpoint,
    PairNetwork,
    load_masked_model,
    load_pair_model,
    margin_of,
    score_masked,
    score_network,
    score_pairs,
    split_model,
)
from turnscore_exporters.training.encoders import Encoder, load_encoder

SEGMENTS = "token_type_ids"


class _PaddedEncoder(BertGraph):
    """A checkpoint's encoder, with positions counted from the left as its rows are padded on the right."""

    places: Tensor

    def __init__(self, encoder: nn.Module, config: Any) -> None:
        super().__init__()
        self.encoder = cast("BertModel", encoder)
        first = int(config.pad_token_id) + 1 if config.model_type == "roberta" else 0
        self.register_buffer("places", torch.arange(first, int(config.max_position_embeddings))[None, :])

    def read(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor | None) -> Any:
        """The encoder's last hidden state."""
        return self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=torch.zeros_like(input_ids) if segments is None else segments,
            position_ids=self.places[:, : input_ids.shape[1]],
        )


class JointGraph(_PaddedEncoder):
    """Probability that each row's response fits."""

    def __init__(self, checkpoint: PairCheckpoint) -> None:
        """Raises EncoderError where the head has neither one number nor two classes."""
        model = checkpoint.model
        labels = int(checkpoint.config.num_labels)
        if labels not in (1, 2):
            raise EncoderError(f"checkpoint {checkpoint.name}: its head has {labels} classes, expected one or two")
        is_bert = checkpoint.config.model_type == "bert"
        super().__init__(model.bert if is_bert else model.roberta, checkpoint.config)
        self.head = model.classifier
        self._is_pooled = is_bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """[rows], float32."""
        found = self.read(input_ids, attention_mask, segments)
        tokens = found.pooler_output if self._is_pooled else found.last_hidden_state
        return margin_of(self.head(tokens.float())).sigmoid()


class MaskedGraph(_PaddedEncoder):
    """Log probability of one token at one place of each row."""

    def __init__(self, checkpoint: PairCheckpoint) -> None:
        trunk, head = split_model(checkpoint.model)
        super().__init__(trunk, checkpoint.config)
        self.head = head
        self._has_segments = checkpoint.has_segments

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *rest: Tensor) -> Tensor:
        """[rows], float32; `rest` holds the segments, where the graph has them, then the places and the tokens."""
        place, token = rest[-2:]
        segments = rest[0] if self._has_segments else None
        tokens = self.read(input_ids, attention_mask, segments).last_hidden_state.float()
        # Sums over the row, as pooling does: the int8 graphs' skipping of padding recognises these.
        is_place = self.places[:, : input_ids.shape[1]] - self.places[:, :1] == place[:, None]
        hidden = (tokens * is_place.unsqueeze(-1).to(tokens.dtype)).sum(1)
        return self.head(hidden).log_softmax(-1).gather(1, token[:, None])[:, 0]  # type: ignore[no-any-return]


class ApartGraph(BertGraph):
    """Probability that each pair's reply fits, of the mean vectors of a frozen BERT; rows are texts."""

    def __init__(self, encoder: BertModel, network: PairNetwork) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor, query_row: Tensor, reply_row: Tensor) -> Tensor:
        """[pairs], float32."""
        vectors = average_tokens(self.read_tokens(input_ids, attention_mask), attention_mask)
        return self.network(vectors[query_row], vectors[reply_row]).sigmoid()  # type: ignore[no-any-return]


def joint_contract(checkpoint: PairCheckpoint) -> GraphContract:
    examples = (EXAMPLE_IDS, (EXAMPLE_IDS > 0).long())
    inputs: dict[str, tuple[str, ...]] = {"input_ids": ROW_AXES, "attention_mask": ROW_AXES}
    if checkpoint.has_segments:
        inputs[SEGMENTS] = ROW_AXES
        examples = (*examples, torch.zeros_like(EXAMPLE_IDS))  # type: ignore[assignment]
    return GraphContract(inputs=inputs, outputs={"probability": ("rows",)}, examples=examples)


def masked_contract(checkpoint: PairCheckpoint) -> GraphContract:
    joint = joint_contract(checkpoint)
    return GraphContract(
        inputs={**joint.inputs, "place": ("rows",), "token": ("rows",)},
        outputs={"log_probability": ("rows",)},
        examples=(*joint.examples, torch.tensor([1, 0, 1]), torch.tensor([3, 4, 5])),
    )


PAIR_FILE = "pair.pt"  # Name of the file in the folder of a trained ctx-RUBER or PONE.
# Names in the folder of a trained usr.
MASKED_FOLDER, RETRIEVAL_FOLDER, FORMULA_FILE = "masked", "retrieval", "overall.json"
PROBE_ROWS, PROBE_TOKENS = 16, 32
# Least relative spread of a part: standard deviation over root mean square, on the turns that fit the weights. A part
# below it weighs 0: divided by such a spread, fp32's rounding (1e-7 of its size, measured) would show in the value.
# Chosen: ten times what parity allows an fp32 graph.
LEAST_SPREAD = 1e-3
Pairs = Sequence[tuple[str, str]]
Parts = Mapping[str, Floats]


def export_relevance(options: RelevanceExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does, of a pair model or of a folder of ctx-RUBER or PONE.

    Of the latter fp32 alone unless other graphs are named: their steep answers magnify int8's rounding of the encoder's
    vectors. Measured: ctx-ruber at full size, 2,000 turns: .013 in the mean, Spearman .995, but .73 on one turn. Raises
    EncoderError or CheckpointError where the checkpoint cannot be read.
    """
    reference = choose_reference_turns(options.data, options.dialogues or [], options.turns)
    form: Literal["apart", "joint"] = "apart" if (Path(options.checkpoint) / PAIR_FILE).is_file() else "joint"
    if form == "apart":
        options = options if options.graph else replace(options, graph=["fp32"])
        network, frozen = load_pair_network(Path(options.checkpoint), options.token_limit)
        graph: BertGraph = ApartGraph(frozen.model, network).eval()
        encoder: Encoder | PairCheckpoint = frozen
        contract = CONTRACT
        judge = partial(score_network, network, FrozenVectors(frozen))
        layout = RelevanceOptions(form=form)
    else:
        checkpoint = load_pair_model(options.checkpoint, options.token_limit)
        if checkpoint.config.architectures and "SequenceClassification" not in checkpoint.config.architectures[0]:
            raise CheckpointError(f"checkpoint {options.checkpoint}: has no head that judges pairs")
        graph, contract = JointGraph(checkpoint).eval(), joint_contract(checkpoint)
        judge = partial(score_pairs, checkpoint)
        encoder = checkpoint
        layout = RelevanceOptions(form=form, response_tokens=checkpoint.response_tokens)
    made = Checkpoint(
        scorer=RelevanceScorer,
        encoder=encoder,
        write_graphs=partial(write_graphs, graph, contract),
        score=score_as_pairs(lambda pairs: judge(pairs).tolist()),
        turns=turns_of(reference.pairs),
        source=reference.source,
        options=layout.model_dump(),
        training={"checkpoint": Path(options.checkpoint).name, "form": form},
    )
    return export_checkpoint(made, options)


def load_pair_network(folder: Path, token_limit: int) -> tuple[PairNetwork, Encoder]:
    """The folder of a trained ctx-ruber or pone; CheckpointError where it is broken."""
    try:
        found = torch.load(folder / PAIR_FILE, weights_only=True)
        encoder = load_encoder(str(found["encoder"]), token_limit)
        network = PairNetwork(encoder.width, is_pone=bool(found["is_pone"]))
        network.load_state_dict(found["network"])
    except (OSError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{folder}: is not a checkpoint of ctx-ruber or pone ({error})") from error
    return network.eval(), encoder


def export_usr(options: UsrExportOptions) -> Bundle:
    """Writes the bundle as `export_checkpoint` does: two models in one graph.

    Raises EncoderError or CheckpointError where the checkpoints cannot be read or do not go together.
    """
    if "cuda-fp16" in (options.graph or ()):
        raise ExporterError("--graph cuda-fp16: usr has only fp32 and cpu-int8")
    names = _name_checkpoints(options)
    reference = choose_reference_turns(options.data, options.dialogues or [], options.turns)
    masked, retrieval = load_masked_model(names[0], options.token_limit), load_pair_model(names[1], options.token_limit)
    if masked.tokenizer.get_vocab() != retrieval.tokenizer.get_vocab():
        raise CheckpointError(f"checkpoints {masked.name} and {retrieval.name}: have different vocabularies")
    if masked.token_limit != retrieval.token_limit or masked.has_segments != retrieval.has_segments:
        raise CheckpointError(f"checkpoints {masked.name} and {retrieval.name}: differ in token limit or segment ids")
    if names[2] is None:
        formula = weigh_alike(score_parts(masked, retrieval, reference.pairs))
    else:
        formula = check_row(UsrFormula.model_validate, names[2], 0, read_json(names[2]))
    usr = UsrOptions(overall=formula)
    # Cut to as many response tokens as the service reads.
    masked, retrieval = (replace(each, most_response_tokens=usr.response_tokens) for each in (masked, retrieval))

    def judge(pairs: Pairs) -> list[float]:
        """As in the service, a response without tokens has its retrieval alone."""
        found = score_parts(masked, retrieval, pairs)
        whole = apply_formula(formula, found)
        values: list[float] = np.where(np.isnan(found[MASKED]), found[RETRIEVAL], whole).tolist()
        return values

    made = Checkpoint(
        scorer=UsrScorer,
        encoder=masked,
        write_graphs=partial(_write_usr_graphs, masked, retrieval),
        score=score_as_pairs(judge),
        turns=turns_of(reference.pairs),
        source=reference.source,
        options=usr.model_dump(mode="json", exclude_none=True),
        training={"masked": Path(names[0]).name, "retrieval": Path(names[1]).name},
    )
    return export_checkpoint(made, options)


def _name_checkpoints(options: UsrExportOptions) -> tuple[str, str, Path | None]:
    """The masked model, the retrieval model and the formula's file."""
    if options.checkpoint is None and options.masked and options.retrieval:
        return options.masked, options.retrieval, options.formula
    if options.checkpoint is None or (options.masked and options.retrieval):
        raise ExporterError("give either --checkpoint, or both --masked and --retrieval")
    folder = options.checkpoint
    return str(folder / MASKED_FOLDER), str(folder / RETRIEVAL_FOLDER), folder / FORMULA_FILE


def _write_usr_graphs(masked: PairCheckpoint, retrieval: PairCheckpoint, choice: GraphChoice, output: Path) -> None:
    """Exports each model as every BERT is exported, then merges the two graphs."""
    models: Mapping[str, tuple[BertGraph, GraphContract]] = {
        MASKED_INPUTS: (MaskedGraph(masked).eval(), masked_contract(masked)),
        RETRIEVAL_INPUTS: (JointGraph(retrieval).eval(), joint_contract(retrieval)),
    }
    with tempfile.TemporaryDirectory() as folder:
        for prefix, (model, contract) in models.items():
            write_graphs(model, contract, choice, Path(folder) / prefix, _probe_inputs(contract, masked))
        for variant in choice.promises():
            parts = [(prefix, Path(folder) / prefix / GRAPH_FILES[variant]) for prefix in models]
            join_graphs(parts, output / GRAPH_FILES[variant])


def join_graphs(graphs: Sequence[tuple[str, Path]], output: Path) -> None:
    """One graph of several that share nothing; each name gets its graph's prefix."""
    output.parent.mkdir(parents=True, exist_ok=True)
    joined = None
    for prefix, path in graphs:
        model = compose.add_prefix(onnx.load(path), prefix)
        # The two models may have different numbers of rows.
        for tensor in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            for axis in tensor.type.tensor_type.shape.dim:
                if axis.dim_param:
                    axis.dim_param = f"{prefix}{axis.dim_param}"
        joined = model if joined is None else compose.merge_models(joined, model, io_map=[])
    assert joined is not None
    onnx.save(joined, output)


def _probe_inputs(contract: GraphContract, checkpoint: PairCheckpoint) -> dict[str, Any]:
    """Rows of random tokens that show the large channels."""
    shape = (PROBE_ROWS, PROBE_TOKENS)
    inputs: dict[str, Any] = {
        name: np.ones(shape if len(axes) == 2 else shape[:1], dtype=np.int64) for name, axes in contract.inputs.items()
    }
    inputs["input_ids"] = np.random.default_rng(0).integers(0, int(checkpoint.config.vocab_size), shape)
    return inputs


def score_parts(masked: PairCheckpoint, retrieval: PairCheckpoint, pairs: Sequence[tuple[str, str]]) -> Parts:
    """USR's parts of each (query, response)."""
    return {MASKED: score_masked(masked, pairs), RETRIEVAL: score_pairs(retrieval, pairs)}


def apply_formula(formula: UsrFormula, found: Parts) -> Floats:
    """The value of each turn, from its own parts alone."""
    rows = zip(*found.values(), strict=True)
    return np.array([formula.apply(dict(zip(found, row, strict=True))) for row in rows], dtype=np.float64)


def weigh_alike(found: Parts) -> UsrFormula:
    """Each part that varies in its own standard deviations, with equal weight."""
    scales = find_telling(found)
    return make_formula(found, scales, dict.fromkeys(scales, 1 / len(scales)), 0.0)


def find_telling(found: Parts) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the parts that vary; ExporterError naming every spread where none does."""
    scales = {name: (float(np.nanmean(values)), float(np.nanstd(values))) for name, values in found.items()}
    telling = {name: each for name, each in scales.items() if each[1] > LEAST_SPREAD * math.hypot(*each)}
    if not telling:
        spreads = ", ".join(f"{name} by {spread:.1g}" for name, (_, spread) in scales.items())
        raise ExporterError(f"every part is the same for all turns, or differs too little to weigh it ({spreads})")
    return telling


def make_formula(
    names: Iterable[str], scales: Mapping[str, tuple[float, float]], weights: Mapping[str, float], bias: float
) -> UsrFormula:
    """The formula of the parts with these means and standard deviations; the other parts weigh 0."""
    parts = {
        name: PartWeight(center=scales[name][0], scale=scales[name][1], weight=weights[name])
        if name in scales
        else PartWeight(center=0.0, scale=1.0, weight=0.0)
        for name in names
    }
    return UsrFormula(parts=parts, bias=bias)
