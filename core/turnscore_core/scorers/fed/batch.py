"""FED's packing: conversations and follow-up trees become the arrays of one pass. Token ids only, no text.

A conversation's tokens are computed once, as its trunk. A branch hangs off the trunk after its first `start` tokens:
a follow-up tree, and before it, where several responses to one context are compared, the response. So a turn is a trunk
with one branch, a dialogue a trunk with a branch a turn, and candidate responses one trunk, the context, with a
branch each.

    trunk     <eos> hi <eos> hello you <eos> how are you <eos>
    branches           start 3 ┘└ tree      start 6 ┘└ tree

A branch token attends to the trunk's first `start` tokens and to its own ancestors in the branch. Nodes stand in
depth-first order, so node i is an ancestor of node j exactly if i <= j <= ends[i]: one number a token holds the tree.

A tree holds every distinct follow-up utterance once, shared beginnings merged:

    Wow ─ that ─ is ─ really ─ interesting ─ .
     └─── ! ─ That ─ 's ─ really ─ cool ─ !
    That ─ 's ─ really ─ interesting ─ !
                   └──── boring ─ .

A node is fed to the model only if something follows it: nothing is predicted from a follow-up's last token.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from turnscore_core.inference.onnx_backend import padded_width

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CONTEXT_END = -1  # stands for the last token of the context, from which a follow-up's first token is predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpTree:
    """The nodes in depth-first order, and the losses that come out of a pass over them.

    `ids`, `depths` and `ends` have one entry a fed node: its token, its distance from the context's end, and the last
    node below it. `predictors` and `targets` have one entry a token of the tree: the node it is predicted from
    (CONTEXT_END for a first token) and its id. `paths` are the targets of each follow-up's tokens, one follow-up after
    the other; `firsts` says where in `paths` each begins.
    """

    ids: Ints
    depths: Ints
    ends: Ints
    predictors: Ints
    targets: Ints
    paths: Ints
    firsts: Ints
    lengths: Floats

    @property
    def longest(self) -> int:
        return int(self.lengths.max())

    def response_losses(self, losses: Floats) -> Floats:
        """Mean loss of each follow-up's own tokens, of the losses [targets]."""
        return self.sum_losses(losses) / self.lengths

    def whole_losses(self, losses: Floats, context_loss: float, context_tokens: int) -> Floats:
        """Mean loss of context and follow-up together; both of the context without its first token."""
        return (context_loss + self.sum_losses(losses)) / (context_tokens + self.lengths)

    def sum_losses(self, losses: Floats) -> Floats:
        """Summed loss of each follow-up's tokens, float64."""
        total: Floats = np.add.reduceat(losses.astype(np.float64)[self.paths], self.firsts)
        return total

    @property
    def size_bytes(self) -> int:
        arrays = (self.ids, self.depths, self.ends, self.predictors, self.targets, self.paths, self.firsts)
        return sum(each.nbytes for each in (*arrays, self.lengths))


@dataclass(slots=True)
class _Node:
    token: int
    children: "dict[int, _Node]" = field(default_factory=dict)
    place: int = 0  # which of the targets it is


def build_tree(follow_ups: Sequence[Sequence[int]]) -> FollowUpTree:
    """The tree of distinct token sequences, none empty; losses keep their order."""
    if not follow_ups or not all(follow_ups):
        raise ValueError("a tree needs follow-ups, each of one token or more")
    root = _Node(0)
    nodes = []
    for tokens in follow_ups:
        node = root
        for token in tokens:
            node = node.children.setdefault(token, _Node(token))
            nodes.append(node)
    columns: tuple[list[int], ...] = ([], [], [], [], [])
    ids, depths, ends, predictors, targets = columns

    def visit(nodes: Iterable[_Node], parent: int, depth: int) -> None:
        """Depth first; as deep as the longest follow-up, which limits keep short."""
        for node in nodes:
            node.place = len(targets)
            predictors.append(parent)
            targets.append(node.token)
            if node.children:
                place = len(ids)
                ids.append(node.token)
                depths.append(depth)
                ends.append(place)
                visit(node.children.values(), place, depth + 1)
                ends[place] = len(ids) - 1

    visit(root.children.values(), CONTEXT_END, depth=0)
    lengths = np.array([len(each) for each in follow_ups], np.int64)
    return FollowUpTree(
        ids=np.array(ids, np.int64),
        depths=np.array(depths, np.int64),
        ends=np.array(ends, np.int64),
        predictors=np.array(predictors, np.int64),
        targets=np.array(targets, np.int64),
        paths=np.array([node.place for node in nodes], np.int64),
        firsts=np.cumsum(lengths) - lengths,
        lengths=lengths.astype(np.float64),
    )


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
        return (*self.stem, *self.tree.ids.tolist())


