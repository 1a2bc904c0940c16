"""Sentences: made-up small talk by a grammar of our own, with replies that fit, bore, miss the topic or offend."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

TOPICS: dict[str, tuple[str, ...]] = {
    "bread": ("a rye loaf", "the dark crust", "a sack of flour", "sourdough", "the old oven"),
    "boats": ("a rowing boat", "the last ferry", "an old sail", "the harbour light", "a torn net"),
    "birds": ("a grey heron", "two magpies", "an owl", "the nest on the roof", "a lost parrot"),
    "trains": ("the night train", "a broken signal", "the dining car", "platform nine", "a paper ticket"),
    "gardens": ("the tomato plants", "a pear tree", "the compost", "a stone path", "wild mint"),
    "music": ("a cello", "the village choir", "an out of tune piano", "a folk song", "the drum part"),
    "films": ("a silent film", "the final scene", "a heist comedy", "the old cinema", "a bad sequel"),
    "mountains": ("a narrow ridge", "the hut below the pass", "a frozen lake", "the cable car", "new boots"),
    "cooking": ("a lentil soup", "burnt onions", "the spice rack", "a borrowed pan", "my aunt's stew"),
    "football": ("the late goal", "a muddy pitch", "the away match", "our goalkeeper", "extra time"),
    "cats": ("a three-legged cat", "her kittens", "the scratched sofa", "a stray tom", "the cat door"),
    "books": ("a crime novel", "the library van", "a torn page", "an atlas", "the last chapter"),
    "weather": ("the first snow", "a week of fog", "the hailstorm", "a mild winter", "the broken umbrella"),
    "work": ("a long meeting", "the new office", "my first pay", "a night shift", "the coffee machine"),
    "painting": ("a blue landscape", "the empty canvas", "a cheap brush", "her portrait", "oil paint"),
    "bicycles": ("a flat tyre", "the bike lane", "a rusty chain", "the long way home", "a cargo bike"),
}
PEOPLE = (
    *("my sister", "my neighbour", "a friend from school", "my uncle", "the postman", "our teacher", "my cousin"),
    *("an old colleague", "the woman next door", "my grandfather"),
)
TIMES = (
    *("this morning", "last summer", "on Sunday", "years ago", "before breakfast", "after work", "in the rain"),
    *("the other day", "during the holidays", "at midnight"),
)
DEEDS = ("saw", "drew", "looked for", "talked about", "dreamed of", "read about", "lost sleep over", "wrote about")
SAYINGS = (
    "{person} and i {deed} {thing} {time}.",
    "i {deed} {thing} {time}, and it took all day.",
    "have you ever {deed} {thing}? i did, {time}.",
    "do you know anything about {topic}? {person} never stops talking of {thing}.",
    "{time} {person} {deed} {thing} and laughed.",
)
FITTING = (
    "That sounds lovely! I like {topic} too. What did {person} say about {thing}?",
    "Oh, {thing}! I {deed} that {time} as well. How did it end?",
    "I never knew that about {topic}. Did {person} help you with {thing}?",
    "{thing} is hard to forget. Would you do it again {time}?",
    "Good for you. {person} once told me {thing} is the best part of {topic}.",
)
DULL = ("ok.", "i see.", "i don't know.", "yes.", "cool.", "no.", "sure.", "hmm.")
RUDE = ("nobody asked about {topic}.", "you are so boring.", "stop talking about {thing}.", "that is a stupid story.")
HAPPY = ("haha, thank you!", "yes, it was great.", "i love that you asked!", "that is a good question.")
UNHAPPY = ("what are you talking about?", "that makes no sense.", "you already said that.", "this is boring.")


class Kind(StrEnum):
    """How a reply relates to what was said."""

    FITTING = "fitting"
    DULL = "dull"
    ELSEWHERE = "elsewhere"
    RUDE = "rude"


GRADES = {Kind.FITTING: 1.0, Kind.DULL: 0.4, Kind.ELSEWHERE: 0.2, Kind.RUDE: 0.0}
"""The made-up grade of a reply of this kind, from 0 to 1."""


@dataclass(frozen=True)
class Said:
    """One turn of made-up talk; a reply has a grade."""

    text: str
    kind: Kind | None = None

    @property
    def grade(self) -> float:
        return 1.0 if self.kind is None else GRADES[self.kind]


class Talk:
    """Draws sentences; the same generator gives the same ones."""

    def __init__(self, generator: random.Random, seed: int = 0) -> None:
        self.generator = generator
        self.seed = seed

    def pick(self, options: Sequence[str]) -> str:
        return self.generator.choice(options)

    def say(self, topic: str) -> str:
        """What somebody says of the topic."""
        return self._fill(self.pick(SAYINGS), topic)

    def reply(self, topic: str, kind: Kind) -> str:
        """A reply of that kind to something of the topic."""
        if kind == Kind.DULL:
            return self.pick(DULL)
        if kind == Kind.RUDE:
            return self._fill(self.pick(RUDE), topic)
        other = topic if kind == Kind.FITTING else self.pick([each for each in TOPICS if each != topic])
        return self._fill(self.pick(FITTING), other)

    def draw_kind(self, goodness: float) -> Kind:
        """A fitting reply with that probability, else one of the others."""
        if self.generator.random() < goodness:
            return Kind.FITTING
        return self.generator.choices((Kind.DULL, Kind.ELSEWHERE, Kind.RUDE), weights=(4, 4, 1))[0]

    def dialogue(self, exchanges: int, goodness: float) -> list[Said]:
        """So many turns of a user, each followed by a reply; the user reacts to the reply before."""
        topic = self.pick(list(TOPICS))
        turns: list[Said] = []
        before: Kind | None = None
        for _ in range(exchanges):
            mood = "" if before is None else self.pick(HAPPY if before == Kind.FITTING else UNHAPPY) + " "
            before = self.draw_kind(goodness)
            turns += [Said(f"{mood}{self.say(topic)}"), Said(self.reply(topic, before), before)]
            if self.generator.random() < 0.2:
                topic = self.pick(list(TOPICS))
        return turns

    def _fill(self, template: str, topic: str) -> str:
        text = template.format(
            topic=topic,
            thing=self.pick(TOPICS[topic]),
            person=self.pick(PEOPLE),
            time=self.pick(TIMES),
            deed=self.pick(DEEDS),
        )
        return text[0].upper() + text[1:] if template in FITTING else text
