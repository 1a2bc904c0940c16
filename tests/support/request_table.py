"""Two hundred requests, always the same ones: good, odd and broken, as the fields that a caller gives."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from turnscore_wire import Limits

LIMITS = Limits(max_text_chars=2000, max_turns=30, max_items=6, max_candidates=5, max_body_bytes=60_000)
"""Small ones, so that requests beyond them are small too."""

Kind = Literal["good", "odd", "broken"]

_SUBJECTS = ("i", "my sister", "the neighbour's dog", "nobody here", "that old song")
_VERBS = ("hiked up", "wrote about", "could not stand", "dreams of", "was asked about")
_OBJECTS = ("a volcano", "the river at night", "my job", "three kinds of bread", "what you said")
_ENDS = (".", "!", "... have you?", ", and you?", "?")
_ODD_TEXTS = (
    "🙂", "👩‍👩‍👧‍👦 und 🇪🇺!", "ok", "?", "...", "  hello \t there\n\nagain ",
    "a\u200bb\u00adc", "e\u0301cole d\u2019e\u0301te\u0301", "שלום, מה שלומך?",
    "今日は何をしましたか。", "ＦＵＬＬ　ＷＩＤＴＨ", "x" * 300, "why " * 450,
    "\u2028line\u2029ends", "<b>&amp;</b> \\n \"q\"", "[SEP] [CLS] <|endoftext|>", "\ufeffmarked",
    "𝕦𝕟𝕚𝕔𝕠𝕕𝕖",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One call by its name, and its fields; `protobuf` says whether a message can say the same."""

    name: str
    kind: Kind
    call: Literal["score", "score_batch", "score_dialogue", "rank"]
    fields: dict[str, Any]
    protobuf: bool = True
    beyond_body: bool = False
    """Refused for its size by the transports, of which the core knows nothing."""


def requests() -> list[Request]:
    """All of them, in an order that never changes."""
    draw = random.Random(20261121)
    made = [*_good(draw), *_odd(draw), *_broken()]
    names = [each.name for each in made]
    assert len(set(names)) == len(names) == 200, len(names)
    return made


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choice(words) for words in (_SUBJECTS, _VERBS, _OBJECTS)) + draw.choice(_ENDS)


def _turns(draw: random.Random, count: int) -> list[dict[str, str]]:
    """Turns that alternate; the last one is the user's."""
    speakers = ["user" if place % 2 == 0 else "system" for place in range(count)][::-1]
    return [{"speaker": speaker, "text": _sentence(draw)} for speaker in speakers]


def _scorers(draw: random.Random) -> list[str]:
    return draw.choice([["engagement"], ["sentiment_stop"], ["engagement", "sentiment_stop"], ["sentiment_stop"]])


def _good(draw: random.Random) -> Iterator[Request]:
    for place in range(26):
        fields: dict[str, Any] = {"response": _sentence(draw), "scorers": _scorers(draw)}
        if place % 3:
            fields["context"] = _turns(draw, draw.randint(1, 6))
        if place % 7 == 0:
            fields.update(deadline_ms=60_000, cache=draw.choice(["use", "bypass", "refresh"]), cache_namespace="t-1")
        yield Request(f"score-{place}", "good", "score", fields)
    for place in range(12):
        items = [
            {"response": _sentence(draw), "context": _turns(draw, 2), "scorers": _scorers(draw)}
            for _ in range(draw.randint(1, 6))
        ]
        yield Request(f"batch-{place}", "good", "score_batch", {"items": items})
    for place in range(10):
        turns = [*_turns(draw, draw.randint(1, 6)), {"speaker": "system", "text": _sentence(draw)}]
        yield Request(f"dialogue-{place}", "good", "score_dialogue", {"turns": turns, "scorers": _scorers(draw)})
    for place in range(12):
        ranked: dict[str, Any] = {"candidates": [_sentence(draw) for _ in range(draw.randint(1, 5))]}
        ranked.update(context=_turns(draw, place % 4), scorers=["engagement", "sentiment_stop"])
        if place % 2:
            ranked["weights"] = {"engagement": draw.uniform(0.1, 3), "sentiment_stop": draw.choice([0.0, 1.5])}
        yield Request(f"rank-{place}", "good", "rank", ranked)
    turn, qualities = _turns(draw, 2), ["interesting", "fluent"]
    yield Request("all-scorers", "good", "score", {"context": turn, "response": _sentence(draw)})
    for place, own in enumerate(
        [{"qualities": qualities}, {"qualities": qualities, "loss": "whole_sequence"}, {"loss": "response_only"}]
    ):
        fed = {"context": turn, "response": _sentence(draw), "scorers": ["fed"], "options": {"fed": own}}
        yield Request(f"fed-{place}", "good", "score", fed)
    both = {"scorers": ["fed", "engagement"], "options": {"fed": {"qualities": qualities}}}
    yield Request("fed-rank", "good", "rank", {"context": turn, "candidates": ["ok.", _sentence(draw)], **both})


