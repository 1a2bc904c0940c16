"""Exchanges of three small dialogues, for the samplers and systems of the baselines."""

from turnscore_exporters.baselines.material.exchanges import Exchange


def exchanges(*rows: tuple[str, str, str]) -> list[Exchange]:
    return [Exchange(dialogue=dialogue, query=query, reply=reply) for dialogue, query, reply in rows]


POOL = exchanges(
    ("a", "do you like tea ?", "Yes, with milk."),
    ("a", "Yes, with milk.", "same here"),
    ("b", "Do you like tea?", "not at all"),
    ("b", "not at all", "what a pity"),
    ("c", "how old are you ?", "Not at all!"),
    ("c", "who is there ?", "only me"),
)
