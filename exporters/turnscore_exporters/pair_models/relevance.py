"""Exports a relevance checkpoint as a bundle: a BERT or RoBERTa for pairs in the hub's form, or ctx-RUBER or PONE.

Refuses a checkpoint whose graphs are not at parity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import BertModel
from turnscore_core.scorers.relevance import KIND, RelevanceOptions, RelevanceScorer
from turnscore_models import Bundle, GraphVariant

from turnscore_exporters.bundles.encoder import MIN_PARITY_TURNS, BundleSource, GraphChoice, write_files
from turnscore_exporters.bundles.parity import examine_graphs
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import DEFAULT_GRAPHS, finish_bundle, fresh_folder, start_bundle
from turnscore_exporters.data.reference_turns import ReferenceTurns
from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.graphs.export import BertGraph, GraphContract
from turnscore_exporters.pair_models.models import (
    Floats,
    FrozenVectors,
    PairCheckpoint,
    PairNetwork,
    load_pair_model,
    score_network,
    score_pairs,
)
from turnscore_exporters.pair_models.pair_graphs import APART_CONTRACT, ApartGraph, JointGraph, joint_contract
from turnscore_exporters.training.encoders import Encoder, load_encoder

PAIR_FILE = "pair.pt"
"""Name of the file in the folder of a trained ctx-RUBER or PONE."""
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class RelevanceExport:
    """The checkpoint, the graphs to write, and the output folder."""

    checkpoint: str
    version: str
    output: Path
    reference: ReferenceTurns
    graphs: GraphChoice
    token_limit: int = 128
    licence: str = "that of the checkpoint"


@dataclass(frozen=True, kw_only=True)
class _Model:
    """A checkpoint as a graph, and the checkpoint's own values."""

    graph: BertGraph
    contract: GraphContract
    encoder: Encoder
    options: RelevanceOptions
    judge: Any


def export_relevance(job: RelevanceExport) -> Bundle:
    """Writes the bundle into the empty or missing folder `output`, loads each graph as the service does, returns it.

    Raises ParityError if a graph disagrees with the checkpoint on the reference turns, EncoderError or CheckpointError
    where it cannot be read; the folder is then removed.
    """
    with fresh_folder(job.output, len(job.reference.pairs), MIN_PARITY_TURNS):
        is_trained = (Path(job.checkpoint) / PAIR_FILE).is_file()
        return _write(job, _read_apart(job) if is_trained else _read_joint(job))


def graphs_by_default(checkpoint: str) -> tuple[GraphVariant, ...]:
    """fp32 alone for ctx-RUBER and PONE: their steep answers magnify int8's rounding of the encoder's vectors.

    Measured: ctx-ruber at full size, 2,000 turns: .013 in the mean, Spearman .995, but .73 on one turn.
    """
    return ("fp32",) if (Path(checkpoint) / PAIR_FILE).is_file() else DEFAULT_GRAPHS


def _write(job: RelevanceExport, model: _Model) -> Bundle:
    expected = list(model.judge(job.reference.pairs))
    tested = self_test_turns(KIND)
    said = list(model.judge([(turn.context[-1].text if turn.context else "", turn.response) for turn in tested]))
    source = BundleSource(
        model=model.graph,
        encoder=model.encoder,
        contract=model.contract,
        expected=expected,
        reference=job.reference.source,
        self_test=build_self_test(tested, said),
    )
    write_files(source, job.graphs, job.output)
    bundle = start_bundle(
        job.output,
        KIND,
        job.version,
        job.graphs.promises(),
        token_limit=model.encoder.token_limit,
        options=model.options.model_dump(),
        training={"checkpoint": Path(job.checkpoint).name, "form": model.options.form},
        agreement={},
        licence=job.licence,
    )
    measured = examine_graphs(bundle, RelevanceScorer, job.reference.pairs, expected)
    return finish_bundle(bundle, measured, job.graphs.kept, {})


def _read_joint(job: RelevanceExport) -> _Model:
    checkpoint = load_pair_model(job.checkpoint, job.token_limit)
    if checkpoint.config.architectures and "SequenceClassification" not in checkpoint.config.architectures[0]:
        raise CheckpointError(f"checkpoint {job.checkpoint}: has no head that judges pairs")
    return _Model(
        graph=JointGraph(checkpoint).eval(),
        contract=joint_contract(checkpoint),
        encoder=as_encoder(checkpoint),
        options=RelevanceOptions(form="joint", response_tokens=checkpoint.response_tokens),
        judge=lambda pairs: score_pairs(checkpoint, pairs),
    )


def _read_apart(job: RelevanceExport) -> _Model:
    network, encoder = load_pair_network(Path(job.checkpoint), job.token_limit)
    vectors = FrozenVectors(encoder)

    def judge(pairs: Pairs) -> Floats:
        return score_network(network, vectors, pairs)

    return _Model(
        graph=ApartGraph(encoder.model, network).eval(),
        contract=APART_CONTRACT,
        encoder=encoder,
        options=RelevanceOptions(form="apart"),
        judge=judge,
    )


def load_pair_network(folder: Path, token_limit: int) -> tuple[PairNetwork, Encoder]:
    """The folder that `turnscore train baseline ctx-ruber` or `pone` wrote; CheckpointError where it is broken."""
    try:
        found = torch.load(folder / PAIR_FILE, weights_only=True)
        encoder = load_encoder(str(found["encoder"]), token_limit)
        network = PairNetwork(encoder.width, is_pone=bool(found["is_pone"]))
        network.load_state_dict(found["network"])
    except (OSError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{folder}: is not a checkpoint of ctx-ruber or pone ({error})") from error
    return network.eval(), encoder


def as_encoder(checkpoint: PairCheckpoint) -> Encoder:
    """The checkpoint's tokenizer and token limit, for the bundle's files."""
    return Encoder(
        name=checkpoint.name,
        model=cast("BertModel", checkpoint.model),
        tokenizer=checkpoint.tokenizer,
        token_limit=checkpoint.token_limit,
    )