def _odd(draw: random.Random) -> Iterator[Request]:
    for place, text in enumerate(_ODD_TEXTS):
        asked = {"scorers": ["engagement", "sentiment_stop"]}
        yield Request(f"odd-response-{place}", "odd", "score", {"response": text, **asked})
        context = [{"speaker": "user", "text": text}]
        yield Request(f"odd-context-{place}", "odd", "score", {"context": context, "response": "i see.", **asked})
    asked = {"scorers": ["engagement"]}
    empty = [{"speaker": "user", "text": ""}, {"speaker": "system", "text": " "}]
    yield Request("empty-context-turns", "odd", "score", {"context": empty, "response": "ok", **asked})
    yield Request("no-context", "odd", "score", {"context": [], "response": "ok", **asked})
    yield Request("most-turns", "odd", "score", {"context": _turns(draw, 30), "response": "ok", **asked})
    yield Request("longest-text", "odd", "score", {"response": "word " * 400, **asked})
    yield Request("only-the-system", "odd", "score_dialogue", {"turns": [{"speaker": "system", "text": "hi"}], **asked})
    twice = [{"response": "the same", **asked}] * 2
    yield Request("twice-in-a-batch", "odd", "score_batch", {"items": twice})
    yield Request("candidates-alike", "odd", "rank", {"candidates": ["same", "same", "same"], **asked})
    yield Request("empty-options", "odd", "score", {"response": "ok", "options": {}, **asked})
    mixed = [{"response": "ok", **asked}, {"response": "ok", "scorers": ["mood"]}, {"response": "a" * 2001, **asked}]
    yield Request("items-that-fail-alone", "odd", "score_batch", {"items": mixed})
    ill = [{"response": "ok", **asked}, {"response": " ", **asked}, {"response": "ok", "deadline_ms": 0}]
    yield Request("items-that-are-not-well-formed", "odd", "score_batch", {"items": ill})


def _broken() -> Iterator[Request]:
    yield from _broken_scores()
    yield from _broken_others()


def _broken_scores() -> Iterator[Request]:
    """A score request around each field that is wrong; the last of a row says whether protobuf can say it."""
    user, fed = {"speaker": "user", "text": "hi"}, {"scorers": ["fed"]}
    rows: list[tuple[dict[str, Any], bool]] = [
        ({"response": ""}, True), ({"response": " \t\n"}, True), ({"response": "a\0b"}, True),
        ({"response": "a\ud800b"}, False), ({"response": 7}, False), ({"response": None}, True),
        ({"response": ["a"]}, False), ({"response": "a" * 2001}, True), ({"response": "🙂" * 2001}, True),
        ({"context": [{**user, "speaker": "bot"}]}, False), ({"context": [{**user, "text": 7}]}, False),
        ({"context": [user, {}]}, True), ({"context": [{**user, "mood": "good"}]}, False),
        ({"context": [{"text": "hi"}]}, True), ({"context": 7}, False), ({"context": "hi"}, False),
        ({"context": [{**user, "text": "a\0b"}]}, True), ({"context": [user, {**user, "text": "a" * 2001}]}, True),
        ({"context": [user] * 31}, True), ({"context": ["hi"]}, False), ({"context": [None]}, False),
        ({"scorers": ["mood"]}, True), ({"scorers": ["engagement", "mood"]}, True), ({"scorers": [""]}, True),
        ({"scorers": ["a" * 65]}, True), ({"scorers": ["engagement"] * 65}, True), ({"scorers": []}, False),
        ({"scorers": [7]}, False), ({"scorers": "engagement"}, False), ({"scorers": {"engagement": 1}}, False),
        ({"scorers": ["Engagement"]}, True),
        ({"options": {"mood": {}}}, True), ({"options": {"engagement": {"x": 1}}}, True),
        ({"options": {"sentiment_stop": {"x": None}}}, True), ({"options": {"": {}}}, True),
        ({"options": {"engagement": 7}}, False), ({"options": [1]}, False), ({"options": "x"}, False),
        ({**fed, "options": {"fed": {"qualities": []}}}, True), ({**fed, "options": {"fed": {"qualities": 7}}}, True),
        ({**fed, "options": {"fed": {"qualities": ["charming"]}}}, True),
        ({**fed, "options": {"fed": {"loss": "least"}}}, True), ({**fed, "options": {"fed": {"loss": 1.5}}}, True),
        ({**fed, "options": {"fed": {"own_qualities": {"a": 1}}}}, True),
        ({**fed, "options": {"fed": {"speed": {"deep": [1, {"a": None}]}}}}, True),
        ({"deadline_ms": 0}, True), ({"deadline_ms": -1}, True), ({"deadline_ms": 600_001}, True),
        ({"deadline_ms": 2**40}, False), ({"deadline_ms": 1.5}, False), ({"deadline_ms": "10"}, False),
        ({"cache": "sometimes"}, False), ({"cache": 1}, False), ({"cache_namespace": ""}, True),
        ({"cache_namespace": "two words"}, True), ({"cache_namespace": "a" * 65}, True),
        ({"cache_namespace": 7}, False),
    ]  # fmt: skip
    for place, (wrong, protobuf) in enumerate(rows):
        fields = {"response": "ok", **wrong}
        yield Request(f"score-with-{next(iter(wrong))}-{place}", "broken", "score", fields, protobuf)
    big = {"response": "ok", "context": [{**user, "text": "é" * 1990}] * 30}
    yield Request("body-too-large", "broken", "score", big, beyond_body=True)


