"""Request checks: sizes against the service's limits, and names against what is loaded. Names the field at fault."""

from collections.abc import Iterable, Sequence

import turnscore_wire as wire
from turnscore_core.dialogues import check_system_text, check_text, check_turns, choose_turns, too_many
from turnscore_core.errors import InvalidRequestError, ScoringError, TooLargeError, UnknownPathError
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_set import ModelSet, check_speaker, read_choice
from turnscore_wire.conversations import Transcript

# On average, the most that a request's messages may have. Chosen: a text and some pictures in each.
PARTS_PER_MESSAGE = 4


def check_dialogue_request(
    request: wire.DialogueRequest, limits: wire.Limits, model_set: ModelSet
) -> tuple[dict[str, object], list[tuple[int, dict[str, object]]]]:
    """The scorers asked for as `read_choice` gives them, and the turns to score as `choose_turns` does.

    Every scorer needs one, and a system turn to score a text. Raises TooLargeError or InvalidRequestError for the first
    field that this service cannot take, as the other checks do.
    """
    if request.messages:
        _check_messages("messages", request.messages, request.mapped, limits)
    else:
        check_turns("turns", request.turns, limits)
    asked = read_choice(request, model_set, model_set.defaults)
    chosen = choose_turns(request.turns, asked, model_set, "messages" if request.messages else "turns")
    for place, _ in chosen:
        check_system_text(request.turns[place], f"turns.{place}.text")
    return asked, chosen


def check_rank_request(
    request: wire.RankRequest, limits: wire.Limits, model_set: ModelSet
) -> tuple[dict[str, object], dict[str, float]]:
    """The scorers asked for, and the weight of each: a weight names one of them, and one is not 0.

    Where no scorers are named, those that have a weight are asked.
    """
    if len(request.candidates) > limits.max_candidates:
        raise TooLargeError(
            f"{len(request.candidates)} candidates; at most {limits.max_candidates} are allowed at once",
            field="candidates",
        )
    for index, text in enumerate(request.candidates):
        check_text(f"candidates.{index}", text, limits)
    check_context(request, limits)
    given = request.weights or {}
    named = [name for name in given if name in model_set.scorers or name in model_set.combinations]
    asked = read_choice(request, model_set, named or model_set.ranking)
    for name in given:
        if name not in asked:
            raise InvalidRequestError("this scorer is not among those asked", field=f"weights.{name}")
    check_speaker(request, asked, "system", model_set)
    weights = {name: given.get(name, 1.0) for name in asked}
    if not any(weights.values()):
        raise InvalidRequestError("at least one scorer must weigh more than 0", field="weights")
    return asked, weights


def check_similarity_request(request: wire.SimilarityRequest, limits: wire.Limits, model_set: ModelSet) -> LoadedScorer:
    """The encoder that is to compare. Raises UnknownPathError where there is none, and TooLargeError."""
    if model_set.encoder is None:
        raise UnknownPathError("no bundle of kind encoder is loaded, which compares texts; see docs/references.md")
    texts, references = request.texts, request.references
    count = len(texts) + len(references or texts)
    if count > limits.max_items:
        field = "references" if len(texts) < len(references) else "texts"
        message = (
            f"{len(texts)} texts against {len(references or texts)}; together at most {limits.max_items} are allowed"
        )
        raise TooLargeError(message, field=field)
    for field, listed in (("texts", texts), ("references", references)):
        for index, text in enumerate(listed):
            check_text(f"{field}.{index}", text, limits)
    return model_set.encoder


def check_opening(
    opening: wire.ConversationOpening, limits: wire.Limits, model_set: ModelSet, asked: Iterable[str] | None = None
) -> dict[str, object]:
    """The scorers asked for; the fields are named as those of the message that opens a conversation.

    `asked` are the scorers that an open conversation asks of other models, which may not know its options.
    """
    try:
        check_context(opening, limits)
        return read_choice(opening, model_set, model_set.defaults if asked is None else tuple(asked))
    except ScoringError as error:
        raise type(error)(error.message, field=f"open.{error.field}") from None


