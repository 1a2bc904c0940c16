"""Models are loaded, proved by their self-tests, and refused where they compute otherwise than when exported."""

import functools
import json
import shutil
from dataclasses import replace

import pytest
from support.bundles import make_encoder_bundle, make_quality_bundle, save_encoder_graph
from support.fakes import CPU_BUILD, FakeMachine
from support.graphs import ConstantScorer, corrupt_matrix, permute_outputs, with_graph
from turnscore_core import loaded_scorer, model_loader
from turnscore_core.batches import padded_tokens
from turnscore_core.inference import onnx_backend
from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_backend import open_session
from turnscore_core.load_settings import LoadSettings
from turnscore_core.loaded_scorer import choose_variant, load_scorer, read_turn, run_self_test
from turnscore_core.model_loader import ModelLoader, fill_arenas
from turnscore_core.scorers.scorer import RawScore
from turnscore_models import bundle as bundle_module
from turnscore_models.bundle import copy_bundle, read_bundle, starter_bundles, write_bundle
from turnscore_models.manifest import BundleError, CorruptBundleError, InvalidManifestError, MismatchedGraphError

MOST_TOKENS = 256


@pytest.mark.parametrize("name", ["fed", "quality"])
def test_the_batches_are_as_large_as_they_may_be_and_of_unlike_widths(name, monkeypatch):
    bundle = read_bundle(next(folder for folder in starter_bundles() if folder.name == name))
    loaded = load_scorer(bundle, choose_variant(bundle))
    batches = []
    monkeypatch.setattr(loaded.scorer, "score", batches.append)
    fill_arenas(loaded, MOST_TOKENS)
    # No further pack of a batch's form would fit, and FED's packs are larger than that alone.
    assert all(2 * sum(map(padded_tokens, batch)) > MOST_TOKENS for batch in batches)
    widest = [max(pack.width for pack in batch) for batch in batches]
    assert max(widest) >= bundle.manifest.token_limit // 2
    assert name == "fed" or min(widest) <= 16


CONCURRENCY = Concurrency(batches=3, threads=1)


def as_version(bundle, version, **options):
    update = {"version": version, "options": bundle.manifest.options | options}
    return write_bundle(bundle.folder, bundle.manifest.model_copy(update=update))


@pytest.fixture
def loader(tmp_path):
    make_quality_bundle(tmp_path / "serving")
    settings = LoadSettings(
        models=(f"{tmp_path}/serving",), threads=1, concurrent_batches=3, max_batch_tokens=64,
        thresholds={"quality": 0.25},
    )  # fmt: skip
    return ModelLoader(settings, machine=FakeMachine(CPU_BUILD))


@pytest.fixture
def serving(loader):
    return loader.load_all()["quality"]


def test_a_candidate_has_the_concurrent_batches_of_the_version_that_serves_and_is_warm(
    loader, serving, tmp_path, monkeypatch
):
    warmed = []

    def warm(loaded, tokens, **how):
        warmed.append((loaded.bundle.manifest.version, tokens, how))

    monkeypatch.setattr(model_loader, "fill_arenas", warm)
    monkeypatch.setattr(model_loader, "measure_concurrency", lambda *_: pytest.fail("it would take the callers' CPUs"))
    like = replace(serving, concurrency=CONCURRENCY)
    loader.load_candidate(as_version(make_quality_bundle(tmp_path / "same"), "1.0.1"), like)
    assert warmed == []  # it computes in the sessions that serve already
    bundle = as_version(make_quality_bundle(tmp_path / "next"), "1.1.0", language="de")
    candidate = loader.load_candidate(bundle, like)
    assert candidate.bundle.manifest.reference == "quality:1.1.0"
    assert candidate.concurrency == CONCURRENCY
    assert candidate.threshold == 0.25
    assert warmed == [("1.1.0", 64, {"while_serving": True})]
    assert candidate.scorer is not serving.scorer


def test_a_version_that_scores_otherwise_than_at_its_export_is_refused(loader, serving, tmp_path):
    bundle = make_quality_bundle(tmp_path / "next")
    test_file = bundle.path_of(bundle.manifest.self_test)
    turns = json.loads(test_file.read_text())
    turns["turns"][0]["value"] += 0.2
    test_file.write_text(json.dumps(turns))
    with pytest.raises(MismatchedGraphError, match=r"quality:1.1.0: .* gives self-test turn 0 the value"):
        loader.load_candidate(as_version(bundle, "1.1.0"), serving)


@pytest.mark.usefixtures("_proof_of_ordinary_priority")
async def test_what_was_proved_is_loaded_without_a_second_proof(loader, serving, tmp_path, monkeypatch):
    monkeypatch.setattr(loaded_scorer, "run_self_test", lambda *_: pytest.fail("it takes the callers' CPUs"))
    bundle = as_version(make_quality_bundle(tmp_path / "next"), "1.1.0")
    checked = await loader.preflight(bundle, serving)
    assert checked == bundle.digest
    assert loader.load_candidate(bundle, serving, checked=checked).bundle == bundle


@pytest.mark.parametrize("turned", [0, 3, 6, None])
def test_a_link_that_is_turned_and_turned_back_changes_nothing_that_is_served(
    loader, serving, tmp_path, monkeypatch, turned
):
    """Another bundle of that name lies behind the link while one of the files is read, or once all of them were."""
    first = as_version(make_quality_bundle(tmp_path / "first"), "1.1.0")
    other = as_version(make_quality_bundle(tmp_path / "other"), "1.1.0")
    for name in other.manifest.files:
        with (other.folder / name).open("ab") as file:
            file.write(b" ")
    link = tmp_path / "link"
    link.symlink_to(first.folder)
    bundle = read_bundle(link)
    assert len(bundle.manifest.files) == 7
    copy_hashed, copied = bundle_module._copy_hashed, []

    def turn(target):
        link.unlink()
        link.symlink_to(target)

    def copy_while_somebody_turns(source, target):
        if len(copied) == turned:
            turn(other.folder)
        found = copy_hashed(source, target)
        copied.append(source)
        turn(other.folder if turned is None and len(copied) == 7 else first.folder)
        return found

    monkeypatch.setattr(bundle_module, "_copy_hashed", copy_while_somebody_turns)
    if turned is None:
        loaded = loader.load_candidate(bundle, serving, checked=bundle.digest)
        assert (link.resolve(), len(copied)) == (other.folder, 7)
        assert score_one(loaded) == score_one(loader.load_candidate(first, serving))
    else:
        with pytest.raises(CorruptBundleError, match=r"quality:1.1.0: .* was changed while the bundle"):
            loader.load_candidate(bundle, serving, checked=bundle.digest)


def score_one(loaded):
    [score] = loaded.scorer.score(loaded.scorer.encode([loaded.sample]))
    return score


def test_a_bundle_of_another_kind_takes_no_scorers_place(loader, serving, tmp_path):
    with pytest.raises(BundleError, match=r"is the scorer encoder, and what serves, quality:0.0.1, is quality"):
        loader.load_candidate(make_encoder_bundle(tmp_path / "next"), serving)


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


@pytest.mark.parametrize("kind", ["engagement"])
def test_a_graph_is_tested_again_for_other_threads_and_not_for_the_same(changeable, monkeypatch):
    tested = []
    monkeypatch.setattr("turnscore_core.loaded_scorer.run_self_test", lambda *which: tested.append(which))
    bundle = rewrite(changeable, as_before)  # a digest that no test has loaded by that number of threads
    for threads in (2, 2, 3):
        load_scorer(bundle, "cpu-int8", threads=threads)
    assert len(tested) == 2
