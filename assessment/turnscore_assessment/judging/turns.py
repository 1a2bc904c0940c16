"""What is judged: rows of one context with its responses, read from every form that the other commands take."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from turnscore_wire import ChatMessage, Turn, map_messages

from turnscore_assessment.data.dialogues import FIT, SYSTEM, USER, Spoken, alternate, choose_split, read_dialogues
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import check_row, read_rows, stream_csv

MOST_CONTEXT_TURNS = 50  # Turns of a context that are kept, the last ones. Chosen: no scorer reads as many.
CONTEXT_CHARACTERS = 8_000  # Characters of a context that a judge reads, the last ones. Chosen: some 2,000 tokens.
# The longest response that is judged. Chosen: a mark of a part would be no mark of the response.
RESPONSE_CHARACTERS = 20_000
PEOPLE = "people."  # Columns of a CSV that begin so hold people's marks.

Marks = dict[str, float]
_MESSAGES, _TURNS, _MARKS = TypeAdapter(list[ChatMessage]), TypeAdapter(list[Turn]), TypeAdapter(Marks)


@dataclass(frozen=True, slots=True)
class Response:
    """A response in its context, as it is judged; `key` stands for both of them."""

    key: str
    context: Sequence[Spoken]
    text: str
    people: Marks
    other: Mapping[str, Any]  # Further fields of the response, which are handed on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One context and the responses to it."""

    line: int
    set_name: str
    dialogue: str
    split: str
    context: Sequence[Spoken]
    responses: Sequence[Response]

    def to_json(self, responses: Sequence[Mapping[str, Any]], **common: object) -> dict[str, Any]:
        """The row in the form of `judged_turns.jsonl.gz`, with these responses."""
        context = [{"speaker": speaker, "text": text} for speaker, text in self.context]
        own = {"set": self.set_name, "dialogue": self.dialogue, "split": self.split}
        return {**own, "context": context, "responses": list(responses), **common}


def build_row(
    set_name: str, dialogue: str, context: Sequence[Spoken], responses: Sequence[Mapping[str, Any]], line: int = 0,
    split: object = None,
) -> Row:  # fmt: skip
    """The row; `split` is given, or follows from the dialogue's name. Responses without text are left out."""
    kept = tuple(context)[-MOST_CONTEXT_TURNS:]
    shown = _cut(kept)
    built = []
    for each in responses:
        other = {name: value for name, value in each.items() if name not in ("text", "people")}
        if each["text"].strip():
            key = hashlib.blake2b(json.dumps([shown, each["text"]]).encode(), digest_size=12).hexdigest()
            built.append(Response(key, shown, each["text"], each.get("people") or {}, other))
    named = str(split) if split in ("train", "dev") else "train" if choose_split(dialogue) == FIT else "dev"
    return Row(line=line, set_name=set_name, dialogue=dialogue, split=named, context=kept, responses=built)


def _cut(context: Sequence[Spoken]) -> Sequence[Spoken]:
    """The last turns of the context, the oldest of them cut at its beginning."""
    left = CONTEXT_CHARACTERS
    shown: list[Spoken] = []
    for speaker, text in reversed(context):
        if left <= 0:
            break
        shown.insert(0, (speaker, text[-left:]))
        left -= len(text)
    return shown


def read_responses(path: Path) -> Iterator[Row]:
    """The rows of a file, one at a time. BadFileError names the file, the line and the field that is wrong.

    JSON lines of dialogues (`turns` or `messages`), of score requests (`response` with `context` or `messages`), or of
    judged rows (`responses`); or a CSV with `response` and `context`. Of dialogues every system turn that answers
    something is judged.
    """
    if ".csv" in path.suffixes:
        for line, record in stream_csv(path, ("context", "response")):
            yield _read_request(path, line, record)
        return
    first = next((record for _, record in read_rows(path)), {})
    if "turns" in first:
        for dialogue in read_dialogues(path):
            yield from _read_dialogue(path, dialogue.line, str(dialogue.id), dialogue.spoken)
        return
    for line, record in read_rows(path):
        if "responses" in record:
            yield _read_judged(path, line, record)
        elif "messages" in record and "response" not in record:
            turns = [(each.speaker, each.text) for each in _read_messages(path, line, record["messages"])]
            yield from _read_dialogue(path, line, _name_of(record) or f"{stem_of(path)} {line}", turns)
        else:
            yield _read_request(path, line, record)


