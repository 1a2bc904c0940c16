"""Bundles of random weights for the service under load. Their scores mean nothing, and no parity is claimed."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from turnscore_core.scorers.fed.questions import FedBundleOptions
from turnscore_exporters.bundles.encoder import BundleSource, GraphChoice, write_files
from turnscore_exporters.bundles.self_test import build_self_test, self_test_turns
from turnscore_exporters.bundles.writer import (
    CALIBRATION_FILE,
    GRAPH_FILES,
    SELF_TEST_FILE,
    TOKENIZER_FILE,
    GraphPromise,
    calibrate,
    finish_bundle,
    start_bundle,
)
from turnscore_exporters.engagement.bundle import INT8_TOLERANCE
from turnscore_exporters.engagement.model import CONTRACT, score_pairs
from turnscore_exporters.fed.bundle import PRECISIONS, REFERENCE_FILE, TOLERANCES, read_qualities
from turnscore_exporters.fed.model import export_graph
from turnscore_exporters.json_files import write_json
from turnscore_models import Bundle, GraphVariant

from turnscore_bench.gpu.shapes import Shape
from turnscore_bench.gpu.stand_ins import (
    TOKEN_LIMIT,
    as_encoder,
    build_dialogue_tokenizer,
    build_encoder,
    build_language_model,
)

VERSION, LICENCE = "0.0.0", "none: random weights"
SOURCE = "made-up turns"


def write_encoder_bundle(shape: Shape, variant: GraphVariant, output: Path) -> Bundle:
    """An engagement bundle; loading checks the graph against the model's values of a dozen turns."""
    model = build_encoder(shape)
    encoder = as_encoder(model, shape)
    tested = self_test_turns("engagement")
    pairs = [(turn.context[-1].text if turn.context else "", turn.response) for turn in tested]
    values = score_pairs(model, encoder, pairs)
    self_test = build_self_test(tested, values)
    choice = GraphChoice((variant,), INT8_TOLERANCE)
    output.mkdir(parents=True)
    write_files(
        BundleSource(
            model=model, encoder=encoder, contract=CONTRACT, expected=values, reference=SOURCE, self_test=self_test
        ),
        choice,
        output,
    )
    rest = {"token_limit": TOKEN_LIMIT, "training": {"model": shape.name}, "agreement": {}, "licence": LICENCE}
    bundle = start_bundle(output, "engagement", VERSION, choice.promises(), **rest)
    return finish_bundle(bundle, {each: {} for each in bundle.manifest.graphs}, choice.kept, {})


def write_fed_bundle(shape: Shape, variant: GraphVariant, output: Path) -> Bundle:
    """A FED bundle; its self-test has the values that this machine's CPU computes of the same graph."""
    graph = output / GRAPH_FILES[variant]
    on_gpu = variant == "cuda-fp16"
    export_graph(build_language_model(shape), graph, torch.float16 if on_gpu else torch.float32, is_fused=on_gpu)
    tokenizer, eos_id = build_dialogue_tokenizer()
    _write_texts(tokenizer, output)
    options = _options(eos_id)
    zeros = np.zeros((1, len(options.qualities)))
    np.savez(output / REFERENCE_FILE, response_only=zeros, whole_sequence=zeros)
    bundle = start_bundle(
        output,
        "fed",
        VERSION,
        {variant: GraphPromise(PRECISIONS[variant], TOLERANCES[variant])},
        token_limit=shape.positions,
        options=options.model_dump(mode="json", exclude={"own_qualities"}),
        training={"model": shape.name},
        agreement={},
        licence=LICENCE,
    )
    return finish_bundle(bundle, {variant: {}}, (variant,), {})


def _write_texts(tokenizer: Tokenizer, output: Path) -> None:
    tokenizer.save(str(output / TOKENIZER_FILE), pretty=False)
    write_json(output / CALIBRATION_FILE, calibrate([0.0], SOURCE))
    tested = self_test_turns("fed")[:4]
    write_json(output / SELF_TEST_FILE, build_self_test(tested, [None] * len(tested)))


def _options(eos_id: int) -> FedBundleOptions:
    known = read_qualities()
    return FedBundleOptions(
        qualities=known.qualities,
        default_qualities=tuple(known.default),
        eos_id=eos_id,
        reference=REFERENCE_FILE,
    )
