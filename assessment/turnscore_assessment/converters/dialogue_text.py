"""Dialogues without judgements: Schema-Guided Dialogue, Topical-Chat and Synthetic-Persona-Chat, a row per dialogue."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from turnscore_assessment.converters.original_files import Record, field, read_csv, read_json_list, read_json_object

CONVERSATION = "Best Generated Conversation"
_USER = re.compile(r"^User [12]: ?")


def read_schema_guided(paths: Sequence[Path]) -> Iterator[Record]:
    """The turns' texts; a dialogue that repeats another word for word is left out."""
    seen: set[tuple[str, ...]] = set()
    for path in paths:
        for place, record in read_json_list(path):
            turns = tuple(str(each["utterance"]) for each in field(record, "turns", list, path, place))
            if turns not in seen:
                seen.add(turns)
                yield {"source": "sgd", "turns": list(turns)}


def read_topical_chat(paths: Sequence[Path]) -> Iterator[Record]:
    """The messages, with white space collapsed."""
    for path in paths:
        for name, record in read_json_object(path).items():
            content = field(record, "content", list, path, 1) if isinstance(record, dict) else None
            if content is None:
                field({name: record}, name, dict, path, 1)
            yield {"source": "topical_chat", "turns": [" ".join(each["message"].split()) for each in content or ()]}


def read_persona_chat(paths: Sequence[Path]) -> Iterator[Record]:
    """The lines of each conversation that begin with `User 1:` or `User 2:`."""
    for path in paths:
        for place, record in read_csv(path):
            lines = field(record, CONVERSATION, str, path, place).split("\n")
            said = [line[found.end() :].strip() for line in lines if (found := _USER.match(line))]
            yield {"source": "synthetic_persona_chat", "turns": said}
