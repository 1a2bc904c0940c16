"""Reopening: how a conversation goes on with another replica. Pure; opens and sends nothing."""

from collections.abc import Callable, Mapping, Sequence

from turnscore_wire import ConversationOpening, ConversationReply, DialogueAggregate, Turn

Dialogue = Mapping[str, DialogueAggregate]


def opening_with(opening: ConversationOpening, turns: Sequence[Turn]) -> ConversationOpening:
    """The same choices over what was said meanwhile. Raises as ConversationOpening does where that is too much."""
    kept = {name: getattr(opening, name) for name in opening.model_fields_set - {"context", "messages"}}
    return ConversationOpening(**kept, context=list(turns))


def has_ended(reply: ConversationReply) -> bool:
    """Whether the replica says that it shuts down, which ends the conversation; what it was asked it has not taken."""
    return reply.error is not None and reply.error.code == "not_ready"


def join(before: Dialogue, after: Dialogue) -> dict[str, DialogueAggregate]:
    """The aggregates over the turns of both: a conversation's before and after it was opened anew."""
    joined = {**before, **after}
    for name in before.keys() & after.keys():
        joined[name] = _join_one(before[name], after[name])
    return joined


def _join_one(one: DialogueAggregate, other: DialogueAggregate) -> DialogueAggregate:
    turns = one.turns + other.turns

    def mean(first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else (first * one.turns + second * other.turns) / turns

    def outer(choose: Callable[..., float], first: float | None, second: float | None) -> float | None:
        return None if first is None or second is None else choose(first, second)

    return DialogueAggregate(
        mean=(one.mean * one.turns + other.mean * other.turns) / turns,
        min=min(one.min, other.min),
        max=max(one.max, other.max),
        turns=turns,
        percentile_mean=mean(one.percentile_mean, other.percentile_mean),
        percentile_min=outer(min, one.percentile_min, other.percentile_min),
        percentile_max=outer(max, one.percentile_max, other.percentile_max),
    )
