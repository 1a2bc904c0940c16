"""Exchanges of three small dialogues, for the samplers and systems of the baselines."""

from paper_systems.data import QueryReply


def exchanges(*rows: tuple[str, str, str]) -> list[QueryReply]:
    return [QueryReply(dialogue=dialogue, query=query, reply=reply) for dialogue, query, reply in rows]


POOL = exchanges(
    ("a", "do you like tea ?", "Yes, with milk."),
    ("a", "Yes, with milk.", "same here"),
    ("b", "Do you like tea?", "not at all"),
    ("b", "not at all", "what a pity"),
    ("c", "how old are you ?", "Not at all!"),
    ("c", "who is there ?", "only me"),
)
