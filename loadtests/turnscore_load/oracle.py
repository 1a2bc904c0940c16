"""Judges a service's answers by what the Engine computed alone, and counts by caller what became of each request."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log2
from typing import Any, NamedTuple

Turns = list[dict[str, str]]
SCORERS = ("engagement", "quality", "sentiment_stop")
BOUNDS = {"fed": 0.02}  # of a value (docs/api.md#equal-scores)
_BOUND = 1e-6
# Of a percentile, in points: what the bound of the value can move it.
_PERCENTILE_BOUNDS = {"fed": 2.0}
_PERCENTILE_BOUND = 0.01
BROKEN = ("wrong", "lost", "unanswered", "unclear", "rows lost", "missing", "duplicated")
_SEVERITY = ("answered", "refused", "failed", "unclear", "lost", "wrong")
_MOST_NAMED = 20  # of a fault's broken promises that are told in words


class Verdict(NamedTuple):
    """What became of one request.

    answered: every value is right. refused: by an error of the wire's table, `why` is its code. failed: the connection,
    or a proxy's answer. unclear: an exception, or a reply that is none of the service's. lost: a 200 without
    all that was asked. wrong: another value.
    """

    outcome: str
    why: str = ""
    is_computed: bool = False  # at least one of its scores came from no cache


class Place(NamedTuple):
    """A turn of the pool."""

    dialogue: int
    turn: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a turn, several, or all of the system's in a dialogue."""

    call: str  # score, score_batch or score_dialogue
    places: Sequence[Place]
    scorers: Sequence[str]
    options: Mapping[str, str] = field(default_factory=dict)


