"""Scores that engines share: what is found, what is not, and what is computed anew."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.fakes import NOT_A_NUMBER, FakeScorer
from support.versions import dialogue, engine_of


class Kept:
    """A store of scores in the process."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    def fetch(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.entries.get(key) for key in keys]

    def keep(self, entries: Mapping[str, bytes]) -> None:
        self.entries.update(entries)


def test_what_another_engine_computed_is_found_in_the_shared_scores():
    kept = Kept()
    said = [dialogue("a", "hi", "hello you"), dialogue("b", "hi", NOT_A_NUMBER)]
    with engine_of(fake=FakeScorer(), shared=kept) as engine:
        first, _ = engine.score(said)
    with engine_of(fake=FakeScorer(), shared=kept) as engine:
        second, failed = engine.score(said)
        assert engine.turns_computed == 1  # what failed is asked again
        known = second.turns[0].scores["fake"]
        assert known.cached
        assert known.model_copy(update={"cached": False}) == first.turns[0].scores["fake"]
        assert list(failed.turns[0].errors) == ["fake"]
        engine.score([dialogue("c", "hi", "another")])
        assert engine.turns_computed == 2


@pytest.mark.parametrize("given", [{"namespace": "other"}, {"secret": b"s"}])
def test_scores_of_another_namespace_or_secret_are_not_found(given: dict[str, Any]):
    kept = Kept()
    for own in ({}, given):
        with engine_of(fake=FakeScorer(), shared=kept, **own) as engine:
            engine.score([dialogue("a", "hi", "hello you")])
            assert engine.turns_computed == 1


def test_an_entry_that_cannot_be_read_is_computed_anew():
    kept = Kept()
    for _ in range(2):
        with engine_of(fake=FakeScorer(), shared=kept) as engine:
            engine.score([dialogue("a", "hi", "hello you")])
            assert engine.turns_computed == 1
        kept.entries = {key: entry[:-1] for key, entry in kept.entries.items()}
