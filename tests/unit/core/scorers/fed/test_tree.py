import math
import tracemalloc

import numpy as np
from turnscore_core.scorers.fed.batch import CONTEXT_END, build_tree

FOLLOW_UPS = [[1, 2, 3], [1, 2, 4, 5], [6], [1, 2], [6, 7]]


def test_first_tokens_are_predicted_from_the_context_and_others_from_the_token_before() -> None:
    tree = build_tree(FOLLOW_UPS)
    predicted_from = dict(zip(tree.targets.tolist(), tree.predictors.tolist(), strict=True))
    assert predicted_from == {1: CONTEXT_END, 2: 0, 3: 1, 4: 1, 5: 2, 6: CONTEXT_END, 7: 3}


def test_sums_are_those_of_a_follow_ups_own_losses_to_the_last_bit() -> None:
    draw = np.random.default_rng(3)
    follow_ups = [draw.integers(0, 4, draw.integers(1, 9)).tolist() for _ in range(300)]
    tree = build_tree(follow_ups)
    losses = draw.exponential(3.0, len(tree.targets)).astype(np.float32)
    by_path = {}
    paths: list[tuple[int, ...]] = []
    for place, (predictor, target) in enumerate(zip(tree.predictors.tolist(), tree.targets.tolist(), strict=True)):
        path = (*(paths[predictor] if predictor != CONTEXT_END else ()), target)
        by_path[path] = float(losses[place])
        if any(tuple(each[: len(path)]) == path and len(each) > len(path) for each in follow_ups):
            paths.append(path)  # it is fed, so that others can name it
    expected = [math.fsum(by_path[tuple(each[: end + 1])] for end in range(len(each))) for each in follow_ups]
    assert tree.sum_losses(losses).tolist() == expected


def test_a_tree_takes_memory_for_its_tokens_not_for_their_square() -> None:
    def traced_bytes(count: int) -> int:
        follow_ups = [[number, *range(10_000, 10_030)] for number in range(count)]
        tracemalloc.start()
        tree = build_tree(follow_ups)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert tree.size_bytes < 100 * sum(map(len, follow_ups))
        return peak

    assert traced_bytes(400) < 6 * traced_bytes(100)
