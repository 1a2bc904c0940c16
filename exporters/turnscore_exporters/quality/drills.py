"""Makes responses whose worth follows from how they are made: fillers that fit anywhere, and short right answers.

Judged conversations hold few of either. Without them a model learns that short is bad, or that short is safe. Marks
are those of the rubric in docs/models/quality.md, as 0 to 1.
"""

import random
import re
from collections.abc import Mapping, Sequence

from turnscore_assessment.data.dialogues import USER, LabelledTurn, Spoken

BARE = (
    "ok.", "ok", "okay.", "k", "sure.", "alright.", "right.", "i see.", "hmm.", "mhm", "uh huh.", "oh.", "oh ok.",
    "cool.", "nice.", "great.", "interesting.", "that's nice.", "that's cool.", "good to know.", "got it.", "fine.",
    "yeah.", "yep.", "lol", "haha.", "wow.", "very nice.", "oh i see.", "fair enough.", "makes sense.", "noted.",
)  # fmt: skip
EVASIVE = (
    "i don't know.", "i don't know", "i dunno.", "not sure.", "i'm not sure.", "no idea.", "i have no idea.",
    "i don't really know.", "i don't know much about that.", "hard to say.", "maybe.", "it depends.", "who knows.",
    "i couldn't tell you.", "i have never thought about that.", "i can't say.", "i guess so.", "perhaps.",
    "i don't know what to say.", "i don't have an opinion on that.", "what do you mean?", "i don't understand.",
    "can you rephrase that?", "let's talk about something else.", "i would rather not talk about that.",
)  # fmt: skip
REFUSALS = (
    "I'm sorry, I can't help with that.", "Sorry, I can't help you with that request.",
    "I'm sorry, but I cannot assist with that.", "I am unable to help with this.", "I'm afraid I can't do that.",
    "As an AI language model, I cannot answer this question.", "I'm just an AI and don't have that information.",
    "I'm sorry, I didn't understand that. Please try again.", "Unfortunately, I am not able to provide this.",
    "I'm sorry, but I don't have access to that information.", "That is outside of what I can help with.",
    "I cannot provide an answer to this. Please consult a professional.", "Sorry, something went wrong.",
    "Please contact our support team for further assistance.", "I can't answer that at this time.",
    "For more information, please visit our website.", "I'm here to help! Please ask me anything.",
    "I understand. Is there anything else I can help you with?", "Thank you for your message. We value your feedback.",
    "I don't have enough information to answer that question.", "Let me check on that for you.",
)  # fmt: skip
REACTIONS_TO_ANYTHING = (
    "that's great!", "haha that's great!", "that's awesome!", "wow, that's so interesting!", "sounds like fun!",
    "i love that!", "that's amazing, tell me more!", "so cool, good for you!", "haha yeah, totally!", "lol so true",
    "oh that's nice, i like that too.", "i agree with you.", "that is a good question.", "great question!",
    "i totally understand.", "what a wonderful thing to say.", "thanks for sharing that with me!",
)  # fmt: skip
_FILLERS: tuple[tuple[Sequence[str], dict[str, float]], ...] = (
    (BARE, {"overall": 0.18, "relevant": 0.3, "engaging": 0.03, "fluent": 0.9}),
    (EVASIVE, {"overall": 0.15, "relevant": 0.3, "engaging": 0.03, "fluent": 0.95}),
    (REFUSALS, {"overall": 0.12, "relevant": 0.2, "engaging": 0.02, "fluent": 0.97}),
    (REACTIONS_TO_ANYTHING, {"overall": 0.22, "relevant": 0.33, "engaging": 0.2, "fluent": 0.95}),
)
ECHO = {"overall": 0.06, "relevant": 0.25, "engaging": 0.02}
WRONG = {"overall": 0.12, "relevant": 0.35, "engaging": 0.15, "fluent": 0.95}
RIGHT = {"overall": 0.78, "relevant": 0.97, "engaging": 0.42, "fluent": 0.95}
FITTING_MOOD = {"overall": 0.66, "relevant": 0.85, "engaging": 0.5, "fluent": 0.95}
WRONG_MOOD = {"overall": 0.05, "relevant": 0.1, "engaging": 0.05, "fluent": 0.9}
_OPENINGS = ("honestly, ", "so ", "well, ", "ugh. ", "guess what, ", "you know, ", "today was something. ")
_GREETINGS = ("Hello! How are you today?", "Hi! How was your day?", "hey, what's new with you?", "Hi, how can I help?")
_BAD_NEWS = (
    "my grandmother passed away last week", "i failed my chemistry final", "my boyfriend broke up with me",
    "i got rejected by every university", "our hamster escaped and we can't find him", "we lost the house in the fire",
    "i was diagnosed with diabetes today", "my roommate read my diary and told everyone",
    "they cut my hours at work", "someone stole my bike", "i crashed my car this morning", "my uncle had a stroke",
    "i feel really down lately", "nobody came to my birthday party", "i had a terrible day",
    "my laptop died and all my photos are gone", "i have been so anxious i can't sleep",
    "my flight got cancelled and i miss the wedding", "i didn't get the promotion",
    "my son is being bullied at school", "i think my marriage is over", "my knee hurts so much i can't walk",
)  # fmt: skip
_GOOD_NEWS = (
    "i got the job", "we are having a baby", "i finally passed my exam", "she said yes, we are getting married",
    "i ran my first marathon", "my book is going to be published", "my daughter took her first steps today",
    "we bought our first house", "i won the science fair", "my test results came back, i'm cancer free",
    "i got into my dream school", "my brother is coming home after two years", "i paid off all my debts",
    "our choir won the first prize", "i adopted a puppy today", "i am going to japan next month", "i got a raise",
    "my painting was sold", "i learned to swim at 50", "today is my birthday and everybody remembered",
)  # fmt: skip
_SYMPATHY = (
    "i'm so sorry to hear that. how are you holding up?", "oh no, that must be really hard.",
    "that's awful, i'm sorry.", "i'm sorry, that sounds painful. do you want to talk about it?",
    "oh no. is there anything that would help right now?", "that sounds really tough. i'm here if you want to talk.",
    "i am sorry you have to go through this.", "that's so sad, i'm really sorry.",
    "ouch, that hurts. be kind to yourself today.",
)  # fmt: skip
_CHEER = (
    "wow, congratulations! you must be so happy!", "that's wonderful news!", "haha, love it!",
    "yay! so happy for you!", "amazing! how will you celebrate?", "that is fantastic, well done!",
    "woohoo! what a great day!", "how exciting!", "lol nice one!", "cool, have fun!", "so great, tell me everything!",
    "congrats, you really deserve it!",
)  # fmt: skip
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