class Oracle:
    """The pool: dialogues, and of each turn the value and percentile by `name:version` of the model."""

    def __init__(self, dialogues: Sequence[Turns], known: Mapping[str, Mapping[Place, Sequence[Any]]]) -> None:
        self.dialogues, self.known = dialogues, known
        scored = {place for model, each in known.items() if model.startswith("fed:") for place in each}
        self.places = {"fed": sorted(scored)}
        for number, turns in enumerate(dialogues):
            for index, turn in enumerate(turns):
                self.places.setdefault(turn["speaker"], []).append(Place(number, index))

    def item(self, place: Place) -> dict[str, Any]:
        """The turn as a request has it."""
        turns = self.dialogues[place.dialogue]
        turn = turns[place.turn]
        speaker = {"speaker": "user"} if turn["speaker"] == "user" else {}
        return {"context": turns[: place.turn], "response": turn["text"], **speaker}

    def given(self, ask: Ask) -> dict[str, Any]:
        """The arguments of the call in Python."""
        more = {"scorers": list(ask.scorers), **ask.options}
        if ask.call == "score":
            return {**self.item(ask.places[0]), **more}
        if ask.call == "score_batch":
            return {"items": [self.item(each) for each in ask.places], **more}
        return {"turns": self.dialogues[ask.places[0].dialogue], **more}

    def body(self, ask: Ask) -> dict[str, Any]:
        """The request as it travels: each item of a batch says itself what is asked."""
        given = self.given(ask)
        if ask.call == "score_batch":
            items, *_ = given.pop("items"), given
            return {"items": [{**each, **given} for each in items]}
        return given

    def judge(self, ask: Ask, reply: Any) -> Verdict:
        """Of a reply's fields; a reply of an unexpected form is unclear."""
        try:
            if "error" in reply:
                return Verdict("refused", reply["error"]["code"])
            if ask.call == "score":
                return self.judge_scores(ask.places[0], ask.scorers, reply)
            if ask.call == "score_batch":
                return self._judge_batch(ask, reply["results"])
            return self.judge_dialogue(ask, reply)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            return Verdict("unclear", f"a reply without {error}")

    def judge_scores(self, place: Place, scorers: Iterable[str], reply: Mapping[str, Any]) -> Verdict:
        """Of a turn's `scores` and `errors`: the gravest, as one scorer's refusal excuses no other's value."""
        scores, errors = reply["scores"], reply.get("errors") or {}
        return worst(self._judge_score(place, each, scores.get(each), errors.get(each)) for each in scorers)

    def _judge_score(self, place: Place, scorer: str, score: Any, error: Any) -> Verdict:
        if score is None:
            return Verdict("refused", error["code"]) if error else Verdict("lost", f"no {scorer} of {place}")
        if wrong := self._find_wrong(place, scorer, score):
            return Verdict("wrong", wrong)
        return Verdict("answered", is_computed=not score.get("cached", True))

    def find_wrong_value(self, place: Place, model: str, value: float, percentile: float | None) -> str:
        """What is wrong, or nothing."""
        known = self.known.get(model, {}).get(place)
        if known is None:
            return f"{model} answered {place}, which it was not asked"
        name = model.partition(":")[0]
        if not abs(value - known[0]) <= BOUNDS.get(name, _BOUND):
            return f"{model} of {place}: {value} for {known[0]}"
        is_near = percentile is not None and abs(percentile - known[1]) <= _PERCENTILE_BOUNDS.get(
            name, _PERCENTILE_BOUND
        )
        return "" if is_near else f"{model} of {place}: percentile {percentile} for {known[1]}"

    def _find_wrong(self, place: Place, scorer: str, score: Mapping[str, Any]) -> str:
        if score["model"].partition(":")[0] != scorer:
            return f"{score['model']} answered for {scorer}"
        return self.find_wrong_value(place, score["model"], score["value"], score["percentile"])

    def _judge_batch(self, ask: Ask, results: Sequence[Mapping[str, Any]]) -> Verdict:
        if len(results) != len(ask.places):
            return Verdict("lost", f"{len(results)} results of {len(ask.places)} items")
        return worst(
            Verdict("refused", each["error"]["code"])
            if each.get("error")
            else self.judge_scores(place, ask.scorers, each)
            for place, each in zip(ask.places, results, strict=True)
        )

    def judge_dialogue(self, ask: Ask, reply: Mapping[str, Any]) -> Verdict:
        """Each turn once, and the means those of the turns' values."""
        turns = {each["index"]: each for each in reply["turns"]}
        if len(turns) != len(reply["turns"]):
            return Verdict("wrong", "a turn of a dialogue came twice")
        if absent := [each for each in ask.places if each.turn not in turns]:
            return Verdict("lost", f"{absent[0]} is not in its dialogue's reply")
        verdict = worst(self.judge_scores(each, ask.scorers, turns[each.turn]) for each in ask.places)
        if verdict.outcome == "answered":
            for scorer in ask.scorers:
                values = [turns[each.turn]["scores"][scorer]["value"] for each in ask.places]
                mean = reply["dialogue"][scorer]["mean"]
                if not abs(mean - sum(values) / len(values)) <= BOUNDS.get(scorer, _BOUND):
                    return Verdict("wrong", f"mean {mean} of {values}")
        return verdict


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The gravest of a request's several, for all their reasons; computed if any was."""
    every = list(verdicts)
    outcome = max((each.outcome for each in every), key=_SEVERITY.index)
    why = ", ".join(sorted({each.why for each in every if each.outcome == outcome}))
    return Verdict(outcome, why, any(each.is_computed for each in every))


def system_places(dialogue: int, turns: Turns) -> list[Place]:
    return [Place(dialogue, index) for index, turn in enumerate(turns) if turn["speaker"] == "system"]


