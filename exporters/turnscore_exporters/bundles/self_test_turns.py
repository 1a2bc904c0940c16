"""The turns of every kind's self-test: our own text, spread over the scale of each scorer. Knows no model.

Each is a conversation whose last text is the response; before it system and user take turns, the user last.
"""

from collections.abc import Sequence

from turnscore_core.scorers.scorer import TurnToScore
from turnscore_wire import Turn

Texts = tuple[str, ...]

# Greetings, dull and lively replies, numbers, other scripts, markup, no context, long text.
_ENGAGEMENT: tuple[Texts, ...] = (
    ("hi, what did you do today?", "i hiked up a volcano and nearly lost my hat. ever been on one?"),
    ("hi, what did you do today?", "ok."),
    ("do you like music?", "I don't know."),
    ("do you like music?", "Very much! I play the cello in a small orchestra. Which instrument would you learn?"),
    ("how much is the ticket to Turin?", "It's 42.50 euros, and the 9:15 train still has seats by the window."),
    ("any plans for the weekend?", "We might paint the kitchen yellow, if my brother remembers to bring the ladder."),
    ("are you a robot?", "no no no no no no"),
    ("Good evening! What would you like to talk about?",),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("was machst du heute?", "Ich gehe schwimmen, und du?"),
    ("tell me a story 🙂", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 4),
    ("what is 2 + 2?", "<b>4</b>"),
)

# Fitting, rude, dull, broken and repeated responses, no context, other scripts, markup, a long context and response.
_SENTIMENT_STOP: tuple[Texts, ...] = (
    ("i baked bread this morning", "That sounds lovely! What kind was it?"),
    ("i baked bread this morning", "Nobody wants to hear about your bread."),
    ("do you have pets?", "Two cats. And you?", "a very old dog", "Aw, what is the old dog's name?"),
    ("do you have pets?", "Two cats. And you?", "a very old dog", "Two cats. And you?"),
    ("which train goes to Turin?", "The 9:15, from platform 4. Shall I look for the fare?"),
    ("which train goes to Turin?", "platform platform train is the of Turin when"),
    ("tell me something", "ok."),
    ("Good evening! What would you like to talk about?",),
    ("was machst du heute?", "Ich gehe schwimmen, und du? 🙂"),
    ("what is 2 + 2?", "<b>4</b>"),
    ("well " * 60, "and then " * 30, "go on", "I will."),
    ("tell me a story", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 8),
)

# Chat, a bare answer, no context, emoji and another script, markup, a long turn.
FED_VERIFIED: tuple[Texts, ...] = (
    ("hi, seen any good films?", "yes, a heist film set in Lisbon. do you like those?"),
    ("hi, seen any good films?", "yes, a heist film set in Lisbon. do you like those?", "i love them", "ok."),
    ("Good evening! What would you like to talk about?",),
    (
        "tell me a story 🙂",
        "¿Por qué no? 从前有一座山 🏔️🏔️",
        "what?",
        "<b>Once</b> upon a time  there was\ta lighthouse.",
    ),
    ("my dog died yesterday", "no no no no no no " * 6),
)
"""The turns that an export also scores the published way, which takes a pass for every follow-up."""

# With the starter model these lie between its 6th and its 98th percentile; those above between its 19th and its 85th.
_FED_SPREAD: tuple[Texts, ...] = (
    ("was machst du?", "ich weiss es nicht"),
    ("how was your day?", "why do you care"),
    ("can you help me?", "Sorry, I did not understand that. Could you say it again?"),
    ("my tooth hurts", "haha that is so funny"),
    ("i moved to a new city last week", "that is so cool! i love new places. how do you like it?"),
    ("do you like cats?", "i like cats", "me too", "i like cats", "you said that", "i like cats"),
    ("I AM SO ANGRY", "PLEASE CALM DOWN SIR"),
    ("what time is it?", "1 2 3 4 5 6 7 8 9 10"),
)

# Fitting, off topic, repeated, rude, dull, garbled, contradicting, no context, another script, markup, several windows.
_QUALITY: tuple[Texts, ...] = (
    ("i baked bread this morning", "That sounds lovely! What kind was it?"),
    ("i baked bread this morning", "The train to Turin leaves from platform 4."),
    ("i baked bread this morning", "i baked bread this morning"),
    ("my dog died yesterday", "haha that's great! congratulations!"),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("do you have pets?", "I have two cats.", "what are their names?", "I never had any pets, I hate cats."),
    ("tell me something", "ok."),
    ("which train goes to Turin?", "platform platform train is the of Turin when"),
    ("are you a robot?", "Shut up, you idiot."),
    ("Good evening! What would you like to talk about?",),
    ("was machst du heute?", "Ich gehe schwimmen, und du? 🙂"),
    ("what is 2 + 2?", "<b>4</b>"),
    ("tell me a story", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 12),
)

# The same, near and far; short and long; no context, another script, markup.
_ENCODER: tuple[Texts, ...] = (
    ("i baked bread this morning", "i baked bread this morning"),
    ("i baked bread this morning", "This morning I made a loaf in my own oven."),
    ("i baked bread this morning", "The train to Turin leaves from platform 4."),
    ("do you have pets?", "Two cats. And you?"),
    ("my dog died yesterday", "I am so sorry. How long had the two of you been together?"),
    ("my dog died yesterday", "ok."),
    ("Good evening! What would you like to talk about?",),
    ("was machst du heute?", "Ich gehe schwimmen, und du? 🙂"),
    ("what is 2 + 2?", "<b>4</b>"),
    ("how much is the ticket to Turin?", "It's 42.50 euros, and the 9:15 train still has seats by the window."),
    ("tell me a story", "Once upon a time there was a lighthouse keeper who was afraid of the dark. " * 12),
    ("well " * 60, "and then " * 30),
)

SELF_TEST_TEXTS: dict[str, tuple[Texts, ...]] = {
    "encoder": _ENCODER,
    "engagement": _ENGAGEMENT,
    "sentiment_stop": _SENTIMENT_STOP,
    "fed": FED_VERIFIED + _FED_SPREAD,
    "quality": _QUALITY,
    "relevance": _ENGAGEMENT,
    "usr": _ENGAGEMENT,
}


def build_turn(texts: Sequence[str], options: object = None) -> TurnToScore:
    """A turn whose response is the last text and whose context the others."""
    last = len(texts) - 1
    context = [Turn(speaker="system" if (last - i) % 2 == 0 else "user", text=texts[i]) for i in range(last)]
    return TurnToScore(context, texts[-1], options=options)


def self_test_turns(kind: str) -> list[TurnToScore]:
    return [build_turn(texts) for texts in SELF_TEST_TEXTS[kind]]