def _make_turn(context: Sequence[Spoken], response: str, made: str, marks: Mapping[str, float]) -> LabelledTurn:
    return LabelledTurn(context=tuple(context), response=response, system=made, labels=marks, set_name="drill")


def make_moods(generator: random.Random) -> list[LabelledTurn]:
    """Good or bad news with a reply in its mood first, then one in the opposite mood."""
    kinds = [(_BAD_NEWS, _SYMPATHY, _CHEER), (_GOOD_NEWS, _CHEER, _SYMPATHY)]
    news, fitting, wrong = generator.choice(kinds)
    said = generator.choice(news)
    if generator.random() < 0.5:
        said = f"{generator.choice(_OPENINGS)}{said}"
    context: list[Spoken] = [(USER, said)]
    if generator.random() < 0.5:
        context = [
            (USER, generator.choice(("hi", "hello there", "hey"))),
            ("system", generator.choice(_GREETINGS)),
            *context,
        ]
    return [
        _make_turn(context, _vary(generator.choice(fitting), generator), "fitting mood", FITTING_MOOD),
        _make_turn(context, _vary(generator.choice(wrong), generator), "wrong mood", WRONG_MOOD),
    ]


_Question = tuple[list[str], str, str]
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo", "Canada": "Ottawa",
    "Germany": "Berlin", "Norway": "Oslo", "Kenya": "Nairobi", "Peru": "Lima", "Poland": "Warsaw", "Greece": "Athens",
    "Portugal": "Lisbon", "Austria": "Vienna", "Ireland": "Dublin", "Turkey": "Ankara", "Cuba": "Havana",
}  # fmt: skip
_OPPOSITES = {
    "hot": "cold", "big": "small", "early": "late", "open": "closed", "fast": "slow", "rich": "poor", "dry": "wet",
    "loud": "quiet", "heavy": "light", "deep": "shallow", "empty": "full", "hard": "soft", "narrow": "wide",
}  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_THINGS = ("a towel", "my passport", "cash", "an umbrella", "my own laptop", "a sleeping bag", "the receipt", "snacks")
_COLOURS = ("blue", "black", "red", "white", "green", "grey")
_SIZES = ("small", "medium", "large")
_FOODS = ("the lasagne", "the curry", "the soup", "the salad", "the pancakes", "the burger", "the ramen")
_NAMES = ("Anna", "Tom", "Priya", "Luis", "Mia", "Kenji", "Omar", "Sofia")


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


