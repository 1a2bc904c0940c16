"""Extremes: every form of request at the largest that its documented bounds allow, or just beyond. Pure."""

import json
import random
from dataclasses import dataclass
from typing import Any, Literal

MAX_BODY_BYTES = 1024 * 1024
_DEADLINE_MS = 1  # what is asked here is what a request costs before and besides inference

_LETTERS = b"abcdefghijklmnopqrstuvwxyz" + 6 * b" "
_BOTH = {"scorers": ["quality", "reaction"]}
_NO_MESSAGE = {"is_legal": False, "has_fields": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extreme:
    """One call with its body; `fields` are None where that is no request at all."""

    name: str
    # Of conversations the body is the first message, which opens one.
    call: Literal["score", "score_batch", "score_dialogue", "rank", "rerank", "similarity", "conversations"]
    body: bytes
    fields: dict[str, Any] | None = None
    # To be answered; else to be refused as a whole. A batch is answered though each of its turns may be refused.
    is_legal: bool = True


def extremes(*, with_encoder: bool = False) -> list[Extreme]:
    """All of them, the same each time; comparisons of texts are legal where a service has an encoder."""
    return [*_legal(), *(_compared() if with_encoder else ()), *_refused()]


def _legal() -> list[Extreme]:
    one = {"deadline_ms": _DEADLINE_MS}
    tool = {"role": "tool", "content": {"found": [[]] * 250_000}}
    return [
        _of("batch: 256 turns, 1 MiB", "score_batch", {"items": [_item(4, 950) for _ in range(256)]}),
        _of("batch: 256 turns of 100 tiny ones", "score_batch", {"items": [_item(100, 1) for _ in range(256)]}),
        _of("batch: 256 turns of nothing else", "score_batch", {"items": [_item(0, 1) for _ in range(256)]}),
        _of("batch: 44 turns, own qualities", "score_batch", {"items": [_asking_own(256, 16) for _ in range(44)]}),
        _of("context: 1,024 turns, 1 MiB", "score", {"context": _turns(1024, 950), "response": "ok", **one}),
        _of("context: 128 turns of 8,000", "score", {"context": _turns(128, 7_900), "response": "ok", **one}),
        _of("response: 8,000 emoji", "score", {"response": "\U0001f642" * 8_000, **one}),
        _of("dialogue: 1,024 turns, 1 MiB", "score_dialogue", {"turns": _turns(1024, 950), **one}),
        _of("dialogue: 1,024 turns, 1 MiB, of both", "score_dialogue", {"turns": _turns(1024, 950), **_BOTH, **one}),
        _of("dialogue: 1,024 turns of a letter, of both", "score_dialogue", {"turns": _turns(1024, 1), **_BOTH, **one}),
        _of("dialogue: 1,024 turns of a letter", "score_dialogue", {"turns": _turns(1024, 1), **one}),
        _of("messages: 1,024, 1 MiB", "score", {"messages": _messages(1024, 930), **one}),
        _of("messages: 1,024 of 4 parts, 1 MiB", "score", {"messages": _messages(1024, 200, parts=4), **one}),
        _of("messages: 1,024 in a tool loop", "score_dialogue", {"messages": _tool_loop(512), **one}),
        _of("a tool's result of 250,000 lists", "score", {"messages": [tool, *_messages(2, 9)], **one}),
        _of("batch: 256 of 100 messages", "score_batch", {"items": [{"messages": _messages(100, 1), **one}] * 256}),
        _of("rank: 64 of 8,000, 1 MiB", "rank", {"candidates": _texts(64, 8_000), "context": _turns(60, 7_900), **one}),
        _of("rerank: 64 of 8,000", "rerank", {"query": "a", "documents": _texts(64, 8_000), **one}, has_fields=False),
        _of("own qualities: 256 of 16", "score", _asking_own(256, 16)),
        _of("own qualities: 20 of 200", "score", _asking_own(20, 200)),
        _opened("a conversation opened with 1,023 messages", {"messages": _messages(1023, 900), **one}),
        _opened("a conversation opened with 1,023 turns, 1 MiB", {"context": _turns(1023, 950), **one}),
        _opened("a conversation opened with 1,023 turns of a letter", {"context": _turns(1023, 1), **one}),
    ]


def _compared() -> list[Extreme]:
    both = {"texts": _texts(128, 4_000), "references": _texts(128, 4_001)}
    return [
        _of("similarity: 128 texts with each other, 1 MiB", "similarity", {"texts": _texts(128, 7_900)}),
        _of("similarity: 128 with 128, 1 MiB", "similarity", both),
        _of("similarity: 1 letter with 255", "similarity", {"texts": ["a"], "references": ["b"] * 255}),
    ]


def _refused() -> list[Extreme]:
    turn = {"speaker": "user", "text": "a"}
    said, part, prompt = {"role": "user", "content": "a"}, {"type": "image"}, {"role": "system"}
    return [
        _of("own qualities: 512 of 200", "score", _asking_own(512, 200), is_legal=False),
        _of("batch: 9 times 512 of 200", "score_batch", {"items": [_asking_own(512, 200)] * 9}),
        _of("batch: 40,000 turns", "score_batch", {"items": [{"response": "a"}] * 40_000}, is_legal=False),
        _of("batch: 256 wrong turns", "score_batch", {"items": [{"response": " " * 3_000}] * 256}),
        _of("dialogue: 30,000 turns", "score_dialogue", {"turns": [turn] * 30_000}, is_legal=False),
        _of("rank: 100,000 candidates", "rank", {"candidates": ["a"] * 100_000}, is_legal=False),
        _of("rerank: 65,000 documents", "rerank", {"query": "a", "documents": [{"text": "a"}] * 65_000}, **_NO_MESSAGE),
        _of("similarity: 150,000 texts", "similarity", {"texts": ["a"] * 150_000}, is_legal=False),
        _of(
            "similarity: 100,000 spaced", "similarity", {"texts": ["b"], "references": ["a "] * 100_000}, is_legal=False
        ),
        _of("300,000 texts that are numbers", "similarity", {"texts": [1] * 300_000}, **_NO_MESSAGE),
        _opened("a conversation opened with 25,000 turns", {"context": [turn] * 25_000}, is_legal=False),
        _of("30,000 messages", "score", {"messages": [said] * 30_000}, is_legal=False),
        _of("30,000 messages said", "conversations", {"messages": {"messages": [said] * 30_000}}, is_legal=False),
        _of("50,000 parts in a message", "score", {"messages": [{**said, "content": [part] * 50_000}]}, is_legal=False),
        _of("a prompt of 250,000 lists", "score", {"messages": [{**prompt, "content": [[]] * 250_000}]}, **_NO_MESSAGE),
        _of("90,000 unknown fields", "score", _crowd(90_000), **_NO_MESSAGE),
        _of("a turn of 90,000 fields", "score", {"response": "a", "context": [_crowd(90_000)]}, **_NO_MESSAGE),
        _of("weights for 80,000 scorers", "rank", {"candidates": ["a"], "weights": _crowd(80_000)}, **_NO_MESSAGE),
        _of("options for 60,000 scorers", "score", {"response": "a", "options": _crowd(60_000)}, **_NO_MESSAGE),
        _of("300,000 candidates that are numbers", "rank", {"candidates": [1] * 300_000}, **_NO_MESSAGE),
        Extreme(name="500,000 open brackets", call="score", body=b"[" * 500_000, is_legal=False),
        Extreme(name="1 MiB of no UTF-8", call="score", body=b"\xff" * MAX_BODY_BYTES, is_legal=False),
        Extreme(
            name="1 MiB that ends too early",
            call="score",
            body=b'{"response": "' + b"a" * (MAX_BODY_BYTES - 20),
            is_legal=False,
        ),
    ]


def _of(name: str, call: Any, fields: dict[str, Any], *, is_legal: bool = True, has_fields: bool = True) -> Extreme:
    body = json.dumps(fields, ensure_ascii=False).encode()
    assert len(body) <= MAX_BODY_BYTES, (name, len(body))
    return Extreme(name=name, call=call, body=body, fields=fields if has_fields else None, is_legal=is_legal)


def _opened(name: str, opening: dict[str, Any], *, is_legal: bool = True) -> Extreme:
    return _of(name, "conversations", {"open": opening}, is_legal=is_legal)


def _crowd(fields: int) -> dict[str, int]:
    return {f"{number:x}": 1 for number in range(fields)}


def _texts(count: int, chars: int) -> list[str]:
    chance, letter_of_byte = random.Random(count * chars), 256 // len(_LETTERS) * _LETTERS
    return ["x" + chance.randbytes(chars - 1).translate(letter_of_byte).decode() for _ in range(count)]


def _turns(count: int, chars: int) -> list[dict[str, str]]:
    speakers = ("user", "system")
    return [{"speaker": speakers[place % 2], "text": text} for place, text in enumerate(_texts(count, chars))]


def _messages(count: int, chars: int, *, parts: int = 0) -> list[dict[str, Any]]:
    """Messages that alternate, the last one the assistant's; of so many parts, or with a plain text."""
    texts, roles = _texts(count, chars), ("user", "assistant")
    said: list[Any] = [[{"type": "text", "text": text}] * parts if parts else text for text in texts]
    return [{"role": roles[place % 2], "content": content} for place, content in enumerate(said)]


def _tool_loop(calls: int) -> list[dict[str, Any]]:
    """One turn of the assistant's, in so many pieces of 15 characters."""
    pair: list[dict[str, Any]] = [
        {"role": "assistant", "content": "a" * 14, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "b" * 1_500},
    ]
    return pair * calls


def _item(turns: int, chars: int) -> dict[str, Any]:
    return {"context": _turns(turns, chars), "response": "a", "deadline_ms": _DEADLINE_MS}


def _asking_own(follow_ups: int, chars: int) -> dict[str, Any]:
    """A turn asked about so many follow-ups of so many characters, in 16 qualities or fewer."""
    texts = _texts(follow_ups, chars)
    each = max(1, -(-follow_ups // 32))
    lists = [texts[place : place + each] for place in range(0, follow_ups, each)]
    pairs = zip(lists[::2], lists[1::2], strict=True)
    own = {f"q{chr(97 + place)}": {"positive": good, "negative": bad} for place, (good, bad) in enumerate(pairs)}
    asked = {"response": "ok", "scorers": ["fed"], "deadline_ms": _DEADLINE_MS}
    return {**asked, "options": {"fed": {"own_qualities": own}}}
