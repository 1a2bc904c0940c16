"""Readers of the original files of public sets, which yield rows in the form that our commands read.

JSON, JSON lines, or CSV, gzipped or not. Errors name the file and the place.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Any

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import UNREADABLE, open_text, read_csv

Record = dict[str, Any]


def read_json_list(path: Path) -> Iterator[tuple[int, Record]]:
    """(place from 1, object) of a file that is a list of objects, or of JSON lines."""
    text = _read(path)
    if text.lstrip().startswith("["):
        found = list(enumerate(_parse(text, path), start=1))
    else:  # lines end at \n alone: a JSON text may hold what else Python takes for a line's end, such as U+2028
        lines = enumerate(text.split("\n"), start=1)
        found = [(place, _parse(line, path, place)) for place, line in lines if line.strip()]
    for place, record in found:
        if not isinstance(record, dict):
            raise BadFileError(path, place, "is not a JSON object")
        yield place, record


def read_json_object(path: Path) -> Record:
    found = _parse(_read(path), path)
    if not isinstance(found, dict):
        raise BadFileError(path, 1, "is not a JSON object")
    return found


def field(record: Mapping[str, Any], name: str, kind: type, path: Path, place: int) -> Any:
    """A field of that type; BadFileError naming it."""
    value = record.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadFileError(path, place, f"`{name}` is {type(value).__name__}, expected {kind.__name__}")
    return value


def _parse(text: str, path: Path, line: int | None = None) -> Any:
    """What the JSON says; BadFileError naming the line, by default the one in which the text is wrong."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadFileError(path, line or error.lineno, f"is not JSON ({error.msg})") from error


def _read(path: Path) -> str:
    try:
        with open_text(path, newline="") as file:
            return file.read()
    except (OSError, *UNREADABLE) as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error


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
        for place, record in read_csv(path).rows:
            lines = field(record, CONVERSATION, str, path, place).split("\n")
            said = [line[found.end() :].strip() for line in lines if (found := _USER.match(line))]
            yield {"source": "synthetic_persona_chat", "turns": said}


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
        raise BadFileError(path, 0, "is not named after its system, as chatbot1.json is")
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
            raise BadFileError(path, place, f"`context` begins with {line[:30]!r}, which names no speaker")
    return turns


