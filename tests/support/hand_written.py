"""Conversations written for the tests: a fitting response, and what is wrong with others. Never trained on.

User and system take turns, the user last. Written before any score of theirs was seen.
"""

from dataclasses import dataclass
from typing import Any

INSULT, GIBBERISH, SHORT, IGNORANT = "shut up, you idiot.", "asdf qwer zxcv lkj", "ok.", "i don't know."
OFF_TOPIC = "bananas are rich in potassium and grow in warm countries."
CHEERFUL = "haha that's great! congratulations!"


@dataclass(frozen=True)
class Choice:
    """A context and its fitting response; the others are the same for all, with a parrot of the user's turn."""

    context: tuple[str, ...]
    good: str

    @property
    def others(self) -> dict[str, str]:
        """What must come after the good one, by its fault; cheerfulness is a misfit after the bad news alone."""
        found = {
            "insult": INSULT,
            "gibberish": GIBBERISH,
            "short": SHORT,
            "ignorant": IGNORANT,
            "off topic": OFF_TOPIC,
            "parrot": self.context[-1],
        }
        return found | ({"cheerful": CHEERFUL} if self in BAD_NEWS else {})


BAD_NEWS = (
    Choice(("my dog died yesterday",), "i'm so sorry about your dog. how long did you have him?"),
    Choice(("i lost my job this morning and i feel terrible",), "oh no, losing a job is hard. what happened there?"),
    Choice(
        ("how was your week?", "busy! yours?", "awful, my grandmother is in the hospital"),
        "i'm sorry to hear that. is your grandmother going to be all right?",
    ),
)
CHOICES = (
    *BAD_NEWS,
    Choice(("hi, what did you do today?",), "i went for a long walk by the river and read a book. how about you?"),
    Choice(("do you have any pets?",), "yes, i have two cats called salt and pepper. do you like cats?"),
    Choice(
        ("i love cooking", "me too! what do you like to cook?", "mostly italian food, like lasagna"),
        "lasagna is delicious! do you make the pasta yourself?",
    ),
    Choice(
        ("what is the best way to learn the guitar?",), "start with a few easy chords and practice a little every day."
    ),
    Choice(("i just moved to a new city",), "moving is exciting! how do you like the new city so far?"),
    Choice(
        ("have you seen any good movies lately?",),
        "i watched a funny movie about a chef last week. what movies do you like?",
    ),
    Choice(
        ("can you help me find a restaurant in berlin?",),
        "of course! what kind of food would you like to eat in berlin?",
    ),
    Choice(
        ("i play football every weekend", "nice, which position?", "i am the goalkeeper"),
        "a goalkeeper needs quick hands! does your team win often?",
    ),
    Choice(("i passed my driving test today!",), "congratulations! was the driving test difficult?"),
)


@dataclass(frozen=True)
class Fault:
    """A fitting response and a faulty one to the same context, and the heads one of which should say why."""

    kind: str
    context: tuple[str, ...]
    good: str
    bad: str
    heads: tuple[str, ...]


