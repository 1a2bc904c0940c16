"""How much arithmetic a FED pass needs at the least: a bound on what sharing can save, whatever the machine."""

from collections.abc import Iterable
from dataclasses import dataclass

from turnscore_core.scorers.fed.batch import Branch, Conversation

# Specified by GPT-2: query, key and value take 3 width * width, attention's output 1, the MLP 4 and 4.
QUERY_KEY_VALUE, REST_OF_LAYER = 3, 9


@dataclass(frozen=True)
class ModelShape:
    """A GPT-2's."""

    layers: int
    width: int
    vocabulary: int


def count_operations(conversations: Iterable[Conversation], shape: ModelShape) -> int:
    """Floating point operations of one pass: matmuls alone, none of them for padding or for tokens out of sight.

    The tokens that nothing is predicted from leave the last layer after query, key and value.
    """
    return sum(_count(each, shape) for each in conversations)


def _count(conversation: Conversation, shape: ModelShape) -> int:
    trunk, branches = len(conversation.trunk), conversation.branches
    tokens = trunk + sum(len(each.ids) for each in branches)
    predictors = sum(1 + len(each.tree.ids) for each in branches)
    if conversation.with_context:
        predictors += trunk - 1 + sum(len(each.stem) for each in branches)
    pairs = trunk * (trunk + 1) // 2 + sum(map(_count_pairs, branches))
    square = shape.width * shape.width
    whole_layers = (shape.layers - 1) * tokens * (QUERY_KEY_VALUE + REST_OF_LAYER) * square
    last_layer = (tokens * QUERY_KEY_VALUE + predictors * REST_OF_LAYER) * square
    attention = shape.layers * pairs * 2 * shape.width  # a score and a share of the value
    head = predictors * shape.width * shape.vocabulary
    return 2 * (whole_layers + last_layer + attention + head)  # a multiplication and an addition


def _count_pairs(branch: Branch) -> int:
    """Which token sees which: the trunk's beginning, its own ancestors, itself."""
    stem = len(branch.stem)
    own = stem * (stem + 1) // 2 + sum(stem + int(depth) + 1 for depth in branch.tree.depths)
    return len(branch.ids) * branch.start + own
