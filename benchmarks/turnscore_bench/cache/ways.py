"""Ways: what is sent to which service, so that every turn is a miss, a hit, or every second one a repeat."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from turnscore_bench.harness.traffic import LENGTH_MIXES, BenchTurn, Traffic

Sent = Literal["fresh", "known", "half"]
NO_CACHE = "off"
"""The service whose cache is off; its requests say `bypass` too, so that equal turns in flight are computed each."""

_MIX = LENGTH_MIXES["mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What is sent to which service: `fresh` turns, `known` ones, or half of them repeats of the other half."""

    key: str
    label: str
    service: str
    sent: Sent


WAYS = (
    Way(key="off", label="no cache", service=NO_CACHE, sent="fresh"),
    Way(key="miss_local", label="miss, in the process alone", service="local", sent="fresh"),
    Way(key="miss_redis", label="miss, Redis alone", service="redis", sent="fresh"),
    Way(key="miss_both", label="miss, both levels", service="both", sent="fresh"),
    Way(key="hit_local", label="hit, in the process", service="both", sent="known"),
    Way(key="hit_redis", label="hit, Redis", service="redis", sent="known"),
    Way(key="half_off", label="50 % repeats, no cache", service=NO_CACHE, sent="half"),
    Way(key="half_both", label="50 % repeats, both levels", service="both", sent="half"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """A scorer, the turns of one request, and the clients that ask at once."""

    scorer: str
    turns_per_request: int
    clients: int

    @property
    def path(self) -> str:
        return "/v1/score" if self.turns_per_request == 1 else "/v1/score_batch"


class Requests:
    """Bodies of requests. No turn is fresh twice."""

    def __init__(self, traffic: Traffic, known: int) -> None:
        """`known` turns are those that are asked again and again."""
        self._traffic = traffic
        self._known = traffic.turns(_MIX, known)

    def of(self, way: Way, question: Question, count: int) -> list[str]:
        """Bodies with that many turns together; whole requests. Of equal arguments the lengths are equal."""
        return pack(self._turns(way.sent, count), question, bypass=way.service == NO_CACHE)

    def fresh(self, question: Question, count: int) -> list[str]:
        """Bodies with that many turns, none of which was sent before."""
        return pack(self._traffic.turns(_MIX, count), question)

    def known(self, question: Question) -> list[str]:
        """Every known turn once."""
        return pack(self._known, question)

    def _turns(self, sent: Sent, count: int) -> Sequence[BenchTurn]:
        if sent == "fresh":
            return self._traffic.turns(_MIX, count)
        if sent == "known":
            return [self._known[place % len(self._known)] for place in range(count)]
        twice = self._traffic.turns(_MIX, count // 2) * 2
        random.Random(count).shuffle(twice)
        return twice


def pack(turns: Sequence[BenchTurn], question: Question, *, bypass: bool = False) -> list[str]:
    """The bodies that ask for these turns."""
    size = question.turns_per_request
    choice = {"cache": "bypass"} if bypass else {}
    items = [{**_item(turn, question.scorer), **choice} for turn in turns]
    if size == 1:
        return [json.dumps(item) for item in items]
    return [json.dumps({"items": items[at : at + size]}) for at in range(0, len(items), size)]


def _item(turn: BenchTurn, scorer: str) -> dict[str, Any]:
    return {"context": [{"speaker": "user", "text": turn.query}], "response": turn.reply, "scorers": [scorer]}


def read_scores(replies: Sequence[str], scorer: str) -> list[dict[str, Any]]:
    """The scores in replies of either call, in order."""
    parsed = [json.loads(each) for each in replies]
    return [item["scores"][scorer] for each in parsed for item in each.get("results", [each])]
