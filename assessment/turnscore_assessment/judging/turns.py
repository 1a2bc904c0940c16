"""What is judged: rows of one context with its responses, read from every form that the other commands take."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

from pydantic import Json, TypeAdapter, ValidationError
from turnscore_wire import ChatMessage, Turn, map_messages

from turnscore_assessment.data.dialogues import FIT, SYSTEM, USER, LabelledTurn, Spoken, alternate, choose_split
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import describe_problem, read_rows, stream_csv

MOST_CONTEXT_TURNS = 50  # Turns of a context that are kept, the last ones. Chosen: no scorer reads as many.
CONTEXT_CHARACTERS = 8_000  # Characters of a context that a judge reads, the last ones. Chosen: some 2,000 tokens.
# The longest response that is judged. Chosen: a mark of a part would be no mark of the response.
RESPONSE_CHARACTERS = 20_000
PEOPLE, COLUMN = "people", "people."  # The field of people's marks, and how a CSV's columns of them begin.

Marks = dict[str, float]
Fields = Mapping[str, Any]
_SPEAKERS = {"A": USER, "B": SYSTEM}
_MESSAGES, _TURNS = TypeAdapter(list[ChatMessage]), TypeAdapter(list[Turn])
_MARKS, _JSON, _TEXT = TypeAdapter(Marks), TypeAdapter(Json[list[Any]]), TypeAdapter(str)


@dataclass(frozen=True, slots=True)
class Response:
    """A turn as it is judged, its context as far as it is read; `key` stands for all of it."""

    key: str
    turn: LabelledTurn
    fields: Fields  # All that the file says of it, people's marks among it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One context and the responses to it."""

    line: int
    set_name: str
    dialogue: str
    split: str
    context: Sequence[Spoken]
    responses: Sequence[Response]

    def to_json(self, responses: Sequence[Fields], **common: object) -> dict[str, Any]:
        """The row in the form of `judged_turns.jsonl.gz`, with these responses."""
        context = [{"speaker": speaker, "text": text} for speaker, text in self.context]
        own = {"set": self.set_name, "dialogue": self.dialogue, "split": self.split}
        return {**own, "context": context, "responses": responses, **common}


def describe_response(fields: Fields, marks: Mapping[str, Marks], judges: int | None = None) -> dict[str, Any]:
    """A response of a row: its marks by judge, the mean for every criterion, and how many judges gave them."""
    kept = {name: value for name, value in fields.items() if name != PEOPLE or value}
    names = dict.fromkeys(name for found in marks.values() for name in found)
    given = {name: [found[name] for found in marks.values() if name in found] for name in names}
    means = {name: round(fsum(values) / len(values), 4) for name, values in given.items()}
    return {**kept, **means, "judges": len(marks) if judges is None else judges, "marks": dict(marks)}


def drop_marks(fields: Fields, criteria: Iterable[str]) -> dict[str, Any]:
    """The fields without what an earlier judge or stand-in said: no mark stands under the name of another."""
    given = fields.get("marks")
    earlier = given.values() if isinstance(given, Mapping) else ()
    dropped = {*criteria, *(name for marks in earlier if isinstance(marks, Mapping) for name in marks)}
    if fields.get("judges") == 0:  # A stand-in's means, perhaps without the marks themselves.
        dropped |= {name for name, value in fields.items() if isinstance(value, int | float)}
    return {name: value for name, value in fields.items() if name not in dropped}


def build_row(
    set_name: str, dialogue: str, context: Sequence[Spoken], responses: Sequence[Fields], line: int = 0, split: str = ""
) -> Row:
    """The row; `split` is given, or follows from the dialogue's name. Responses without text are left out."""
    kept = context[-MOST_CONTEXT_TURNS:]
    shown: list[Spoken] = []
    left = CONTEXT_CHARACTERS
    for speaker, text in reversed(kept):
        if left > 0:
            shown.insert(0, (speaker, text[-left:]))
            left -= len(text)
    built = []
    for each in responses:
        if each["text"].strip():
            key = hashlib.blake2b(json.dumps([shown, each["text"]]).encode(), digest_size=12).hexdigest()
            built.append(Response(key, LabelledTurn(context=tuple(shown), response=each["text"]), each))
    split = split or ("train" if choose_split(dialogue) == FIT else "dev")
    return Row(line=line, set_name=set_name, dialogue=dialogue, split=split, context=kept, responses=built)


