import numpy as np
from turnscore_core.scorers.fed.batch import Branch, Conversation, FedBatch, build_tree


def test_a_batch_gives_the_same_inputs_each_time_it_is_asked() -> None:
    tree = build_tree([[1, 2], [1, 3, 4]])
    branches = (Branch(3, (9, 0), tree), Branch(5, (), tree))
    batch = FedBatch([Conversation((0, 5, 0, 6, 0), branches, with_context=True)], pad_id=0)
    first, second = batch.feeds(), batch.feeds()
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values)