def _broken_others() -> Iterator[Request]:
    user, system = {"speaker": "user", "text": "hi"}, {"speaker": "system", "text": "hello"}
    ok = {"response": "ok"}
    rows: list[tuple[Literal["score_batch", "score_dialogue", "rank"], dict[str, Any], bool]] = [
        ("score_batch", {"items": []}, True), ("score_batch", {"items": [ok] * 7}, True),
        ("score_batch", {"items": 7}, False), ("score_batch", {"items": "ok"}, False),
        ("score_dialogue", {"turns": []}, True), ("score_dialogue", {"turns": [user]}, True),
        ("score_dialogue", {"turns": [user, {**system, "text": " "}]}, True),
        ("score_dialogue", {"turns": [system] * 31}, True), ("score_dialogue", {"turns": 7}, False),
        ("score_dialogue", {"turns": [{**user, "speaker": "me"}]}, False),
        ("score_dialogue", {"turns": [system], "scorers": ["mood"]}, True),
        ("score_dialogue", {"turns": [{**system, "text": "a" * 2001}]}, True),
        ("score_dialogue", {"turns": [system], "options": {"fed": {"qualities": ["charming"]}}}, True),
        ("score_dialogue", {"turns": [user, {**system, "text": "a\0"}]}, True),
        ("score_dialogue", {"turns": [system], "deadline_ms": 0}, True),
        ("rank", {"candidates": []}, True), ("rank", {"candidates": ["a"] * 6}, True),
        ("rank", {"candidates": ["a", ""]}, True), ("rank", {"candidates": ["a", "b\0"]}, True),
        ("rank", {"candidates": ["a", 7]}, False), ("rank", {"candidates": "abc"}, False),
        ("rank", {"candidates": ["a", "b" * 2001]}, True), ("rank", {"candidates": ["a"], "scorers": ["mood"]}, True),
        ("rank", {"candidates": ["a"], "weights": {"mood": 1.0}}, True),
        ("rank", {"candidates": ["a"], "weights": {"engagement": -1.0}}, True),
        ("rank", {"candidates": ["a"], "weights": {"engagement": 1e7}}, True),
        ("rank", {"candidates": ["a"], "weights": {"engagement": "1"}}, False),
        ("rank", {"candidates": ["a"], "scorers": ["engagement"], "weights": {"engagement": 0.0}}, True),
        ("rank", {"candidates": ["a"], "weights": [1.0]}, False),
        ("rank", {"candidates": ["a"], "context": [{**user, "text": "a\0"}]}, True),
        ("rank", {"candidates": ["a"], "context": [user] * 31}, True),
    ]  # fmt: skip
    for place, (call, fields, protobuf) in enumerate(rows):
        yield Request(f"{call}-refused-{place}", "broken", call, fields, protobuf)
