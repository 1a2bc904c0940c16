from turnscore_bench.fed.work import ModelShape, count_operations
from turnscore_core.scorers.fed.batch import Branch, Conversation, build_tree

SHAPE = ModelShape(layers=2, width=10, vocabulary=1000)
TREE = build_tree([[1, 2, 3], [1, 4]])  # feeds 1 and 2


def test_every_token_passes_the_layers_and_every_predictor_the_head() -> None:
    conversation = Conversation((0, 5, 0), (Branch(3, (), TREE),), with_context=False)
    pairs = 6 + (3 + 1) + (3 + 2)
    first_layer, last_layer = 5 * 12 * 100, 5 * 3 * 100 + 3 * 9 * 100
    expected = 2 * (first_layer + last_layer + 2 * pairs * 2 * 10 + 3 * 10 * 1000)
    assert count_operations([conversation], SHAPE) == expected


def test_the_contexts_own_loss_needs_the_head_for_its_tokens_too() -> None:
    branches = (Branch(2, (7, 0), TREE), Branch(3, (), TREE))
    quiet, loud = (
        count_operations([Conversation((0, 5, 0), branches, with_context=each)], SHAPE) for each in (False, True)
    )
    assert loud - quiet == 2 * (2 + 2) * (9 * 100 + 10 * 1000)


def test_a_stem_is_seen_by_itself_and_by_its_tree() -> None:
    without, with_stem = (
        count_operations([Conversation((0, 5, 0), (Branch(2, stem, TREE),), with_context=False)], SHAPE)
        for stem in ((), (7, 0))
    )
    pairs = 2 * 2 + 3 + 2 * 2
    assert with_stem - without == 2 * (2 * 12 * 100 + 2 * 3 * 100 + 2 * pairs * 2 * 10)
