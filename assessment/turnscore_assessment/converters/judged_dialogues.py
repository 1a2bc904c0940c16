"""Dialogues that people judged: ConvAI 2017, DSTC9's interactive track, DBDC3 and Dialogue-Eval, a row per dialogue."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from turnscore_assessment.converters.original_files import Record, field, read_json_list, read_json_object
from turnscore_assessment.errors import BadDataError

DBDC3_SYSTEMS = {"iris": "IRIS", "ticktock": "TKTK", "tktk": "TKTK", "yi": "YI"}
DBDC3_SPEAKERS = {"U": "user", "S": "system"}
BREAKDOWNS = ("O", "T", "X")
_SPEAKER = re.compile(r"^(User|System): ?")


def read_convai(paths: Sequence[Path]) -> Iterator[Record]:
    """Rows in the order of the files and their dialogues, which the published split depends on.

    A human's rating of a bot stands under the bot's name, as released.
    """
    order = 0
    for path in paths:
        for place, record in read_json_list(path):
            yield _convert_convai(record, order, path, place)
            order += 1


def _convert_convai(record: Record, order: int, path: Path, place: int) -> Record:
    users = field(record, "users", list, path, place)
    ratings = field(record, "evaluation", list, path, place)
    return {
        "id": str(record.get("dialogId")),
        "order": order,
        "participants": {str(each["id"]): str(each["userType"]).lower() for each in users},
        "ratings": {
            str(each["userId"]): {name: each[name] for name in ("engagement", "quality", "breadth")} for each in ratings
        },
        "turns": [
            {"speaker": str(each["userId"]), "text": str(each["text"]), "thumb": int(each["evaluation"])}
            for each in field(record, "thread", list, path, place)
        ],
        "topic_paragraph": record.get("context", ""),
    }


def read_dstc9(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per dialogue with the ratings of all its raters, who stand one after another in the original."""
    for path in paths:
        number = _number_of(path)
        records = list(read_json_list(path))
        groups = groupby(records, key=lambda each: each[1].get("context"))
        for index, (_, members) in enumerate(groups):
            found = list(members)
            place, first = found[0]
            yield {
                "id": f"dstc9-{number}-{index}",
                "system": number,
                "turns": _split_turns(field(first, "context", str, path, place), path, place),
                "ratings": [{name: value for name, value in each.items() if name != "context"} for _, each in found],
            }


def _number_of(path: Path) -> int:
    found = re.search(r"chatbot(\d+)", path.name)
    if found is None:
        raise BadDataError(path, 0, "is not named after its system, as chatbot1.json is")
    return int(found[1])


def _split_turns(text: str, path: Path, place: int) -> list[Record]:
    """A line without a speaker goes on with the turn before it."""
    turns: list[Record] = []
    for line in text.splitlines():
        found = _SPEAKER.match(line)
        if found:
            turns.append({"speaker": found[1].lower(), "text": line[found.end() :]})
        elif turns and line.strip():
            turns[-1]["text"] += f" {line.strip()}"
        elif line.strip():
            raise BadDataError(path, place, f"`context` begins with {line[:30]!r}, which names no speaker")
    return turns


def read_dbdc3(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per dialogue; a system's turns have the number of annotators for each kind of breakdown."""
    for path in paths:
        record = read_json_object(path)
        name = field(record, "dialogue-id", str, path, 1)
        system = DBDC3_SYSTEMS.get(name.partition("_")[0])
        if system is None:
            raise BadDataError(path, 1, f"`dialogue-id` is {name!r}, of none of {', '.join(DBDC3_SYSTEMS)}")
        turns = field(record, "turns", list, path, 1)
        yield {"id": name, "system": system, "turns": [_convert_breakdown(each, path) for each in turns]}


def _convert_breakdown(turn: Mapping[str, Any], path: Path) -> Record:
    speaker = DBDC3_SPEAKERS.get(str(turn.get("speaker")))
    if speaker is None:
        raise BadDataError(path, 1, f"a turn's `speaker` is {turn.get('speaker')!r}, expected U or S")
    row: Record = {"speaker": speaker, "text": str(turn["utterance"])}
    votes = Counter(str(each["breakdown"]) for each in turn.get("annotations", ()))
    if votes:
        row["breakdown_votes"] = {kind: votes[kind] for kind in BREAKDOWNS}
    return row


def read_dialogue_eval(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per conversation; `robotic` and `repetitive` are reversed as released. Ids of people are hashed."""
    for path in paths:
        for place, record in read_json_list(path):
            for position, each in enumerate(field(record, "data", list, path, place)):
                yield {
                    "worker": _hash(field(record, "WorkerId", str, path, place)),
                    "hit": _hash(field(record, "HITId", str, path, place)),
                    "position": position,
                    "model": field(each, "model", str, path, place),
                    "topic": each.get("topic", []),
                    "ratings": field(each, "raw scores", dict, path, place),
                    "turns": [turn for spoken in each["dialogue"] for turn in _convert_round(spoken)],
                }


def _convert_round(spoken: Mapping[str, str]) -> list[Record]:
    return [{"speaker": speaker, "text": spoken[name]} for speaker, name in (("user", "user"), ("system", "bot"))]


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:12]