@dataclass(frozen=True, slots=True)
class BranchedTrunk:
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
        self, conversations: Sequence[BranchedTrunk], pad_id: int, round_trunk: Callable[[int], int] = padded_width
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


Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FedTurn:
    """A turn's tokens, context first, both separators included; `context_tokens` of them stand before its response."""

    tokens: Tokens
    context_tokens: int


@dataclass(frozen=True, slots=True)
class SharedTurns:
    """A conversation and, for each of its branches, which of the turns it answers."""

    conversation: BranchedTrunk
    places: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class _Trunk:
    tokens: Tokens
    members: list[FedTurn]


def share_turns(
    turns: Sequence[FedTurn], tree: FollowUpTree, *, with_context: bool, max_tokens: int
) -> list[SharedTurns]:
    """Puts turns whose tokens begin another's on its trunk, and equal contexts of the rest under one trunk.

    Equal turns are computed once. A conversation of more than `max_tokens` tokens, branches included, is divided.
    """
    places: dict[Tokens, list[int]] = {}
    for place, turn in enumerate(turns):
        places.setdefault(turn.tokens, []).append(place)
    distinct = {turn.tokens: turn for turn in turns}
    shared = []
    for branches in _find_branches(list(distinct.values()), tree):
        for trunk, part in _divide(branches, max_tokens):
            conversation = BranchedTrunk(trunk, tuple(branch for _, branch in part), with_context)
            shared.append(SharedTurns(conversation, tuple(tuple(places[turn.tokens]) for turn, _ in part)))
    return shared


def _find_branches(turns: Sequence[FedTurn], tree: FollowUpTree) -> Iterator[list[tuple[FedTurn, Branch]]]:
    """The turns that share a trunk, each with its branch."""
    trunks: list[_Trunk] = []
    for turn in sorted(turns, key=lambda each: len(each.tokens), reverse=True):
        home = next((each for each in trunks if each.tokens[: len(turn.tokens)] == turn.tokens), None)
        if home is None:
            trunks.append(_Trunk(turn.tokens, [turn]))
        else:
            home.members.append(turn)
    alone: dict[Tokens, list[FedTurn]] = {}
    for trunk in trunks:
        if len(trunk.members) == 1:
            [turn] = trunk.members
            alone.setdefault(turn.tokens[: turn.context_tokens], []).append(turn)
        else:
            yield [(turn, Branch(len(turn.tokens), (), tree)) for turn in reversed(trunk.members)]
    for context, candidates in alone.items():
        # A context of one token, the separator, is too little to be worth a stem.
        start = len(context) if len(candidates) > 1 and len(context) > 1 else None
        if start is None:
            yield from ([(turn, Branch(len(turn.tokens), (), tree))] for turn in candidates)
        else:
            yield [(turn, Branch(start, turn.tokens[start:], tree)) for turn in candidates]


def _divide(
    branches: Sequence[tuple[FedTurn, Branch]], max_tokens: int
) -> Iterator[tuple[Tokens, list[tuple[FedTurn, Branch]]]]:
    """Parts of at most `max_tokens`, each with the trunk that it needs; the branches come by their start."""
    part: list[tuple[FedTurn, Branch]] = []
    tokens = 0
    for turn, branch in branches:
        size = len(branch.stem) + len(branch.tree.ids)
        if part and branch.start + tokens + size > max_tokens:
            yield _trunk_of(part), part
            part, tokens = [], 0
        part.append((turn, branch))
        tokens += size
    yield _trunk_of(part), part


def _trunk_of(part: Sequence[tuple[FedTurn, Branch]]) -> Tokens:
    turn, branch = part[-1]
    return turn.tokens[: branch.start]