FAULTS = (
    Fault(
        "repeat",
        ("i like hiking", "i like hiking too. where do you go?", "to the alps, every summer"),
        "the alps are beautiful in summer. which peak was the hardest?",
        "i like hiking too. where do you go?",
        ("relevant", "engaging"),
    ),
    Fault(
        "repeat",
        ("do you cook?", "yes, i cook every day.", "what did you cook yesterday?"),
        "yesterday i cooked a vegetable soup with fresh bread.",
        "yes, i cook every day.",
        ("relevant", "engaging"),
    ),
    Fault(
        "contradiction",
        ("do you have pets?", "i have two dogs.", "what are the names of your dogs?"),
        "my dogs are called max and bella.",
        "i don't have any dogs.",
        ("relevant", "sentiment", "continues"),
    ),
    Fault(
        "contradiction",
        ("do you eat meat?", "no, i am a vegetarian.", "what did you have for dinner?"),
        "i had a big salad with beans and rice for dinner.",
        "i had a big steak, i eat meat every day.",
        ("relevant", "sentiment", "continues"),
    ),
    Fault(
        "wrong topic",
        ("which band is your favorite?",),
        "my favorite band is the beatles, i love their songs.",
        "the train to the airport leaves at nine.",
        ("relevant",),
    ),
    Fault(
        "wrong topic",
        ("it rained all day and i could not go running",),
        "that's a pity. maybe you can go running tomorrow when it is dry.",
        "my brother is a lawyer at a bank.",
        ("relevant",),
    ),
    Fault(
        "wrong topic",
        ("i want to book a hotel in paris for two nights",),
        "sure, for which dates would you like the hotel in paris?",
        "i prefer horror movies to comedies.",
        ("relevant",),
    ),
    Fault(
        "wrong topic",
        ("my son starts school next week", "how exciting! is he nervous?", "a little, but he likes his new teacher"),
        "a kind teacher makes the first day of school much easier.",
        "you can buy cheap tires online.",
        ("relevant",),
    ),
    Fault(
        "insult",
        ("i painted a picture of my garden",),
        "how lovely! which flowers did you paint?",
        "your picture is ugly and you are stupid.",
        ("sentiment", "continues", "engaging"),
    ),
    Fault(
        "insult",
        ("can you explain this again?",),
        "of course, let me explain it step by step.",
        "no, you are too dumb to understand it.",
        ("sentiment", "continues", "engaging"),
    ),
    Fault(
        "insult",
        ("i failed my exam",),
        "i'm sorry. when can you take the exam again?",
        "of course you failed, you are a loser.",
        ("sentiment", "continues", "engaging"),
    ),
    Fault(
        "non-answer",
        ("what do you do for a living?",),
        "i work as a nurse in a children's hospital.",
        "i don't know.",
        ("engaging", "relevant"),
    ),
    Fault(
        "non-answer",
        ("tell me something interesting about whales",),
        "blue whales are the largest animals that have ever lived on earth.",
        "ok.",
        ("engaging", "relevant"),
    ),
    Fault(
        "non-answer",
        ("what did you think of the book?", "i liked it. and you?", "i found the ending sad, didn't you?"),
        "yes, the ending was sad, but i liked how the sisters met again.",
        "maybe.",
        ("engaging", "relevant"),
    ),
    Fault(
        "gibberish",
        ("where did you grow up?",),
        "i grew up in a small town near the sea.",
        "grew the near in town i up small sea a.",
        ("fluent",),
    ),
    Fault(
        "gibberish",
        ("what is your favorite season?",),
        "i love autumn because of the colorful leaves.",
        "favorite favorite favorite season season the the the",
        ("fluent",),
    ),
    Fault(
        "gibberish",
        ("do you speak french?",),
        "a little, i learned french at school.",
        "xkcd plomf wertz gnar ubbu",
        ("fluent", "relevant"),
    ),
    Fault(
        "gibberish",
        ("how old is your car?",),
        "my car is ten years old but it runs well.",
        "my car car is ten is ten runs old ten my",
        ("fluent",),
    ),
    Fault(
        "wrong mood",
        ("my best friend moved away and i feel lonely",),
        "i'm sorry, it is hard when a friend moves away. can you visit?",
        "wow, that is awesome! so happy for you!",
        ("relevant", "sentiment", "continues"),
    ),
    Fault(
        "wrong mood",
        ("we won the championship yesterday!",),
        "wow, congratulations! how did you celebrate?",
        "i am so sorry for your loss.",
        ("relevant", "sentiment", "continues"),
    ),
)

LONG_REPLY = (
    "that is a good question, and there are a few ways to go about it. first, take your time and write down what "
    "you want to reach in the next weeks. then pick one small step that you can take today, because small steps are"
    " easier to keep than large plans. many people find that it helps to talk with a friend who has done it before."
    " you can also look for a class in your town, where you meet others who begin as you do. do not worry if it "
    "feels slow in the first days, that is normal and it gets better with practice. after a month, look back at "
    "what went well and what did not, and change your plan. if you tell me more about what you have tried so far, i"
    " can help you choose the next step."
)
"""130 words that fit LONG_CONTEXT."""
LONG_CONTEXT = ("i want to learn painting but i don't know how to begin, what should i do?",)
LONG_FAULTS = {"insult": "shut up, you are a stupid idiot.", "gibberish": "asdf qwer zxcv lkj plomf gnar ubbu wertz."}


def place_fault(fault: str, where: str) -> str:
    """LONG_REPLY with the fault at its `start`, in the `middle` or at its `end`."""
    sentences = LONG_REPLY.split(". ")
    at = {"start": 0, "middle": len(sentences) // 2, "end": len(sentences)}[where]
    joined = ". ".join(sentences[:at])
    rest = ". ".join(sentences[at:])
    return " ".join(part for part in (f"{joined}." if 0 < at < len(sentences) else joined, fault, rest) if part)


def as_turns(context: tuple[str, ...]) -> list[dict[str, Any]]:
    """The context as a request carries it."""
    return [
        {"speaker": "user" if (len(context) - 1 - place) % 2 == 0 else "system", "text": text}
        for place, text in enumerate(context)
    ]