def read_responses(path: Path, share: float = 1.0) -> Iterator[Row]:
    """The rows of a file, or of a share of its dialogues, one at a time. BadFileError names line and field.

    JSON lines of dialogues (`turns` or `messages`), of score requests (`response` with `context` or `messages`), or of
    judged rows (`responses`); or a CSV with `response` and `context`. Of dialogues every system turn that answers
    something is judged. The share is chosen by dialogues' names, the same each time.
    """
    records = stream_csv(path, ("context", "response")) if ".csv" in path.suffixes else read_rows(path)
    for line, record in records:
        try:
            for row in _read_record(stem_of(path), line, record):
                place = hashlib.sha256(f"judge: {row.dialogue}".encode()).digest()[:4]
                if int.from_bytes(place, "big") < share * 2**32:
                    yield row
        except ValueError as error:
            raise BadFileError(path, line, str(error)) from None


def _read_record(stem: str, line: int, record: Fields) -> Iterator[Row]:
    """The rows of a record. ValueError names the field that is wrong."""
    name = str(record.get("dialogue") or record.get("id") or "")
    if "messages" in record:
        messages = map_messages(check(_MESSAGES, record["messages"], "messages")).turns
        context: list[Spoken] = [(each.speaker, each.text) for each in messages]
    else:
        context = _read_turns(record["turns"]) if "turns" in record else read_context(record.get("context", []))
    if "turns" in record or ("messages" in record and "response" not in record):
        for place, (speaker, text) in enumerate(context):
            if speaker == SYSTEM and place:
                yield build_row(stem, name or f"{stem} {line}", context[:place], [{"text": text}], line)
        return
    known = {name: mark for name, mark in record.items() if mark not in (None, "")}
    columns = {name[len(COLUMN) :]: mark for name, mark in known.items() if name.startswith(COLUMN)}
    responses = record.get("responses", [{"text": record.get("response"), PEOPLE: record.get(PEOPLE) or columns}])
    if not isinstance(responses, list) or not all(isinstance(each, Mapping) for each in responses):
        raise ValueError("responses: must be a list of objects")
    for place, each in enumerate(responses):
        check(_TEXT, each.get("text"), f"responses.{place}.text" if "responses" in record else "response")
    checked = [{**each, PEOPLE: check(_MARKS, each.get(PEOPLE) or {}, PEOPLE)} for each in responses]
    set_name, split = str(record.get("set") or stem), str(record.get("split") or "")
    yield build_row(set_name, name or name_by_context(context), context, checked, line, split)


def read_context(given: object) -> list[Spoken]:
    """A context: a list of turns or of texts (of a CSV as JSON), the last text by the user; or one text of the user."""
    if isinstance(given, str):
        given = check(_JSON, given, "context") if given.lstrip().startswith("[") else [given] if given.strip() else []
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return list(alternate(given))
    return _read_turns(given, "context")


def _read_turns(given: object, within: str = "turns") -> list[Spoken]:
    """Turns, whose further fields are left out; texts are said by the user and the system by turns."""

    def name_speaker(place: int, turn: object) -> object:
        if isinstance(turn, Mapping):
            speaker = turn.get("speaker")
            return {"speaker": _SPEAKERS.get(str(speaker), speaker), "text": turn.get("text")}
        return {"speaker": (USER, SYSTEM)[place % 2], "text": turn} if isinstance(turn, str) else turn

    named = [name_speaker(*each) for each in enumerate(given)] if isinstance(given, list) else given
    return [(each.speaker, each.text) for each in check(_TURNS, named, within)]


def check(adapter: TypeAdapter[Any], given: object, within: str) -> Any:
    """What pydantic makes of it. ValueError names the field that is wrong."""
    try:
        return adapter.validate_python(given)
    except ValidationError as error:
        raise ValueError(describe_problem(error, within)) from None


def name_by_context(context: Sequence[Spoken]) -> str:
    """Rows that begin alike count as one dialogue, so that none is trained on and tested on.

    Where the system begins, perhaps with the same greeting each time, the user's first text counts, too.
    """
    texts = [text for _, text in context[:1]]
    if context and context[0][0] == SYSTEM:
        texts += [text for speaker, text in context if speaker == USER][:1]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def stem_of(path: Path) -> str:
    """The file's name without its endings."""
    return path.name.partition(".")[0]
