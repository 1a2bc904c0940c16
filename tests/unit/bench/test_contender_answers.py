"""How the benchmark tells right answers from wrong ones."""

import numpy as np
import pytest
from turnscore_bench.servers.contenders import furthest
from turnscore_bench.servers.foreign_contenders import least_cosine_distance


def test_values_are_as_far_off_as_the_furthest():
    assert furthest([0.5, 0.25], [0.5, 0.75]) == 0.5


def test_vectors_are_as_far_off_as_the_one_that_points_away_most():
    chance = np.random.default_rng(0)
    vectors = chance.normal(size=(3, 384))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    turned = vectors.copy()
    turned[1] *= -1
    assert least_cosine_distance(vectors.ravel().tolist(), vectors.ravel().tolist()) == pytest.approx(0)
    assert least_cosine_distance(turned.ravel().tolist(), vectors.ravel().tolist()) == pytest.approx(2)
