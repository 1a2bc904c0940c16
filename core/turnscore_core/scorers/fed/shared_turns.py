"""Which turns FED computes together: those of a dialogue, and several responses to one context. Token ids only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnscore_core.scorers.fed.batch import Branch, Conversation
from turnscore_core.scorers.fed.tree import FollowUpTree

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FedTurn:
    """A turn's tokens, context first, both separators included; `context_tokens` of them stand before its response."""

    tokens: Tokens
    context_tokens: int


@dataclass(frozen=True, slots=True)
class SharedTurns:
    """A conversation and, for each of its branches, which of the turns it answers."""

    conversation: Conversation
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
            conversation = Conversation(trunk, tuple(branch for _, branch in part), with_context)
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
