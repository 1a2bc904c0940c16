"""Keys and entries of finished scores."""

import dataclasses
import math

import numpy as np
import pytest
from support.bundles import make_bundle
from support.fakes import FakeScorer
from turnscore_core import score_entries
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.scorers.scorer import WHOLE, RawScore
from turnscore_core.scorers.turn_warnings import WARNINGS
from turnscore_models.bundle import write_bundle
from turnscore_wire import TokenCount

INPUTS = (("a b", "hello"), "c")


def key(bundle, inputs=INPUTS, namespace="n", secret=b"", variant="fp32", code="1"):
    loaded = LoadedScorer(scorer=FakeScorer(), bundle=bundle, variant=variant, percentiles=(), code_version=code)
    return score_entries.KeyMaker(loaded, secret).key(namespace, inputs)


def test_a_key_changes_with_all_that_can_change_a_score_and_with_nothing_else(tmp_path):
    bundle = make_bundle(tmp_path / "b")
    prose = bundle.manifest.model_copy(update={"licence": "MIT", "training": {}})
    same = dataclasses.replace(bundle, folder=tmp_path / "elsewhere", manifest=prose)
    other = write_bundle(bundle.folder, bundle.manifest.model_copy(update={"token_limit": 64}))
    keys = [
        key(bundle),
        key(other),
        key(bundle, variant="cpu-int8"),
        key(bundle, code="2"),
        key(bundle, namespace="m"),
        key(bundle, secret=b"s"),
        key(bundle, secret=b"t"),
        *(
            key(bundle, inputs)
            for inputs in (
                (("a", "b hello"), "c"),
                (("a b",), "hello", "c"),
                (("a b", "hello c"), ""),
                ("a b", ("hello",), "c"),
                (),
            )
        ),
    ]
    assert len(set(keys)) == len(keys)
    assert len({each.rpartition(":")[2] for each in keys[-9:]}) == 9
    assert key(same) == keys[0]
    assert "hello" not in keys[0]


PARTS = {
    WHOLE: RawScore(0.1 + 0.2, tokens=TokenCount(used=24, dropped=0)),
    b"twelve bytes": RawScore(
        -1e-300,
        {"sentiment": 1 / 3, "ütter": -0.0},
        percentile=12.5,
        is_comparable=False,
        warnings=(WARNINGS[0], WARNINGS[-1]),
        tokens=TokenCount(used=2**32 - 1, dropped=7),
    ),
}


def encoded(key="k", secret=b""):
    entry = score_entries.encode_entry(key, PARTS, secret)
    assert entry is not None
    return entry


@pytest.mark.parametrize("secret", [b"", b"s" * 32])
def test_an_entry_comes_back_bit_for_bit(secret):
    assert score_entries.decode_entry("k", encoded(secret=secret), secret) == PARTS


@pytest.mark.parametrize("secret", [b"", b"s" * 32])
def test_names_that_a_caller_chose_are_not_readable(secret):
    named = {
        b"one": RawScore(0.5, {"mentions Acme Ltd": 0.5, "ok": 0.25}, tokens=TokenCount(used=1, dropped=0)),
        b"two": RawScore(0.5, {"mentions Acme Ltd": 0.5}, tokens=TokenCount(used=1, dropped=0)),
    }
    entry = score_entries.encode_entry("k", named, secret)
    assert entry is not None
    assert b"Acme" not in entry
    assert score_entries.decode_entry("k", entry, secret) == named


def test_a_changed_bit_anywhere_is_told():
    entry = encoded()
    for place in range(len(entry) * 8):
        changed = bytearray(entry)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises((score_entries.UnreadableEntryError, score_entries.StaleEntryError)):
            score_entries.decode_entry("k", bytes(changed))


def test_an_entry_that_was_cut_or_grew_is_told():
    entry = encoded()
    for length in range(len(entry)):
        with pytest.raises(score_entries.UnreadableEntryError):
            score_entries.decode_entry("k", entry[:length])
    with pytest.raises(score_entries.UnreadableEntryError):
        score_entries.decode_entry("k", entry + b"\0")


def test_the_entry_of_another_key_or_of_another_secret_is_told():
    with pytest.raises(score_entries.UnreadableEntryError):
        score_entries.decode_entry("other", encoded())
    with pytest.raises(score_entries.UnreadableEntryError):
        score_entries.decode_entry("k", encoded(secret=b"one"), b"two")


def test_an_entry_of_another_format_is_stale():
    with pytest.raises(score_entries.StaleEntryError):
        score_entries.decode_entry("k", bytes([score_entries.ENTRY_FORMAT + 1]) + encoded()[1:])


@pytest.mark.parametrize(
    "part",
    [
        RawScore(0.5, {"x" * 256: 0.0}, tokens=TokenCount(used=1, dropped=0)),
        RawScore(0.5, {str(number): 0.0 for number in range(256)}, tokens=TokenCount(used=1, dropped=0)),
        RawScore(0.5, tokens=TokenCount(used=2**32, dropped=0)),
    ],
    ids=["name", "details", "tokens"],
)
def test_a_score_that_does_not_fit_is_not_written(part):
    assert score_entries.encode_entry("k", {WHOLE: part}) is None


@pytest.mark.parametrize("forged", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["value", "percentile", "detail"])
def test_a_number_that_no_scorer_gives_is_refused(field, forged):
    numbers = {"value": 0.5, "percentile": 50.0, "detail": 0.5, field: forged}
    raw = RawScore(numbers["value"], {"sentiment": numbers["detail"]}, percentile=numbers["percentile"])
    entry = score_entries.encode_entry("k", {WHOLE: dataclasses.replace(raw, tokens=TokenCount(used=2, dropped=0))})
    assert entry is not None
    with pytest.raises(score_entries.UnreadableEntryError):
        score_entries.decode_entry("k", entry)


VECTOR = np.array([0.6, -0.8, 1e-30], "<f4").tobytes()


def with_vector(vector):
    part = RawScore(0.5, {"x": 0.25}, vector=vector, tokens=TokenCount(used=2, dropped=0))
    entry = score_entries.encode_entry("k", {WHOLE: part})
    assert entry is not None
    return entry


def test_a_vector_comes_back_bit_for_bit():
    [part] = score_entries.decode_entry("k", with_vector(VECTOR), vector_bytes=len(VECTOR)).values()
    assert (part.vector, part.details) == (VECTOR, {"x": 0.25})


@pytest.mark.parametrize("vector", [None, VECTOR[:8], VECTOR + VECTOR[:4]])
def test_a_vector_of_another_size_is_refused(vector):
    with pytest.raises(score_entries.UnreadableEntryError):
        score_entries.decode_entry("k", with_vector(vector), vector_bytes=len(VECTOR))


@pytest.mark.parametrize("forged", [math.nan, math.inf])
def test_a_vector_with_a_number_that_is_none_is_refused(forged):
    vector = np.array([0.6, forged, 0.8], "<f4").tobytes()
    with pytest.raises(score_entries.UnreadableEntryError):
        score_entries.decode_entry("k", with_vector(vector), vector_bytes=len(vector))
