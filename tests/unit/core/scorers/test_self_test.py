"""A graph that computes otherwise than when its bundle was exported is refused; so is every plausible wrong one."""

import functools
import json
import shutil

import pytest
from support.bundles import save_encoder_graph
from support.graphs import ConstantScorer, corrupt_matrix, permute_outputs, with_graph
from turnscore_core.inference import onnx_backend
from turnscore_core.inference.onnx_backend import open_session
from turnscore_core.loaded_scorer import load_scorer, read_turn, run_self_test
from turnscore_core.scorers.scorer import RawScore
from turnscore_models.bundle import copy_bundle, read_bundle, starter_bundles, write_bundle
from turnscore_models.manifest import InvalidManifestError, MismatchedGraphError

SHIPPED = {bundle.manifest.kind: bundle for bundle in map(read_bundle, starter_bundles())}
KINDS = pytest.mark.parametrize("kind", sorted(SHIPPED))


@functools.cache
def load_shipped(kind):
    return load_scorer(SHIPPED[kind], "cpu-int8").scorer


@pytest.fixture
def changeable(kind, tmp_path):
    """A copy of the bundle that has all files in its own folder: those it shares are the starters'."""
    made = copy_bundle(SHIPPED[kind], tmp_path / kind)
    for name in made.manifest.files.keys() - set(made.own_files):
        (made.folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(made.path_of(name), made.folder / name)
    return write_bundle(made.folder, made.manifest.model_copy(update={"shared": None}))


def rewrite(bundle, change):
    """The bundle after `change` was made to its self-test, with checksums that fit."""
    path = bundle.path_of(bundle.manifest.self_test)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return write_bundle(bundle.folder, bundle.manifest)


def as_before(document):
    """The form that bundles had before graphs' own outputs were kept."""
    del document["tolerances"]
    document["turns"] = [
        {name: turn[name] for name in ("context", "response", "value")} for turn in document["turns"] if "value" in turn
    ]


@KINDS
def test_what_ships_is_accepted_and_its_turns_are_spread_over_its_scale(kind):
    bundle = SHIPPED[kind]
    load_shipped(kind)
    values = [turn.graphs["cpu-int8"].value for turn in bundle.self_test().turns]
    scale = bundle.calibration().percentiles
    assert min(values) < scale[20]
    assert max(values) > scale[60]
    assert (max(values) - min(values)) / 2 > 15 * bundle.self_test().tolerances["cpu-int8"]


@KINDS
def test_a_graph_that_gives_every_turn_the_same_is_refused(kind):
    bundle = SHIPPED[kind]
    turns = [read_turn(each) for each in bundle.self_test().turns]
    constant = ConstantScorer(load_shipped(kind), turns)
    with pytest.raises(MismatchedGraphError, match="when it was exported"):
        run_self_test(bundle, "cpu-int8", constant)


@KINDS
def test_a_graph_with_permuted_outputs_is_refused(changeable):
    with pytest.raises(MismatchedGraphError, match="self-test turn"):
        load_scorer(with_graph(changeable, permute_outputs), "cpu-int8")


@pytest.mark.parametrize(("kind", "place"), [*((kind, -1) for kind in sorted(SHIPPED)), ("engagement", 0)])
def test_a_graph_with_one_corrupted_weight_matrix_is_refused(changeable, place):
    with pytest.raises(MismatchedGraphError, match="self-test turn"):
        load_scorer(with_graph(changeable, corrupt_matrix(place)), "cpu-int8")


@pytest.mark.parametrize("details", [{"sentiment": 0.1}, {"goes_on": float("nan"), "sentiment": 0.1}])
def test_a_detail_that_is_missing_or_no_number_is_refused(details):
    right = load_shipped("sentiment_stop")

    class Wrong:
        encode = staticmethod(right.encode)

        @staticmethod
        def score(batch):
            return [
                RawScore(each.value, {**details, "sentiment": each.details["sentiment"]}) for each in right.score(batch)
            ]

    wrong = Wrong()
    with pytest.raises(MismatchedGraphError, match=r"goes_on (nothing|nan)"):
        run_self_test(SHIPPED["sentiment_stop"], "cpu-int8", wrong)


@pytest.mark.parametrize("kind", ["engagement"])
def test_a_bundle_made_before_outputs_were_kept_is_compared_with_its_checkpoint(changeable):
    before = rewrite(changeable, as_before)
    load_scorer(before, "cpu-int8")

    def spoil(document):
        document["turns"][1]["value"] += 2 * before.manifest.graphs["cpu-int8"].parity_tolerance

    with pytest.raises(MismatchedGraphError, match=r"turn 1 .* its checkpoint"):
        load_scorer(rewrite(before, spoil), "cpu-int8")


@pytest.mark.parametrize("kind", ["engagement"])
def test_a_tolerance_without_outputs_is_refused(changeable):
    def forget(document):
        document["turns"][2]["graphs"] = {}

    with pytest.raises(InvalidManifestError, match="turn 2 has no output of cpu-int8"):
        rewrite(changeable, forget).self_test()


@pytest.mark.parametrize("saturates", [True, False])
def test_products_do_not_saturate_on_cpus_without_vnni(saturates, monkeypatch, tmp_path):
    """On AVX2 the self-test fails without it, as QEMU's Haswell showed; here only that the runtime is asked for it."""
    monkeypatch.setattr(onnx_backend, "int8_saturates", lambda: saturates)
    save_encoder_graph(tmp_path / "graph.onnx", seed=70 + saturates)  # no other test has a session of it
    options = open_session(tmp_path / "graph.onnx", threads=1).get_session_options()
    assert options.get_session_config_entry("session.x64quantprecision") == str(int(saturates))
