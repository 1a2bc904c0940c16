"""An entry comes back as it was written, or not at all."""

import dataclasses
import math

import numpy as np
import pytest
from turnscore_core.score_entries import (
    ENTRY_FORMAT,
    MAX_FRAGMENTS,
    StaleEntryError,
    UnreadableEntryError,
    decode_entry,
    encode_entry,
)
from turnscore_core.scorers.scorer import WHOLE, RawScore
from turnscore_core.scorers.turn_warnings import WARNINGS
from turnscore_wire import TokenCount

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


def encoded(key: str = "k", secret: bytes = b"") -> bytes:
    entry = encode_entry(key, PARTS, secret)
    assert entry is not None
    return entry


@pytest.mark.parametrize("secret", [b"", b"s" * 32])
def test_an_entry_comes_back_bit_for_bit(secret: bytes):
    assert decode_entry("k", encoded(secret=secret), secret) == PARTS


@pytest.mark.parametrize("secret", [b"", b"s" * 32])
def test_names_that_a_caller_chose_are_not_readable(secret: bytes):
    named = {
        b"one": RawScore(0.5, {"mentions Acme Ltd": 0.5, "ok": 0.25}, tokens=TokenCount(used=1, dropped=0)),
        b"two": RawScore(0.5, {"mentions Acme Ltd": 0.5}, tokens=TokenCount(used=1, dropped=0)),
    }
    entry = encode_entry("k", named, secret)
    assert entry is not None
    assert b"Acme" not in entry
    assert decode_entry("k", entry, secret) == named


def test_a_score_takes_few_bytes():
    one = {WHOLE: PARTS[WHOLE]}
    assert len(encode_entry("k", one) or b"") < 32


def test_a_changed_bit_anywhere_is_told():
    entry = encoded()
    for place in range(len(entry) * 8):
        changed = bytearray(entry)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises((UnreadableEntryError, StaleEntryError)):
            decode_entry("k", bytes(changed))


def test_an_entry_that_was_cut_or_grew_is_told():
    entry = encoded()
    for length in range(len(entry)):
        with pytest.raises(UnreadableEntryError):
            decode_entry("k", entry[:length])
    with pytest.raises(UnreadableEntryError):
        decode_entry("k", entry + b"\0")


def test_the_entry_of_another_key_or_of_another_secret_is_told():
    with pytest.raises(UnreadableEntryError):
        decode_entry("other", encoded())
    with pytest.raises(UnreadableEntryError):
        decode_entry("k", encoded(secret=b"one"), b"two")


def test_an_entry_of_another_format_is_stale():
    with pytest.raises(StaleEntryError):
        decode_entry("k", bytes([ENTRY_FORMAT + 1]) + encoded()[1:])


def test_of_too_many_pieces_the_last_are_kept():
    many = {b"%d" % number: PARTS[WHOLE] for number in range(MAX_FRAGMENTS + 3)}
    assert list(decode_entry("k", encode_entry("k", many) or b"")) == list(many)[3:]


@pytest.mark.parametrize(
    "part",
    [
        RawScore(0.5, {"x" * 256: 0.0}, tokens=TokenCount(used=1, dropped=0)),
        RawScore(0.5, {str(number): 0.0 for number in range(256)}, tokens=TokenCount(used=1, dropped=0)),
        RawScore(0.5, tokens=TokenCount(used=2**32, dropped=0)),
    ],
    ids=["name", "details", "tokens"],
)
def test_a_score_that_does_not_fit_is_not_written(part: RawScore):
    assert encode_entry("k", {WHOLE: part}) is None


@pytest.mark.parametrize("forged", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["value", "percentile", "detail"])
def test_a_number_that_no_scorer_gives_is_refused(field: str, forged: float):
    numbers = {"value": 0.5, "percentile": 50.0, "detail": 0.5, field: forged}
    raw = RawScore(numbers["value"], {"sentiment": numbers["detail"]}, percentile=numbers["percentile"])
    entry = encode_entry("k", {WHOLE: dataclasses.replace(raw, tokens=TokenCount(used=2, dropped=0))})
    assert entry is not None
    with pytest.raises(UnreadableEntryError):
        decode_entry("k", entry)


VECTOR = np.array([0.6, -0.8, 1e-30], "<f4").tobytes()


def with_vector(vector: bytes | None) -> bytes:
    part = RawScore(0.5, {"x": 0.25}, vector=vector, tokens=TokenCount(used=2, dropped=0))
    entry = encode_entry("k", {WHOLE: part})
    assert entry is not None
    return entry


def test_a_vector_comes_back_bit_for_bit():
    [part] = decode_entry("k", with_vector(VECTOR), vector_bytes=len(VECTOR)).values()
    assert (part.vector, part.details) == (VECTOR, {"x": 0.25})


@pytest.mark.parametrize("vector", [None, VECTOR[:8], VECTOR + VECTOR[:4]])
def test_a_vector_of_another_size_is_refused(vector: bytes | None):
    with pytest.raises(UnreadableEntryError):
        decode_entry("k", with_vector(vector), vector_bytes=len(VECTOR))


@pytest.mark.parametrize("forged", [math.nan, math.inf])
def test_a_vector_with_a_number_that_is_none_is_refused(forged: float):
    vector = np.array([0.6, forged, 0.8], "<f4").tobytes()
    with pytest.raises(UnreadableEntryError):
        decode_entry("k", with_vector(vector), vector_bytes=len(vector))


def test_an_entry_that_ends_within_its_vector_is_told():
    entry = with_vector(VECTOR)
    for length in range(len(entry)):
        with pytest.raises(UnreadableEntryError):
            decode_entry("k", entry[:length], vector_bytes=len(VECTOR))