def read_dbdc3(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per dialogue; a system's turns have the number of annotators for each kind of breakdown."""
    for path in paths:
        record = read_json_object(path)
        name = field(record, "dialogue-id", str, path, 1)
        system = DBDC3_SYSTEMS.get(name.partition("_")[0])
        if system is None:
            raise BadFileError(path, 1, f"`dialogue-id` is {name!r}, of none of {', '.join(DBDC3_SYSTEMS)}")
        turns = field(record, "turns", list, path, 1)
        yield {"id": name, "system": system, "turns": [_convert_breakdown(each, path) for each in turns]}


def _convert_breakdown(turn: Mapping[str, Any], path: Path) -> Record:
    speaker = DBDC3_SPEAKERS.get(str(turn.get("speaker")))
    if speaker is None:
        raise BadFileError(path, 1, f"a turn's `speaker` is {turn.get('speaker')!r}, expected U or S")
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


KINDS = {
    "relevant": "positive_responses",
    "adversarial": "adversarial_negative_responses",
    "random": "random_negative_responses",
}
ZHAO_SETS = ("persona-zhao", "dailydialog-zhao")
FIVE_POINTS = (1, 5)
_TURN, _REFERENCE = "||||", "\t"


def read_adversarial(paths: Sequence[Path]) -> Iterator[Record]:
    """Contexts with relevant, adversarial and random responses; the file's name gives the split."""
    for path in paths:
        split = next((part for part in ("train", "dev", "test") if part in path.name), "")
        for place, record in read_json_list(path):
            texts = {kind: field(record, name, list, path, place) for kind, name in KINDS.items()}
            yield {"split": split, "context": field(record, "context", list, path, place), **texts}


def read_several(paths: Sequence[Path]) -> Iterator[Record]:
    """Contexts with several relevant responses."""
    for path in paths:
        for place, record in read_json_list(path):
            relevant = field(record, KINDS["relevant"], list, path, place)
            yield {"context": field(record, "context", list, path, place), "relevant": relevant}


def read_grade(paths: Sequence[Path]) -> Iterator[Record]:
    """Responses with each rater's relevance from 1 to 5."""
    for path in paths:
        for place, record in read_json_list(path):
            ratings = _read_ratings(field(record, "HumanScores", str, path, place), path, place)
            yield {
                "set": f"{record.get('Dataset')}-grade",
                "question": "relevance",
                "scale": [1, 5],
                "system": record.get("DialogModel"),
                "context": field(record, "Context", str, path, place).split("|||"),
                "response": field(record, "Response", str, path, place),
                "rating": sum(ratings) / len(ratings),
                "ratings": ratings,
            }


def _read_ratings(text: str, path: Path, place: int) -> list[int]:
    try:
        ratings = json.loads(text)
    except json.JSONDecodeError:
        ratings = None
    if not isinstance(ratings, list) or not ratings or not all(isinstance(each, int) for each in ratings):
        raise BadFileError(path, place, f"`HumanScores` is {text[:40]!r}, expected a list of whole numbers")
    return ratings


def read_zhao(paths: Sequence[Path]) -> Iterator[Record]:
    """Responses with the mean of what people said of them in all, from 1 to 5 (Zhao et al. 2020).

    The form is xDial-Eval's: a context's texts are the lines of a cell, and the file's name is the set's.
    """
    for path in paths:
        name = next((each for each in ZHAO_SETS if each in path.name), None)
        if name is None:
            raise BadFileError(path, 0, f"is not named after its set, as {ZHAO_SETS[0]}.csv is")
        for place, record in read_csv(path).rows:
            yield {
                "set": name,
                "question": "overall",
                "scale": list(FIVE_POINTS),
                "context": field(record, "english_ctx", str, path, place).split("\n"),
                "response": field(record, "english_res", str, path, place),
                "rating": _read_rating(record, "ratings", FIVE_POINTS, path, place),
            }


def read_multiref_ratings(paths: Sequence[Path]) -> Iterator[Record]:
    """Rated responses of five systems with their references."""
    for path in paths:
        for place, record in read_csv(path).rows:
            rating = _read_rating(record, "human_average_rating", FIVE_POINTS, path, place)
            yield {
                "system": record.get("model"),
                "context_id": record.get("context_id"),
                "context": field(record, "context", str, path, place).split(_TURN),
                "response": field(record, "response", str, path, place),
                "reference": record.get("prevgt"),
                "references": field(record, "all_references", str, path, place).split(_REFERENCE),
                "rating": rating,
            }


def _read_rating(record: Record, name: str, scale: tuple[float, float], path: Path, place: int) -> float:
    text = field(record, name, str, path, place)
    try:
        value = float(text)
    except ValueError:
        raise BadFileError(path, place, f"`{name}` is {text!r}, expected a number") from None
    if not scale[0] <= value <= scale[1]:
        raise BadFileError(path, place, f"`{name}` is {text}, expected {scale[0]} to {scale[1]}")
    return value


def read_multiref_test(paths: Sequence[Path]) -> Iterator[Record]:
    """Test dialogues with several references for each turn."""
    for path in paths:
        for place, record in read_json_list(path):
            turns = field(record, "dialogue", list, path, place)
            yield {
                "topic": record.get("topic"),
                "turns": [{"text": each["text"], "references": each.get("responses", [])} for each in turns],
            }


Read = Callable[[Sequence[Path]], Iterator[Record]]


@dataclass(frozen=True, kw_only=True)
class OriginalSet:
    """A set as its authors publish it."""

    read: Read
    files: Sequence[str]
    """Patterns of the files in a folder, in the order in which they are read. Those of dailydialog-adversarial do not
    match multireftest.json."""
    rows: int | None = None
    """Rows of the whole set; None where we hold none to count."""
    turns: int | None = None
    becomes: str = ""
    """The file name that our commands look for."""
    note: str = ""


def _read_sets() -> Iterator[tuple[str, OriginalSet]]:
    described = json.loads(resources.files(__package__).joinpath("original_sets.json").read_text(encoding="utf-8"))
    for name, fields in described.items():
        yield name, OriginalSet(**{**fields, "read": globals()[fields["read"]]})


SETS: Mapping[str, OriginalSet] = dict(_read_sets())


def find_files(described: OriginalSet, source: Path) -> list[Path]:
    """The file itself, or the set's files anywhere in the folder, by pattern and then by name.

    BadFileError where the folder has none.
    """
    if source.is_file():
        return [source]
    found = [path for pattern in described.files for path in sorted(source.rglob(pattern)) if path.is_file()]
    if not found:
        raise BadFileError(source, 0, f"has no file like {' or '.join(described.files)}")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class RowCounts:
    """Rows and turns of a converted file; a row of responses has no turns."""

    rows: int
    turns: int


def count_rows(rows: Iterable[Record]) -> RowCounts:
    found = [len(row.get("turns", ())) for row in rows]
    return RowCounts(len(found), sum(found))


def compare_counts(described: OriginalSet, found: RowCounts) -> str:
    """A sentence on whether these are the counts of the whole set."""
    wanted = [
        (name, want, have)
        for name, want, have in (("rows", described.rows, found.rows), ("turns", described.turns, found.turns))
        if want is not None
    ]
    if not wanted:
        return described.note
    missed = [f"{want:,} {name}" for name, want, have in wanted if want != have]
    if missed:
        return f"the whole set has {' and '.join(missed)}: this is a part of it, or another version"
    return "these are the counts of the whole set"