class Asker:
    """Draws requests, the same for the same seed. What is `fresh` is asked under a name of its own."""

    def __init__(self, oracle: Oracle, seed: str) -> None:
        self._oracle, self._chance = oracle, random.Random(seed)
        self._kinds: list[tuple[float, Any]] = [
            (0.80, self._turn), (0.09, self._computed), (0.02, self._fresh), (0.03, self._user), (0.005, self._fed),
            (0.03, self._batch), (0.025, self._dialogue),
        ]  # fmt: skip

    def draw(self, fresh: str) -> Ask:
        [draw] = self._chance.choices([each for _, each in self._kinds], [share for share, _ in self._kinds])
        drawn: Ask = draw()
        if draw == self._fresh:
            return replace(drawn, options={"cache_namespace": re.sub(r"\W", "-", fresh)})
        return drawn

    def dialogue(self) -> tuple[int, Turns]:
        number = self._chance.randrange(len(self._oracle.dialogues))
        return number, self._oracle.dialogues[number]

    def _place(self, kind: str = "system") -> Place:
        return self._chance.choice(self._oracle.places[kind])

    def _turn(self) -> Ask:
        [scorers] = self._chance.choices([("engagement",), ("quality",), ("sentiment_stop",), SCORERS], (5, 3, 1, 1))
        return Ask("score", [self._place()], scorers)

    def _computed(self) -> Ask:
        [scorer] = self._chance.choices(SCORERS, (6, 2, 1))
        cache = self._chance.choice(["bypass", "bypass", "refresh"])
        return Ask("score", [self._place()], (scorer,), {"cache": cache})

    def _fresh(self) -> Ask:
        return Ask("score", [self._place()], (self._chance.choice(SCORERS[:2]),))

    def _user(self) -> Ask:
        return Ask("score", [self._place("user")], ("reaction",))

    def _fed(self) -> Ask:
        return Ask("score", [self._place("fed")], ("fed",))

    def _batch(self) -> Ask:
        return Ask("score_batch", [self._place() for _ in range(self._chance.randint(2, 5))], SCORERS[:2])

    def _dialogue(self) -> Ask:
        return Ask("score_dialogue", system_places(*self.dialogue()), SCORERS[:2])


class FaultLog:
    """What was asked while one fault lasted, and what became of it. Everything that is asked has to be settled."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._took: dict[str, Counter[str]] = defaultdict(Counter)
        self.broken: list[str] = []

    @property
    def asked(self) -> int:
        return sum(each["asked"] for each in self.counts.values())

    @property
    def in_flight(self) -> int:
        return sum(each["asked"] - sum(each[name] for name in _SEVERITY) for each in self.counts.values())

    def ask(self, caller: str) -> None:
        self.counts[caller]["asked"] += 1

    def settle(self, caller: str, verdict: Verdict, took_seconds: float = 0.0) -> None:
        counts = self.counts[caller]
        counts[verdict.outcome] += 1
        counts["computed"] += verdict.outcome == "answered" and verdict.is_computed
        if verdict.outcome in ("refused", "failed"):
            counts[f"{verdict.outcome}: {verdict.why}"] += 1
        elif verdict.outcome != "answered":
            self.breaks(f"{caller}: {verdict.outcome}: {verdict.why}")
        if verdict.outcome == "answered" and took_seconds:
            self._took[caller][_bucket(1000 * took_seconds)] += 1

    def count(self, caller: str, what: str, number: int = 1) -> None:
        """Something else, such as rows; what is in BROKEN breaks a promise."""
        self.counts[caller][what] += number
        if number and what in BROKEN:
            self.breaks(f"{caller}: {number} {what}")

    def breaks(self, sentence: str) -> None:
        if len(self.broken) < _MOST_NAMED:
            self.broken.append(sentence)

    def close(self) -> None:
        """What is still not settled never was answered."""
        for caller, each in self.counts.items():
            self.count(caller, "unanswered", each["asked"] - sum(each[name] for name in _SEVERITY))

    def as_json(self) -> dict[str, Any]:
        counts = {caller: {name: each for name, each in own.items() if each} for caller, own in self.counts.items()}
        return {"fault": self.fault, "counts": counts, "took": self._took, "broken": self.broken}


def _bucket(ms: float) -> str:
    """Eighths of a doubling."""
    return str(round(8 * log2(max(ms, 0.01))))


def percentile_ms(took: Mapping[str, int], percent: float) -> float:
    """Of the counts by bucket; 0 of none."""
    left = percent / 100 * sum(took.values())
    for bucket in sorted(map(int, took)):
        left -= took[str(bucket)]
        if left <= 0:
            return float(2 ** (bucket / 8))
    return 0.0
