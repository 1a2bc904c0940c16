"""Bundles made for tests: of any kind, of encoders, and of quality."""

import json
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers
from turnscore_core.inference.onnx_backend import OnnxBackend
from turnscore_core.loaded_scorer import find_scorer, read_turn, score_in_one_batch
from turnscore_core.scorers.encoder import TextEncoder
from turnscore_core.scorers.quality import COMPARED_ROWS, FEATURES, HEADS, QualityScorer
from turnscore_core.scorers.reaction import REACTIONS, SIGNALS
from turnscore_models.bundle import encoder_digest, sha256_of, write_bundle
from turnscore_models.manifest import GraphOutput, HeadsSpec, JointSpec, SelfTest, SelfTestTurn, SharedFiles, TensorSpec
from turnscore_wire import Turn

from support.fakes import manifest_of


def make_bundle(folder, *, name="engagement", version="1.0.0", kind="engagement"):
    """A bundle of five small files that passes every check but that of the runtime."""
    folder.mkdir(parents=True)
    (folder / "graph.onnx").write_bytes(b"not a graph")
    (folder / "tokenizer.json").write_text("{}")
    percentiles = [index / 100 for index in range(101)]
    (folder / "calibration.json").write_text(f'{{"percentiles": {percentiles}, "turns": 5, "source": "made up"}}')
    (folder / "self_test.json").write_text('{"turns": [{"context": [["user", "hi"]], "response": "ok", "value": 0.5}]}')
    tensor = TensorSpec(name="input_ids", dtype="tensor(int64)", shape=["rows", "tokens"])
    return write_bundle(folder, manifest_of(kind, [tensor], [tensor], name=name, version=version))


GRAPH = "graph.onnx"
WIDTH = 6
TURNS = (("good fine", "good fine"), ("good fine", "bad ugly"), ("a b c", "a b d"), ("a b c", "x y z w v u t"))
SPREAD = (("a b c", "good fine"), ("a b c", "bad wrong"), ("a b c", "a b c d e f g h i j k l m"))