def _capital(generator: random.Random) -> _Question:
    country, other = generator.sample(sorted(_CAPITALS), 2)
    ask = generator.choice(("what's the capital of {}?", "capital of {}?", "do you know the capital of {}?"))
    shape = generator.choice(("{}", "{}.", "it's {}.", "yes, {}."))
    return [ask.format(country)], shape.format(_CAPITALS[country]), shape.format(_CAPITALS[other])


def _opposite(generator: random.Random) -> _Question:
    word, other = generator.sample(sorted(_OPPOSITES), 2)
    ask = generator.choice(("what's the opposite of {}?", "opposite of {}"))
    return [ask.format(word)], f"{_OPPOSITES[word]}", f"{_OPPOSITES[other]}"


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


def _bring(generator: random.Random) -> _Question:
    thing, other = generator.sample(_THINGS, 2)
    where = generator.choice(("the trip", "the workshop", "the check-in", "the camp", "the lesson"))
    said = [f"what do i need for {where}?", f"Please bring {thing}.", f"and {other}? do i need that too?"]
    return said, generator.choice((f"no, just {thing}.", "no, that won't be needed.")), f"no, {thing} is not needed."


def _choice(generator: random.Random) -> _Question:
    first, second, third = generator.sample(_COLOURS, 3)
    said = [f"do you have it in {first}?", f"Not in {first}, but in {second}.", f"and what about {third}?"]
    return said, generator.choice((f"no, only {second}.", f"sorry, just {second}.")), f"no, only {first}."


def _day(generator: random.Random) -> _Question:
    place = generator.randrange(7)
    ahead = generator.choice((1, 2))
    word = {1: "tomorrow", 2: "the day after tomorrow"}[ahead]
    said = [f"if today is {_DAYS[place]}, what day is {word}?"]
    return said, f"{_DAYS[(place + ahead) % 7]}.", f"{_DAYS[(place + ahead + 3) % 7]}."


def _table(generator: random.Random) -> _Question:
    people, hour, name = generator.randint(2, 8), generator.randint(6, 9), generator.choice(_NAMES)
    said = [
        "i'd like to book a table",
        "Gladly. For how many, and when?",
        f"{people} people, {hour} pm, name is {name}. does that work?",
    ]
    right = generator.choice(
        (f"yes, {hour} pm for {people}.", f"Done: {people} people at {hour}, {name}.", "yes, booked.")
    )
    return said, right, f"yes, {hour + 2} pm for {people + 1}."


def _favourite(generator: random.Random) -> _Question:
    food, other = generator.sample(_FOODS, 2)
    said = [f"{generator.choice(('soup', 'lunch', 'dinner'))} was great. {food} or {other} next time?"]
    return said, generator.choice((f"{food}, definitely.", f"{other}!", f"i'd say {food}.")), "at nine o'clock."


def _conversion(generator: random.Random) -> _Question:
    count = generator.randint(2, 9)
    unit, part, each = generator.choice(
        (("hours", "minutes", 60), ("weeks", "days", 7), ("metres", "centimetres", 100), ("dozen", "eggs", 12))
    )
    shape = generator.choice(("{} {}", "{}", "{}."))
    right, wrong = shape.format(count * each, part), shape.format(count * each + 5, part)
    return [f"how many {part} are in {count} {unit}?"], right, wrong


def _size(generator: random.Random) -> _Question:
    first, second = generator.sample(_SIZES, 2)
    said = ["what sizes are left?", f"We have {first} and {second}.", f"{first} then. is it in stock today?"]
    return said, generator.choice(("yes, it is.", f"yes, one {first} is left.")), f"we have no {first}."


def _spelling(generator: random.Random) -> _Question:
    name, other = generator.sample(_NAMES, 2)
    spelt = "-".join(name.upper())
    return [f"how do you spell {name}?"], spelt, "-".join(other.upper())


_QUESTIONS = (
    _arithmetic, _arithmetic, _small_sum, _capital, _opposite, _opening_time, _bring, _choice, _day, _table, _favourite,
    _conversion, _size, _spelling,
)  # fmt: skip
