"""The tree of follow-up utterances: every distinct one once, shared beginnings merged. Token ids only, no text.

    Wow ─ that ─ is ─ really ─ interesting ─ .
     └─── ! ─ That ─ 's ─ really ─ cool ─ !
    That ─ 's ─ really ─ interesting ─ !
                   └──── boring ─ .

A node is fed to the model only if something follows it: nothing is predicted from a follow-up's last token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CONTEXT_END = -1
"""Stands for the last token of the context, from which a follow-up's first token is predicted."""


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
        """Tokens of the longest follow-up."""
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
        """Bytes that the arrays hold."""
        arrays = (self.ids, self.depths, self.ends, self.predictors, self.targets, self.paths, self.firsts)
        return sum(each.nbytes for each in (*arrays, self.lengths))


@dataclass(slots=True)
class _Node:
    token: int
    children: "dict[int, _Node]" = field(default_factory=dict)
    place: int = 0
    """Which of the targets it is."""


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
    walk = _Walk()
    walk.visit(root.children.values(), CONTEXT_END, depth=0)
    lengths = np.array([len(each) for each in follow_ups], np.int64)
    return FollowUpTree(
        ids=np.array(walk.ids, np.int64),
        depths=np.array(walk.depths, np.int64),
        ends=np.array(walk.ends, np.int64),
        predictors=np.array(walk.predictors, np.int64),
        targets=np.array(walk.targets, np.int64),
        paths=np.array([node.place for node in nodes], np.int64),
        firsts=np.cumsum(lengths) - lengths,
        lengths=lengths.astype(np.float64),
    )


class _Walk:
    """Collects the arrays of a tree, depth first; as deep as the longest follow-up, which limits keep short."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.depths: list[int] = []
        self.ends: list[int] = []
        self.predictors: list[int] = []
        self.targets: list[int] = []

    def visit(self, nodes: Iterable[_Node], parent: int, depth: int) -> None:
        for node in nodes:
            node.place = len(self.targets)
            self.predictors.append(parent)
            self.targets.append(node.token)
            if node.children:
                place = len(self.ids)
                self.ids.append(node.token)
                self.depths.append(depth)
                self.ends.append(place)
                self.visit(node.children.values(), place, depth + 1)
                self.ends[place] = len(self.ids) - 1