def _read_dialogue(path: Path, line: int, name: str, turns: Sequence[tuple[str, str]]) -> Iterator[Row]:
    speakers = {"A": USER, "B": SYSTEM, USER: USER, SYSTEM: SYSTEM}
    for place, (speaker, _) in enumerate(turns):
        if speaker not in speakers:
            raise BadFileError(path, line, f"turns.{place}.speaker: must be user or system")
    spoken = [(speakers[speaker], text) for speaker, text in turns]
    for place, (speaker, text) in enumerate(spoken):
        if speaker == SYSTEM and place:
            yield build_row(stem_of(path), name, spoken[:place], [{"text": text}], line)


def _read_judged(path: Path, line: int, record: Mapping[str, Any]) -> Row:
    if not isinstance(record["responses"], list):
        raise BadFileError(path, line, "responses: must be a list")
    responses = [_check_response(path, line, each, f"responses.{at}") for at, each in enumerate(record["responses"])]
    context = read_context(path, line, record.get("context", []))
    name, split = _name_of(record) or name_by_context(context), record.get("split")
    return build_row(str(record.get("set") or stem_of(path)), name, context, responses, line, split)


def _read_request(path: Path, line: int, record: Mapping[str, Any]) -> Row:
    if "messages" in record:
        context = [(each.speaker, each.text) for each in _read_messages(path, line, record["messages"])]
    else:
        context = read_context(path, line, record.get("context", []))
    people = {name.removeprefix(PEOPLE): value for name, value in record.items() if name.startswith(PEOPLE) and value}
    given = {"text": record.get("response"), "people": record.get("people") or people}
    response = _check_response(path, line, given, "")
    set_name = str(record.get("set") or stem_of(path))
    name = _name_of(record) or name_by_context(context)
    return build_row(set_name, name, context, [response], line, record.get("split"))


def _check_response(path: Path, line: int, response: object, within: str) -> Mapping[str, Any]:
    if not isinstance(response, Mapping) or not isinstance(response.get("text"), str):
        raise BadFileError(path, line, f"{f'{within}.text' if within else 'response'}: must be a text")
    people = check_row(_MARKS.validate_python, path, line, response.get("people") or {}, "people")
    return {**response, "people": people}


def read_context(path: Path, line: int, given: object) -> list[Spoken]:
    """A context: a list of turns or of texts (of a CSV as JSON), the last text by the user; or one text of the user."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise BadFileError(path, line, "context: is not JSON") from None
    if isinstance(given, str):
        given = [given] if given.strip() else []
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        return list(alternate(given))
    if isinstance(given, list):  # fields that are not the wire's are left out
        given = [
            {name: each.get(name) for name in ("speaker", "text")} if isinstance(each, dict) else each for each in given
        ]
    turns = check_row(_TURNS.validate_python, path, line, given, "context")
    return [(each.speaker, each.text) for each in turns]


def _read_messages(path: Path, line: int, given: object) -> Sequence[Turn]:
    return map_messages(check_row(_MESSAGES.validate_python, path, line, given, "messages")).turns


def _name_of(record: Mapping[str, Any]) -> str:
    return str(record.get("dialogue") or record.get("id") or "")


def name_by_context(context: Sequence[Spoken]) -> str:
    """Rows that begin with the same text count as one dialogue, so that none is trained on and tested on."""
    return hashlib.sha256(context[0][1].encode() if context else b"").hexdigest()[:16]


def stem_of(path: Path) -> str:
    return path.name.partition(".")[0]


def choose_share(share: float) -> Callable[[Row], bool]:
    """Whether a row is of the share of dialogues that is judged: chosen by the dialogue's name, the same each time."""

    def is_chosen(row: Row) -> bool:
        place = hashlib.sha256(f"judge: {row.dialogue}".encode()).digest()[:4]
        return int.from_bytes(place, "big") < share * 2**32

    return is_chosen