def save_encoder_graph(path, *, output="vector", seed=0):
    """Good words lie close together, bad words opposite, letters anywhere; special tokens are nothing."""
    table = np.random.default_rng(seed).normal(0, 1, (4 + len(WORDS), WIDTH)).astype(np.float32)
    table[:4] = 0
    table[4:7] = table[4] + table[4:7] * 0.1
    table[7:10] = -table[4] + table[7:10] * 0.1
    tensors = {"table": table, "last": np.array([-1]), "tokens_axis": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["weight"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weight", "last"], ["weight3"]),
        helper.make_node("Mul", ["words", "weight3"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "tokens_axis"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["weight", "last"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], [output]),
    ]
    inputs = {name: (TensorProto.INT64, ["rows", "tokens"]) for name in ("input_ids", "attention_mask")}
    _save_graph(path, nodes, inputs, {output: (TensorProto.FLOAT, ["rows", WIDTH])}, tensors)


def save_self_test(folder, turns, speaker="user"):
    """Of turns as what was said before, and the response; their values are still to be found."""
    asked = [SelfTestTurn(context=[(speaker, before)], response=response, value=0.5) for before, response in turns]
    (folder / "self_test.json").write_text(SelfTest(turns=asked).model_dump_json())


def with_values(bundle, scorer, **test):
    """The bundle, whose self-test has what the scorer gives."""
    turns = bundle.self_test().turns
    known = []
    for turn, score in zip(turns, score_in_one_batch(scorer, [read_turn(each) for each in turns]), strict=True):
        own = {"fp32": GraphOutput(value=score.value, details=score.details)} if test else {}
        known.append(turn.model_copy(update={"value": score.value, "graphs": own}))
    (bundle.folder / "self_test.json").write_text(SelfTest(turns=known, **test).model_dump_json())
    return write_bundle(bundle.folder, bundle.manifest, bundle.lenders)


def make_encoder_bundle(folder, *, token_limit=8):
    """A bundle that loads and encodes."""
    folder.mkdir(parents=True)
    save_tokenizer(folder / "tokenizer.json")
    save_encoder_graph(folder / GRAPH)
    (folder / "calibration.json").write_text(json.dumps(curve(-1, 1)))
    save_self_test(folder, TURNS)
    backend = OnnxBackend(folder / GRAPH, threads=1)
    bundle = write_bundle(folder, manifest_of("encoder", *tensors_of(backend), token_limit=token_limit))
    return with_values(bundle, TextEncoder(bundle, backend), tolerances={"fp32": 1e-4})


WORDS = ("good", "fine", "nice", "bad", "ugly", "wrong", *"abcdefghijklmnopqrstuvwxyz")
LAYOUT = {"context_turns": 2, "turn_tokens": 4, "response_tokens": 16, "response_end_tokens": 6}
WEIGHTS = {"overall": 1.0, "sentiment": 0.5}
GOOD, BAD = 1.5, -1.5  # what a good or a bad word gives to every head, before the sigmoid
GRAPH, JOINT, HEADS_GRAPH, HEADS_FILE = "graph.onnx", "joint.onnx", "heads/quality.onnx", "heads.json"


def save_tokenizer(path):
    """A token a word."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    tokenizer = Tokenizer(models.WordLevel({word: id_ for id_, word in enumerate([*special, *WORDS])}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def save_quality_graphs(path, joint, unread=()):
    """The features of a response are the means of its tokens' marks, one for each head.

    A tenth of the mean of the latest context turn's row is added. The second graph has no inputs `unread`.
    """
    marks = np.random.default_rng(0).normal(0, 0.1, (4 + len(WORDS), len(HEADS))).astype(np.float32)
    marks[4:7] += GOOD
    marks[7:10] += BAD
    nodes = [
        helper.make_node("Gather", ["marks", "input_ids"], ["lower"]),
        helper.make_node("Cast", ["attention_mask"], ["weight"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weight", "tokens_axis"], ["weight3"]),
        helper.make_node("MatMul", ["weight3", "lower"], ["sum3"]),  # alike for one row and several: ReduceSum is not
        helper.make_node("Squeeze", ["sum3", "tokens_axis"], ["sum"]),
        helper.make_node("ReduceSum", ["weight", "last"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], ["pooled"]),
    ]
    inputs = {name: (TensorProto.INT64, ["rows", "tokens"]) for name in ("input_ids", "attention_mask")}
    width = len(HEADS)
    outputs = {"lower": (TensorProto.FLOAT, ["rows", "tokens", width]), "pooled": (TensorProto.FLOAT, ["rows", width])}
    tensors = {"marks": marks, "last": np.array([-1]), "tokens_axis": np.array([1])}
    _save_graph(path, nodes, inputs, outputs, tensors)
    nodes = [
        helper.make_node("Gather", ["context_rows", "zero"], ["latest"], axis=1),
        helper.make_node("GreaterOrEqual", ["latest", "zero"], ["is_there"]),
        helper.make_node("Cast", ["is_there"], ["there"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["there", "last"], ["there2"]),
        helper.make_node("Max", ["latest", "zero"], ["latest_row"]),
        helper.make_node("Gather", ["context_pooled", "latest_row"], ["context"]),
        helper.make_node("Mul", ["context", "there2"], ["heard"]),
        helper.make_node("Mul", ["heard", "tenth"], ["tenth_heard"]),
        helper.make_node("Add", ["response_pooled", "tenth_heard"], [FEATURES]),
    ]
    inputs = {
        "response_lower": (TensorProto.FLOAT, ["pairs", "tokens", width]),
        "response_mask": (TensorProto.INT64, ["pairs", "tokens"]),
        "response_pooled": (TensorProto.FLOAT, ["pairs", width]),
        "context_lower": (TensorProto.FLOAT, [1, "text_tokens", width]),
        "context_pooled": (TensorProto.FLOAT, ["texts", width]),
        "context_rows": (TensorProto.INT64, ["pairs", COMPARED_ROWS]),
        "context_tokens": (TensorProto.INT64, ["pairs", "context_tokens"]),
        "places": (TensorProto.INT64, ["pairs", "context_tokens"]),
        "key_order": (TensorProto.INT64, ["pairs", "keys"]),
    }
    inputs = {name: each for name, each in inputs.items() if name not in unread}
    tensors = {"last": np.array([-1]), "zero": np.array(0), "tenth": np.array(0.1, np.float32)}
    _save_graph(joint, nodes, inputs, {FEATURES: (TensorProto.FLOAT, ["pairs", width])}, tensors)


def _save_graph(path, nodes, inputs, outputs, tensors):
    graph = helper.make_graph(
        nodes, "made up", [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()],
        [helper.make_tensor_value_info(name, *each) for name, each in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_heads(path, outputs=HEADS, sign=1.0):
    """Each head is `sign` times the feature in its place, through a sigmoid or, the sentiment, a tanh.

    What is said of user turns is the last feature, and `frustrated` its opposite.
    """
    tensors = {"sign": np.array(sign, np.float32)} | {f"place_{place}": np.array(place) for place in range(len(HEADS))}
    nodes = [helper.make_node("Mul", [FEATURES, "sign"], ["signed"]), helper.make_node("Neg", ["signed"], ["turned"])]
    for place, name in enumerate(outputs):
        read = ["turned" if name == "frustrated" else "signed", f"place_{place if name in HEADS else len(HEADS) - 1}"]
        nodes.append(helper.make_node("Gather", read, [f"{name}/mean"], axis=1))
        nodes.append(helper.make_node("Tanh" if name == "sentiment" else "Sigmoid", [f"{name}/mean"], [name]))
    inputs = {FEATURES: (TensorProto.FLOAT, ["pairs", len(HEADS)])}
    path.parent.mkdir(exist_ok=True)
    _save_graph(path, nodes, inputs, {name: (TensorProto.FLOAT, ["pairs"]) for name in outputs}, tensors)


def describe_heads(folder, file):
    """The manifest's entry of heads in the folder, bound to the graph as it is there."""
    encoder = encoder_digest(*(sha256_of(folder / each) for each in (GRAPH, JOINT)))
    return HeadsSpec(file=file, sha256=sha256_of(folder / file), encoders=[encoder], outputs=[], parity_measured={})


def curve(low, high):
    return {"percentiles": [low + (high - low) * place / 100 for place in range(101)], "turns": 5, "source": "made up"}


def make_quality_bundle(folder, unread=(), **options):
    """A bundle that loads and scores; `options` stand in place of the usual ones."""
    folder.mkdir(parents=True)
    save_tokenizer(folder / "tokenizer.json")
    save_quality_graphs(folder / GRAPH, folder / JOINT, unread)
    save_heads(folder / HEADS_GRAPH)
    (folder / "calibration.json").write_text(json.dumps(curve(0, 1)))
    curves = {name: curve(-1, 1) if name == "sentiment" else curve(0, 1) for name in HEADS}
    (folder / HEADS_FILE).write_text(json.dumps({"curves": curves}))
    save_self_test(folder, SPREAD)
    described = {"layout": LAYOUT, "value": {"weights": WEIGHTS, "bias": 0.0}, "heads": HEADS_FILE, **options}
    backend = open_quality(folder)
    assert isinstance(backend.joint, OnnxBackend)
    heads = {"quality": describe_heads(folder, HEADS_GRAPH)}
    manifest = manifest_of("quality", *tensors_of(backend), heads=heads, token_limit=8, options=described)
    taken, given = tensors_of(backend.joint)
    joint = JointSpec(file=JOINT, inputs=taken, outputs=given)
    graphs = {name: each.model_copy(update={"joint": joint}) for name, each in manifest.graphs.items()}
    manifest = manifest.model_copy(update={"graphs": graphs})
    bundle = write_bundle(folder, manifest)
    return with_values(bundle, QualityScorer(bundle, backend))


def make_reaction_bundle(folder, quality, **options):
    """A bundle of heads on the encoder of that one: the user is pleased with good words and frustrated by bad ones."""
    folder.mkdir(parents=True)
    save_heads(folder / "reaction.onnx", REACTIONS)
    described = {
        "layout": LAYOUT, "calibrated": {name: {"slope": 1.0, "bias": 0.0} for name in REACTIONS},
        "thresholds": {name: 0.7 if name in ("frustrated", "pleased") else 1.0 for name in SIGNALS}, **options,
    }  # fmt: skip
    return _share_encoder(folder, quality, "reaction", "reaction", "reaction.onnx", described)


def make_criterion_bundle(folder, quality, name, head="relevant", sign=1.0, version="1.0.0"):
    """A criterion on the encoder of that one, which says what this head of quality says, or the opposite."""
    folder.mkdir(parents=True)
    weights = np.zeros(len(HEADS), np.float32)
    weights[HEADS.index(head)] = sign
    np.savez(folder / "criterion.npz", weights=weights, bias=np.float32(0))
    described = {
        "layout": LAYOUT, "calibrated": {"slope": 1.0, "bias": 0.0}, "scale": [1, 5],
        "description": f"Is it {name}?",
    }  # fmt: skip
    return _share_encoder(folder, quality, name, "criterion", "criterion.npz", described, version)


def _share_encoder(folder, quality, name, kind, file, options, version="1.0.0"):
    """The bundle of the heads in the folder's file, whose self-test has what they give."""
    (folder / "calibration.json").write_text(json.dumps(curve(0, 1)))
    scorer_class, _ = find_scorer(kind)
    save_self_test(folder, SPREAD, "user" if scorer_class.speaker == "system" else "system")
    heads = describe_heads(quality.folder, HEADS_GRAPH).model_copy(
        update={"file": file, "sha256": sha256_of(folder / file)}
    )
    update = {
        "name": name, "kind": kind, "version": version, "options": options, "heads": {kind: heads},
        "shared": SharedFiles(bundle=quality.manifest.name, files=[GRAPH, JOINT, "tokenizer.json"]),
    }  # fmt: skip
    bundle = write_bundle(folder, quality.manifest.model_copy(update=update), [quality.folder])
    return with_values(bundle, scorer_class(bundle, open_quality(quality.folder)))


def make_quality_version(folder, version, *, marks, **options):
    """Another version of such a bundle, whose encoder marks every word with so many times as much."""
    bundle = make_quality_bundle(folder, **options)
    model = onnx.load(folder / GRAPH)
    [found] = [each for each in model.graph.initializer if each.name == "marks"]
    found.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(found) * np.float32(marks), "marks"))
    onnx.save(model, folder / GRAPH)
    save_self_test(folder, SPREAD)
    manifest = bundle.manifest
    graphs = {name: each.model_copy(update={"parity_tolerance": 1.0}) for name, each in manifest.graphs.items()}
    heads = {"quality": describe_heads(folder, HEADS_GRAPH)}
    return write_bundle(folder, manifest.model_copy(update={"version": version, "graphs": graphs, "heads": heads}))


def converse(seed, turns, words=WORDS):
    """A conversation of short texts, of which some are said again."""
    chance = random.Random(seed)
    said = []
    for _ in range(turns):
        again = said and chance.random() < 0.1
        said.append(chance.choice(said) if again else " ".join(chance.choices(words, k=chance.randint(1, 9))))
    return [Turn(speaker="system" if place % 2 else "user", text=text) for place, text in enumerate(said)]


def open_quality(folder):
    """Both graphs of its encoder."""
    return OnnxBackend(folder / GRAPH, threads=1, joint=folder / JOINT)


def tensors_of(backend):
    """Its inputs, and its outputs."""
    return [
        [TensorSpec(name=each.name, dtype=each.dtype, shape=list(each.shape)) for each in tensors]
        for tensors in (backend.inputs, backend.outputs)
    ]
