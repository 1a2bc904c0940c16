"""The ceilings of `make check`: what counts as code, what is refused, and that ceilings only fall."""

import pytest
from sizes import find_excess, lower


@pytest.mark.parametrize(
    ("ceilings", "excess"),
    [({"lines": 100}, []), ({"lines": 99}, ["lines is 100, the ceiling 99"]), ({}, ["lines has no ceiling"])],
)
def test_a_size_above_its_ceiling_or_without_one_is_refused(ceilings, excess):
    assert find_excess({"lines": 100}, ceilings) == excess


def test_ceilings_are_lowered_and_never_raised():
    text = "lines = 120\nwords = 90\n"
    assert lower(text, {"lines": 100, "words": 100}, {"lines": 120, "words": 90}) == "lines = 100\nwords = 90\n"
