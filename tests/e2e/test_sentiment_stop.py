"""The real service, sentiment/stop: in a pleasant dialogue a hostile or broken response gets less than a fitting one.

The dialogues were written for this file; no set that the model was trained on holds them.
"""

import pytest
from turnscore_client import TurnScoreClient

pytestmark = pytest.mark.e2e

SPEAKERS = ("user", "system", "user")

# Three turns, a fitting response, a bad one.
PAIRS: tuple[tuple[tuple[str, str, str], str, str], ...] = (
    (
        ("I adopted a kitten yesterday!", "How wonderful, what does it look like?", "She is grey with white paws."),
        "She sounds adorable! Have you found a name for her yet?",
        "You are too stupid to look after a cat.",
    ),
    (
        ("We are moving to the coast next month.", "Exciting! Are you looking forward to it?", "Yes, I love the sea."),
        "Living by the sea must be lovely. Do you like to swim?",
        "Shut up, I hate listening to you.",
    ),
    (
        ("I learned to bake bread this winter.", "Great, which kind do you bake?", "Mostly rye, with seeds."),
        "Rye bread with seeds is delicious! Do you make your own sourdough?",
        "Your bread is disgusting and so are you.",
    ),
    (
        ("My daughter won a chess tournament.", "Congratulations, how old is she?", "She is nine."),
        "Wow, nine years old! You must be very proud of her. Who taught her to play?",
        "She is an idiot like you, she will lose.",
    ),
    (
        ("I went to a jazz concert last night.", "Nice! Who was playing?", "A trio from Oslo, they were brilliant."),
        "A jazz trio sounds great! Do you play an instrument yourself?",
        "xkq plo rrtz vbn wq oiu",
    ),
    (
        ("I am knitting a scarf for my brother.", "That is kind of you. Which colour?", "Dark blue, his favourite."),
        "Dark blue is a beautiful colour. Is it hard to learn how to knit?",
        "scarf scarf scarf scarf scarf scarf scarf scarf",
    ),
    (
        ("Do you like hiking?", "I do, the mountains are beautiful. And you?", "I go every weekend with friends."),
        "That sounds fun! What is the most beautiful place you have been to?",
        "hiking with the is do of mountains every not like when",
    ),
    (
        ("I am reading a novel about pirates.", "Fun! Is it any good?", "It is thrilling, I can't put it down."),
        "I love books like that! Who is your favourite character so far?",
        "Fun! Is it any good?",
    ),
    (
        ("I painted our old boat.", "Oh nice, what colour is it?", "Bright red, it looks like new."),
        "Bright red must look great on the water! When will you take it out?",
        "Nobody wants to hear about your ugly boat.",
    ),
    (
        ("My garden is full of bees this year.", "How nice! What do you grow?", "Lavender and sunflowers."),
        "Bees love lavender! Do you make your own honey too?",
        "The president of the dentist is a number in my shoe.",
    ),
)
LEAST_IN_ORDER = 9


def test_bad_responses_get_less_than_fitting_ones(client: TurnScoreClient):
    differences = []
    for context, fitting, bad in PAIRS:
        spoken = list(zip(SPEAKERS, context, strict=True))
        scores = [
            client.score(context=spoken, response=response, scorers=["sentiment_stop"]).scores["sentiment_stop"]
            for response in (fitting, bad)
        ]
        differences.append(scores[0].value - scores[1].value)
    assert sum(difference > 0 for difference in differences) >= LEAST_IN_ORDER, differences
