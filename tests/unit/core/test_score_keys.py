"""A key changes with everything that can change a score, and says nothing of what was said."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from support.bundles import make_bundle
from support.fakes import FakeScorer
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.score_entries import KeyMaker
from turnscore_core.scorers.scorer import Fields
from turnscore_models import Bundle, write_bundle

INPUTS: Fields = (("a b", "hello"), "c")


def loaded(bundle: Bundle, **changes: Any) -> LoadedScorer:
    fields: dict[str, Any] = {"variant": "fp32", "percentiles": (), "code_version": "1", **changes}
    return LoadedScorer(scorer=FakeScorer(), bundle=bundle, **fields)


def key(bundle: Bundle, inputs: Fields = INPUTS, namespace: str = "n", secret: bytes = b"", **changes: Any) -> str:
    return KeyMaker(loaded(bundle, **changes), secret).key(namespace, inputs)


def rewritten(bundle: Bundle, **changes: object) -> Bundle:
    return write_bundle(bundle.folder, bundle.manifest.model_copy(update=changes))


def test_a_key_changes_with_every_file_of_the_bundle(tmp_path: Path):
    keys = {key(make_bundle(tmp_path / "plain"))}
    for name in ("calibration.json", "graph.onnx", "self_test.json", "tokenizer.json"):
        bundle = make_bundle(tmp_path / name)
        with bundle.path_of(name).open("ab") as file:
            file.write(b" ")
        keys.add(key(rewritten(bundle)))
    assert len(keys) == 5


@pytest.mark.parametrize(
    "changes",
    [{"options": {"join": "spaced"}}, {"token_limit": 64}, {"tokenizer": "self_test.json"}, {"version": "1.0.1"}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_key_changes_with_one_option_of_the_bundle(tmp_path: Path, changes: dict[str, object]):
    bundle = make_bundle(tmp_path / "b")
    assert key(bundle) != key(rewritten(bundle, **changes))


@pytest.mark.parametrize("changes", [{"variant": "cpu-int8"}, {"code_version": "2"}], ids=["graph", "code"])
def test_a_key_changes_with_what_runs_the_bundle(tmp_path: Path, changes: dict[str, str]):
    bundle = make_bundle(tmp_path / "b")
    assert key(bundle) != key(bundle, **changes)


@pytest.mark.parametrize(
    "inputs",
    [(("a", "b hello"), "c"), (("a b",), "hello", "c"), (("a b", "hello c"), ""), ("a b", ("hello",), "c"), ()],
    ids=str,
)
def test_a_key_changes_with_a_fields_border(tmp_path: Path, inputs: Fields):
    bundle = make_bundle(tmp_path / "b")
    assert key(bundle, INPUTS) != key(bundle, inputs)


def test_a_key_is_the_same_in_another_process_of_the_same_bundle(tmp_path: Path):
    bundle = make_bundle(tmp_path / "b")
    prose = bundle.manifest.model_copy(update={"licence": "MIT", "training": {}})
    assert key(bundle) == key(dataclasses.replace(bundle, folder=tmp_path / "elsewhere", manifest=prose))


def test_namespaces_and_secrets_have_keys_of_their_own(tmp_path: Path):
    bundle = make_bundle(tmp_path / "b")
    keys = [key(bundle), key(bundle, namespace="m"), key(bundle, secret=b"s"), key(bundle, secret=b"t")]
    assert len({each.rpartition(":")[2] for each in keys}) == 4


def test_no_word_that_was_said_stands_in_a_key(tmp_path: Path):
    assert "hello" not in key(make_bundle(tmp_path / "b"))
