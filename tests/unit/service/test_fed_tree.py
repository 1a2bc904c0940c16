import numpy as np
import pytest
from turnscore_service.inference.fed_tree import CONTEXT_END, build_tree

FOLLOW_UPS = [[1, 2, 3], [1, 2, 4, 5], [6], [1, 2], [6, 7]]


def test_shared_beginnings_are_held_once() -> None:
    tree = build_tree(FOLLOW_UPS)
    assert sorted(tree.targets.tolist()) == [1, 2, 3, 4, 5, 6, 7]


def test_a_token_that_nothing_follows_is_not_fed() -> None:
    assert build_tree(FOLLOW_UPS).ids.tolist() == [1, 2, 4, 6]


def test_first_tokens_are_predicted_from_the_context_and_others_from_the_token_before() -> None:
    tree = build_tree(FOLLOW_UPS)
    predicted_from = dict(zip(tree.targets.tolist(), tree.predictors.tolist(), strict=True))
    assert predicted_from == {1: CONTEXT_END, 2: 0, 3: 1, 4: 1, 5: 2, 6: CONTEXT_END, 7: 3}


def test_depths_and_ends_tell_who_is_below_whom() -> None:
    tree = build_tree(FOLLOW_UPS)
    assert tree.depths.tolist() == [0, 1, 2, 0]
    assert tree.ends.tolist() == [2, 2, 2, 3]


def test_losses_are_means_over_each_follow_ups_own_tokens() -> None:
    tree = build_tree(FOLLOW_UPS)
    losses = tree.targets.astype(np.float64)
    assert tree.response_losses(losses) == pytest.approx([2, 3, 6, 1.5, 6.5])
    assert tree.whole_losses(losses, context_loss=10.0, context_tokens=5)[2] == pytest.approx(16 / 6)


def test_an_empty_follow_up_is_refused() -> None:
    with pytest.raises(ValueError, match="one token or more"):
        build_tree([[1], []])