def check_conversation_turn(turn: wire.Turn, index: int, limits: wire.Limits) -> None:
    """Raises TooLargeError or InvalidRequestError where it cannot be a conversation's turn number `index`."""
    if index >= limits.max_turns:
        raise TooLargeError(f"at most {limits.max_turns} turns are allowed in one conversation", field="turn")
    check_text("turn.text", turn.text, limits)
    check_system_text(turn, "turn.text")


def check_conversation_messages(
    transcript: Transcript, messages: Sequence[wire.ChatMessage], limits: wire.Limits
) -> None:
    """As `check_conversation_turn`, of messages, together with those that wait for the rest of a turn."""
    waiting = len(transcript.waiting)
    together = [*transcript.waiting, *messages]
    mapped = wire.map_messages(together)
    _check_messages("messages.messages", together, mapped, limits, waiting)
    if len(transcript.turns) + len(mapped.turns) > limits.max_turns:
        raise TooLargeError(f"at most {limits.max_turns} turns are allowed in one conversation", field="messages")
    if mapped.ends_silent:
        raise InvalidRequestError("the assistant's last message has no text to score", field="messages.messages")


def check_turn_counts(parsed: object, limits: wire.Limits, path: str = "") -> None:
    """Raises TooLargeError where a request that is not checked yet has more turns or texts than one may carry."""
    if isinstance(parsed, dict):
        for field in ("context", "turns"):
            if isinstance(turns := parsed.get(field), list) and len(turns) > limits.max_turns:
                raise too_many(f"{path}{field}", turns, limits)
        if isinstance(messages := parsed.get("messages"), list):
            lists = [each.get(name) for each in messages if isinstance(each, dict) for name in ("content", "parts")]
            parts = sum(len(each) for each in lists if isinstance(each, list))
            _check_message_counts(f"{path}messages", len(messages), parts, limits)
        most = {"texts": limits.max_items, "references": limits.max_items, "documents": limits.max_candidates}
        for field, allowed in most.items():
            if isinstance(texts := parsed.get(field), list) and len(texts) > allowed:
                raise TooLargeError(f"{len(texts)} {field}; at most {allowed} are allowed at once", field=field)
        for field in ("open", "messages"):
            check_turn_counts(parsed.get(field), limits, f"{field}.")


def check_item_count(count: int, limits: wire.Limits) -> None:
    """Raises TooLargeError where a batch has more items than one request may carry."""
    if count > limits.max_items:
        raise TooLargeError(f"{count} items; at most {limits.max_items} are allowed at once", field="items")


def _check_message_counts(field: str, messages: int, parts: int, limits: wire.Limits) -> None:
    if messages > limits.max_turns:
        raise TooLargeError(f"{messages} messages; at most {limits.max_turns} are allowed at once", field=field)
    most = PARTS_PER_MESSAGE * limits.max_turns
    if parts > most:
        raise TooLargeError(f"{parts} parts of messages; at most {most} are allowed at once", field=field)


def _check_messages(
    field: str, messages: Sequence[wire.ChatMessage], mapped: wire.MappedMessages, limits: wire.Limits, waiting: int = 0
) -> None:
    """Checks messages and their turns. Those that are `waiting` came before, and do not count in a field's path."""
    _check_message_counts(field, len(messages), sum(len(each.parts) for each in messages), limits)
    for turn, index in zip(mapped.turns, mapped.indices, strict=True):
        check_text(f"{field}.{max(0, index - waiting)}.content", turn.text, limits)


def check_context(
    request: wire.ScoreRequest | wire.RankRequest | wire.ConversationOpening, limits: wire.Limits
) -> None:
    """Checks the turns before what is asked about, which may stand in messages."""
    if request.messages:
        _check_messages("messages", request.messages, request.mapped, limits)
    else:
        check_turns("context", request.context, limits)
