"""Makes responses whose worth follows from how they are made: fillers that fit anywhere, and short right answers.

Judged conversations hold few of either. Without them a model learns that short is bad, or that short is safe. Marks
are those of the rubric in docs/models/quality.md, as 0 to 1.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from turnscore_assessment.data.dialogues import USER, LabelledTurn, Spoken

_TEXTS: dict[str, Any] = json.loads(Path(__file__).with_name("drill_texts.json").read_text(encoding="utf-8"))
_FILLERS: tuple[tuple[Sequence[str], dict[str, float]], ...] = (
    (_TEXTS["bare"], {"overall": 0.18, "relevant": 0.3, "engaging": 0.03, "fluent": 0.9}),
    (_TEXTS["evasive"], {"overall": 0.15, "relevant": 0.3, "engaging": 0.03, "fluent": 0.95}),
    (_TEXTS["refusals"], {"overall": 0.12, "relevant": 0.2, "engaging": 0.02, "fluent": 0.97}),
    (_TEXTS["reactions_to_anything"], {"overall": 0.22, "relevant": 0.33, "engaging": 0.2, "fluent": 0.95}),
)
ECHO = {"overall": 0.06, "relevant": 0.25, "engaging": 0.02}
WRONG = {"overall": 0.12, "relevant": 0.35, "engaging": 0.15, "fluent": 0.95}
RIGHT = {"overall": 0.78, "relevant": 0.97, "engaging": 0.42, "fluent": 0.95}
FITTING_MOOD = {"overall": 0.66, "relevant": 0.85, "engaging": 0.5, "fluent": 0.95}
WRONG_MOOD = {"overall": 0.05, "relevant": 0.1, "engaging": 0.05, "fluent": 0.9}
_ENDS = re.compile(r"\b(bye|goodbye|thanks|thank you|good night|see you|that'?s all|ok|okay)\b", re.IGNORECASE)


def make_filler(context: Sequence[Spoken], generator: random.Random) -> LabelledTurn | None:
    """A filler in the place of a response; none where the user takes leave, since little else would fit there."""
    if not context or _ENDS.search(context[-1][1]):
        return None
    if generator.random() < 0.15:
        return _make_turn(context, _echo(context[-1][1], generator), "echo", ECHO)
    texts, marks = generator.choice(_FILLERS)
    return _make_turn(context, _vary(generator.choice(texts), generator), "filler", marks)


def _echo(text: str, generator: random.Random) -> str:
    said = text.strip()
    ways = (said, said, f"you said {said}", f"{said.rstrip('.!?')}?", f"so {said[:1].lower()}{said[1:]}")
    return generator.choice(ways)


def _vary(text: str, generator: random.Random) -> str:
    """Capitals and full stops vary, so that neither marks a filler."""
    draw = generator.random()
    if draw < 0.25:
        return text[:1].upper() + text[1:]
    if draw < 0.35:
        return text.rstrip(".")
    return text.replace(".", " .") if draw < 0.42 else text


def make_short_answers(generator: random.Random) -> list[LabelledTurn]:
    """A question with its short right answer first, then a wrong one of like form and a filler."""
    said, right, wrong = generator.choice(_QUESTIONS)(generator)
    context = tuple((USER if (len(said) - place) % 2 else "system", text) for place, text in enumerate(said))
    answers = [_make_turn(context, _vary(right, generator), "right", RIGHT)]
    if wrong and wrong != right:
        answers.append(_make_turn(context, _vary(wrong, generator), "wrong", WRONG))
    filler = make_filler(context, generator)
    return [*answers, filler] if filler else answers


def make_user_turn(judged: Sequence[LabelledTurn], generator: random.Random) -> LabelledTurn:
    """A user turn after one of a context's judged responses, as people write to a help desk.

    Few of the judged conversations are of that kind.
    """
    response = generator.choice(judged)
    mark = response.labels["overall"]
    fitting = "poor" if mark < 0.4 else "good" if mark > 0.65 else "any"
    drill = generator.choice([each for each in _TEXTS["user_turns"] if each["after"] in (fitting, "any")])
    last = response.context[-1][1] if response.context else ""
    text = generator.choice(drill["texts"]).replace("{last}", last)
    labels = {"satisfaction": drill["satisfaction"], **dict.fromkeys(drill["signals"], 1.0)}
    context = (*response.context, ("system", response.response))
    return LabelledTurn(context=context, response=_vary(text, generator), labels=labels, set_name="drill")


def _make_turn(context: Sequence[Spoken], response: str, made: str, marks: Mapping[str, float]) -> LabelledTurn:
    return LabelledTurn(context=tuple(context), response=response, system=made, labels=marks, set_name="drill")


def make_moods(generator: random.Random) -> list[LabelledTurn]:
    """Good or bad news with a reply in its mood first, then one in the opposite mood."""
    kinds = [("bad_news", "sympathy", "cheer"), ("good_news", "cheer", "sympathy")]
    news, fitting, wrong = (_TEXTS[each] for each in generator.choice(kinds))
    said = generator.choice(news)
    if generator.random() < 0.5:
        said = f"{generator.choice(_TEXTS['openings'])}{said}"
    context: list[Spoken] = [(USER, said)]
    if generator.random() < 0.5:
        context = [
            (USER, generator.choice(("hi", "hello there", "hey"))),
            ("system", generator.choice(_TEXTS["greetings"])),
            *context,
        ]
    return [
        _make_turn(context, _vary(generator.choice(fitting), generator), "fitting mood", FITTING_MOOD),
        _make_turn(context, _vary(generator.choice(wrong), generator), "wrong mood", WRONG_MOOD),
    ]


_Question = tuple[list[str], str, str]
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _arithmetic(generator: random.Random) -> _Question:
    a, b = generator.randint(2, 40), generator.randint(2, 20)
    sign, found = generator.choice((("+", a + b), ("plus", a + b), ("times", a * b), ("-", a - b), ("minus", a - b)))
    ask = generator.choice(("what's {} {} {}?", "what is {} {} {}", "quick, {} {} {}?", "how much is {} {} {}?"))
    wrong = found + generator.choice((-10, -2, -1, 1, 3, 11))
    shape = generator.choice(("{}", "{}.", "It's {}.", "that's {}."))
    return [ask.format(a, sign, b)], shape.format(found), shape.format(wrong)


def _small_sum(generator: random.Random) -> _Question:
    a, b = generator.randint(1, 6), generator.randint(1, 6)
    wrong = _NUMBERS[(a + b + generator.randint(1, 5)) % 13]
    return [f"{_NUMBERS[a]} and {_NUMBERS[b]} make?"], f"{_NUMBERS[a + b]}", wrong


def _opening_time(generator: random.Random) -> _Question:
    hour = generator.randint(7, 11)
    place = generator.choice(("shop", "pool", "library", "desk", "museum", "clinic", "office", "bakery"))
    asked = generator.choice((hour, hour, hour + 1, hour - 2))
    opens = asked >= hour
    said = [
        f"hi, is there a {place} near here?",
        f"Yes, the {place} on {generator.choice(('Mill', 'High', 'Park'))} Street. It opens at {hour}.",
        f"can i come at {asked}?",
    ]
    yes, no = f"yes, it opens at {hour}.", f"no, it opens at {hour}."
    short = generator.choice((f"yes, at {asked} is fine." if opens else f"no, only from {hour}.", yes if opens else no))
    return said, short, no if opens and asked != hour else f"yes, at {hour + 4}." if opens else f"yes, at {asked}."


def _day(generator: random.Random) -> _Question:
    place = generator.randrange(7)
    ahead = generator.choice((1, 2))
    word = {1: "tomorrow", 2: "the day after tomorrow"}[ahead]
    said = [f"if today is {_DAYS[place]}, what day is {word}?"]
    return said, f"{_DAYS[(place + ahead) % 7]}.", f"{_DAYS[(place + ahead + 3) % 7]}."


def _table(generator: random.Random) -> _Question:
    people, hour, name = generator.randint(2, 8), generator.randint(6, 9), generator.choice(_TEXTS["names"])
    said = [
        "i'd like to book a table",
        "Gladly. For how many, and when?",
        f"{people} people, {hour} pm, name is {name}. does that work?",
    ]
    right = generator.choice(
        (f"yes, {hour} pm for {people}.", f"Done: {people} people at {hour}, {name}.", "yes, booked.")
    )
    return said, right, f"yes, {hour + 2} pm for {people + 1}."


def _conversion(generator: random.Random) -> _Question:
    count = generator.randint(2, 9)
    unit, part, each = generator.choice(
        (("hours", "minutes", 60), ("weeks", "days", 7), ("metres", "centimetres", 100), ("dozen", "eggs", 12))
    )
    shape = generator.choice(("{} {}", "{}", "{}."))
    right, wrong = shape.format(count * each, part), shape.format(count * each + 5, part)
    return [f"how many {part} are in {count} {unit}?"], right, wrong


def _fill(drill: Mapping[str, Any], generator: random.Random) -> _Question:
    """A question about words drawn from a list, or from a mapping, whose values then follow the words."""
    known = _TEXTS[drill["of"]]
    words = generator.sample(sorted(known), drill["words"])
    texts = [*words, *(known[each] for each in words)] if isinstance(known, dict) else words
    said, (right, wrong) = generator.choice(drill["said"]), generator.choice(drill["answers"])
    return [each.format(*texts) for each in said], right.format(*texts), wrong.format(*texts)


def _spelling(generator: random.Random) -> _Question:
    name, other = generator.sample(_TEXTS["names"], 2)
    spelt = "-".join(name.upper())
    return [f"how do you spell {name}?"], spelt, "-".join(other.upper())


_QUESTIONS: tuple[Callable[[random.Random], _Question], ...] = (
    *(_arithmetic, _arithmetic, _small_sum, _opening_time, _day, _table, _conversion, _spelling),
    *(partial(_fill, drill) for drill in _TEXTS["questions"]),
)
