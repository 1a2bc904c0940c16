"""FED's packing: conversations and follow-up trees become the arrays of one pass. Token ids only, no text.

A conversation's tokens are computed once, as its trunk. A branch hangs off the trunk after its first `start` tokens:
a follow-up tree, and before it, where several responses to one context are compared, the response. So a turn is a trunk
with one branch, a dialogue a trunk with a branch a turn, and candidate responses one trunk, the context, with a
branch each.

    trunk     <eos> hi <eos> hello you <eos> how are you <eos>
    branches           start 3 ┘└ tree      start 6 ┘└ tree

A branch token attends to the trunk's first `start` tokens and to its own ancestors in the branch. Nodes stand in
depth-first order, so node i is an ancestor of node j exactly if i <= j <= ends[i]: one number a token holds the tree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnscore_core.inference.padding import padded_width
from turnscore_core.scorers.fed.tree import CONTEXT_END, FollowUpTree

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Branch:
    """A tree that hangs off the trunk's first `start` tokens, after the tokens of `stem`, which may be none."""

    start: int
    stem: tuple[int, ...]
    tree: FollowUpTree

    @property
    def context_tokens(self) -> int:
        """Tokens before the follow-ups, the first included."""
        return self.start + len(self.stem)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens fed to the model, in order."""
        return (*self.stem, *self.tree.ids.tolist())


@dataclass(frozen=True, slots=True)
class Conversation:
    """One trunk with its branches. `with_context` asks for the losses of the context's tokens too."""

    trunk: tuple[int, ...]
    branches: tuple[Branch, ...]
    with_context: bool


@dataclass(frozen=True, slots=True)
class BranchLosses:
    """What the pass found for one branch: each tree token's loss, and the context's summed loss where asked for."""

    tree: Floats
    context: float


class FedBatch:
    """Conversations as the graph's inputs, and the way back from its losses."""

    def __init__(
        self, conversations: Sequence[Conversation], pad_id: int, round_trunk: Callable[[int], int] = padded_width
    ) -> None:
        """Rows are padded to a few widths; padding reaches no result.

        Trunks, whose lengths vary, are as wide as `round_trunk` makes them; branches depend on what is asked.
        """
        self._conversations = conversations
        self._branches = [branch for each in conversations for branch in each.branches]
        self._trunk_width = round_trunk(max(len(each.trunk) for each in conversations))
        self._branch_width = padded_width(max(len(each.stem) + len(each.tree.ids) for each in self._branches))
        self._pad_id = pad_id

    @property
    def fed_tokens(self) -> int:
        """Tokens that the model computes, without padding."""
        trunks = sum(len(each.trunk) for each in self._conversations)
        return trunks + sum(len(each.stem) + len(each.tree.ids) for each in self._branches)

    def feeds(self) -> dict[str, Ints]:
        """The inputs of the graph, int64.

        `trunk_ids` [trunks, tokens]; `branch_ids`, `branch_positions`, `branch_ends` [branches, tokens];
        `branch_trunk`, `branch_start` [branches]; `predictors` [predictors], places in all trunks and then all branches
        laid end to end; `target_predictor` (a place in `predictors`) and `target_ids` [targets].
        """
        feeds = self._pad_branches()
        feeds["trunk_ids"] = np.full((len(self._conversations), self._trunk_width), self._pad_id, np.int64)
        for row, each in enumerate(self._conversations):
            feeds["trunk_ids"][row, : len(each.trunk)] = each.trunk
        return feeds | self._list_targets().feeds()

    def read_losses(self, losses: NDArray[np.float32]) -> list[BranchLosses]:
        """The graph's losses [targets] by branch, in the order of conversations and their branches."""
        rest = losses.astype(np.float64)
        found = []
        for conversation in self._conversations:
            trunk, rest = np.split(rest, [len(conversation.trunk) - 1 if conversation.with_context else 0])
            for branch in conversation.branches:
                stem, tree, rest = np.split(
                    rest, np.cumsum([len(branch.stem) * conversation.with_context, len(branch.tree.targets)])
                )
                context = float(trunk[: branch.start - 1].sum() + stem.sum())
                found.append(BranchLosses(tree, context))
        return found

    def _pad_branches(self) -> dict[str, Ints]:
        shape = (len(self._branches), self._branch_width)
        ids = np.full(shape, self._pad_id, np.int64)
        positions = np.zeros(shape, np.int64)
        ends = np.tile(np.arange(self._branch_width), (len(self._branches), 1))  # padding sees the trunk and itself
        for row, branch in enumerate(self._branches):
            stem, width = len(branch.stem), len(branch.stem) + len(branch.tree.ids)
            ids[row, :width] = branch.ids
            positions[row, :stem] = branch.start + np.arange(stem)
            positions[row, stem:width] = branch.context_tokens + branch.tree.depths
            ends[row, :stem] = width - 1
            ends[row, stem:width] = stem + branch.tree.ends
        trunk = [row for row, each in enumerate(self._conversations) for _ in each.branches]
        start = [branch.start for branch in self._branches]
        return {
            "branch_ids": ids,
            "branch_positions": positions,
            "branch_ends": ends,
            "branch_trunk": np.array(trunk, np.int64),
            "branch_start": np.array(start, np.int64),
        }

    def _list_targets(self) -> "_Targets":
        targets = _Targets()
        row = 0
        for number, conversation in enumerate(self._conversations):
            first = number * self._trunk_width
            trunk = np.array(conversation.trunk, np.int64)
            if conversation.with_context:
                targets.add(first + np.arange(len(trunk) - 1), np.arange(len(trunk) - 1), trunk[1:])
            for branch in conversation.branches:
                place = len(self._conversations) * self._trunk_width + row * self._branch_width
                targets.add_branch(branch, first + branch.start - 1, place, conversation.with_context)
                row += 1
        return targets


class _Targets:
    """Collects which tokens predict something, and what."""

    def __init__(self) -> None:
        self._predictors: list[Ints] = []
        self._target_predictors: list[Ints] = []
        self._ids: list[Ints] = []
        self._predictor_count = 0

    def feeds(self) -> dict[str, Ints]:
        return {
            "predictors": np.concatenate(self._predictors),
            "target_predictor": np.concatenate(self._target_predictors),
            "target_ids": np.concatenate(self._ids),
        }

    def add(self, predictors: Ints, target_predictors: Ints, ids: Ints) -> None:
        self._predictors.append(predictors.astype(np.int64))
        self._target_predictors.append(target_predictors + self._predictor_count)
        self._ids.append(ids)
        self._predictor_count += len(predictors)

    def add_branch(self, branch: Branch, trunk_end: int, place: int, with_context: bool) -> None:
        stem = len(branch.stem)
        states = np.concatenate([[trunk_end], place + np.arange(stem)])
        if with_context and stem:
            self.add(states[:-1], np.arange(stem), np.array(branch.stem, np.int64))
        # Every fed node of a tree predicts something, and so does the token before it.
        nodes = place + stem + np.arange(len(branch.tree.ids))
        self.add(np.concatenate([states[-1:], nodes]), branch.tree.predictors - CONTEXT_END, branch.tree.targets)
