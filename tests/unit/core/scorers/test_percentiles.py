"""A value's percentile is what numpy.interp says, to the last bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from turnscore_core.loaded_scorer import interpolate

RANKS = np.arange(101.0)
values = st.floats(-20, 20, allow_nan=False)


@given(st.lists(values, min_size=101, max_size=101).map(sorted), st.lists(values, max_size=20))
def test_percentiles_are_numpys(points, asked):
    for value in (*asked, *points, points[0] - 1, points[-1] + 1):
        assert interpolate(value, points) == float(np.interp(value, np.array(points), RANKS))


def test_equal_points_have_the_last_ones_rank():
    points = [0.0] * 40 + [0.5] * 61
    for value in (0.0, 0.25, 0.5):
        assert interpolate(value, points) == float(np.interp(value, np.array(points), RANKS))
