"""Marks that exist already: Langfuse's and Phoenix's exports, DeepEval's results, and plain CSV."""

import ast
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from turnscore_wire import ChatMessage, map_messages

from turnscore_assessment.data.dialogues import USER, LabelledTurn, Spoken
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import read_csv, read_document, read_rows
from turnscore_assessment.judging.rubric import RESERVED, Rubric
from turnscore_assessment.judging.turns import (
    COLUMN,
    PEOPLE,
    Marks,
    build_row,
    describe_response,
    name_by_context,
    read_context,
)

Source = Literal["csv", "deepeval", "langfuse", "phoenix"]
Fields = Mapping[str, Any]

# Words that stand for a mark of yes or no. Chosen: the labels that the tools' own evaluators give.
_WORDS = {"yes": 1.0, "true": 1.0, "pass": 1.0, "correct": 1.0, "no": 0.0, "false": 0.0, "fail": 0.0, "incorrect": 0.0}
_SCALES = ((0.0, 1.0), (1.0, 5.0), (0.0, 10.0), (0.0, 100.0))  # The first that holds all marks is a criterion's.
_LISTS = ("data", "test_results", "testCases", "conversationalTestCases", "test_cases", "conversational_test_cases")
# Where applications keep the text, or the messages, of what they trace.
_TEXT_FIELDS = ("messages", "input", "inputs", "query", "question", "prompt", "content", "text", "message")
_REPLY_FIELDS = ("content", "text", "output", "answer", "response", "message", "messages", "choices")
_MESSAGES = TypeAdapter(list[ChatMessage])
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}  # Other frameworks' words.
_UNREADABLE: Sequence[Spoken] = (("", ""),)  # In place of the turns of messages that cannot all be read.


_Mark = tuple[str, object, object]  # The judge, or "" for the import's; the criterion; the mark.
_Found = tuple[str, LabelledTurn, list[_Mark]]  # What a record says of one response, with the response's key.


class Import:
    """The marks of files, by what they are of; the texts may come from another file than the marks."""

    def __init__(self, source: Source, rubric: Rubric | None, judge: str | None) -> None:
        self._read: Callable[[str, Fields], _Found] = _READERS[source]
        self._rubric, self._judge = rubric, judge or source
        self._turns: dict[str, LabelledTurn] = {}
        self._unreadable: set[str] = set()
        # By response, judge and criterion; several marks are averaged.
        self._marks: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
        self.left_out: Counter[str] = Counter()  # Why marks were left out.

    def read(self, path: Path) -> None:
        """Reads a file of marks, or of the texts. BadFileError names the file, the row and the field."""
        for line, record in _read_records(path):
            try:
                key, turn, marks = self._read(f"{path.name} {line}", record)
                if turn.context == _UNREADABLE:
                    self._unreadable.add(key)
                elif turn.response.strip():
                    self._turns.setdefault(key, turn)
                for judge, name, value in marks:
                    self._add(key, judge or self._judge, name, value)
            except ValueError as error:
                raise BadFileError(path, line, str(error)) from None

    def _add(self, key: str, judge: str, given: object, value: object) -> None:
        """Adds a mark; of a rubric's criteria alone where there is one. ValueError for one that cannot be right."""
        name = "_".join(str(given or "").lower().replace("-", " ").split())
        mark = _read_number(value)
        if not name or name in RESERVED:
            raise ValueError(f"name: no criterion may be called {name!r}")
        if self._rubric and name not in self._rubric.criteria:
            self.left_out[f"{name} is no criterion of the rubric"] += 1
        elif mark is None:
            self.left_out[f"{name} is neither a number nor yes or no"] += 1
        else:
            low, high = self._rubric.scales[name] if self._rubric else (-math.inf, math.inf)
            if not math.isfinite(mark) or not low <= mark <= high:
                raise ValueError(f"{name}: {mark:g} is not from {low:g} to {high:g}")
            self._marks[key][judge, name].append(mark)

    @property
    def averaged(self) -> int:
        """How many marks came after another of the same response, judge and criterion."""
        return sum(len(values) - 1 for each in self._marks.values() for values in each.values())

    @property
    def scales(self) -> dict[str, list[float]]:
        """The rubric's scales; without a rubric the narrowest usual one that holds all marks of a criterion."""
        if self._rubric:
            return self._rubric.scales
        marks: dict[str, list[float]] = defaultdict(list)
        for each in self._marks.values():
            for (_, name), values in each.items():
                marks[name] += values
        ends = {name: (min(values), max(values)) for name, values in marks.items()}
        return {
            name: list(next((each for each in _SCALES if each[0] <= low and high <= each[1]), (low, high)))
            for name, (low, high) in ends.items()
        }

    def rows(self, set_name: str) -> Iterator[dict[str, Any]]:
        """The rows, as `turnscore judge` writes them; marks without texts are left out and counted."""
        common = {"rubric": self._rubric.sha256} if self._rubric else {}
        scales = self.scales
        for key, marks in self._marks.items():
            turn = self._turns.get(key)
            if turn is None:
                reason = "no response is known: no file has its text; --texts names further files"
                if key in self._unreadable:
                    reason = "a message of the context has an unknown role or content"
                self.left_out[reason] += len(marks)
                continue
            by_judge: dict[str, Marks] = defaultdict(dict)
            for (judge, name), values in marks.items():
                by_judge[judge][name] = math.fsum(values) / len(values)
            dialogue = turn.dialogue or (name_by_context(turn.context) if turn.context else key)
            row = build_row(set_name, dialogue, turn.context, [{"text": turn.response}])
            response = describe_response({"text": turn.response, "people": by_judge.pop(PEOPLE, {})}, by_judge)
            yield row.to_json([response], **common, scales=scales, models=[*by_judge])


def _make_turn(dialogue: object, context: Iterable[Spoken], response: str) -> LabelledTurn:
    return LabelledTurn(dialogue=str(dialogue or ""), context=tuple(context), response=response)


def _read_table(_: str, record: Fields) -> _Found:
    """Columns `context` and `response`, `judge` and `dialogue` where known, `people.NAME`; the others are marks."""
    text = record.get("response")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("response: must be a text")
    context = read_context(record.get("context") or [])
    dialogue = record.get("dialogue") or record.get("id") or name_by_context(context)
    marks: list[_Mark] = []
    for name, value in record.items():
        if name not in ("context", "response", "dialogue", "id", "judge", "set", "split") and value not in (None, ""):
            if _read_number(value) is None:
                raise ValueError(f"{name}: {value!r} is neither a number nor yes or no")
            judge = PEOPLE if name.startswith(COLUMN) else str(record.get("judge") or "")
            marks.append((judge, name.removeprefix(COLUMN), value))
    return json.dumps([context, text]), _make_turn(dialogue, context, text), marks


def _read_langfuse(_: str, record: Fields) -> _Found:
    """A score (API, table or blob storage), or a trace or observation, whose scores may be columns or listed."""
    session = _pick(record, "sessionId", "session_id")
    turn = _make_turn(session, read_messages(record.get("input")), read_reply(record.get("output")))
    if "value" in record and "name" in record:
        subject = _pick(record, "observationId", "observation_id", "subject.id", "traceId", "trace_id", "sessionId")
        return str(subject), turn, [_read_score(record)]
    key = _pick(record, "id")
    if key is None or not {"input", "output"} & record.keys():
        raise ValueError("must have name and value, or id, input and output")
    marks: list[_Mark] = []
    scores = _parse(record.get("scores"))
    if isinstance(scores, list):
        marks += [_read_score(each) for each in scores if isinstance(each, Mapping) and "value" in each]
    # A table's export has each score's values in a column, or within `scores`.
    known = {"id", "input", "output", "scores", "tags", "comments"}
    columns = scores if isinstance(scores, Mapping) else {name: record[name] for name in record.keys() - known}
    for name, values in columns.items():
        listed = _parse(values)
        if isinstance(listed, list) or isinstance(scores, Mapping):
            marks += [("", name, value) for value in _listed(listed) if _read_number(value) is not None]
    return str(key), turn, marks


def _read_score(score: Fields) -> _Mark:
    """A mark of Langfuse: a category's number is its place in a list, and means nothing."""
    value = _pick(score, "value")
    if _read_number(value) is None or _pick(score, "dataType", "data_type") == "CATEGORICAL":
        value = _pick(score, "stringValue", "string_value", "value")
    return PEOPLE if score.get("source") == "ANNOTATION" else "", score.get("name"), value


def _read_phoenix(_: str, record: Fields) -> _Found:
    """An annotation of a span, or a span with its texts and perhaps `evaluate_dataframe`'s columns `NAME_score`."""
    key = _pick(record, "span_id", "context.span_id", "id")
    if key is None:
        raise ValueError("span_id: is missing")
    said = _pick(record, "attributes.llm.input_messages", "attributes.input.value", "input")
    answered = _pick(record, "attributes.output.value", "attributes.llm.output_messages", "output")
    turn = _make_turn(_pick(record, "attributes.session.id"), read_messages(said), read_reply(answered))
    marks: list[_Mark] = []
    name = _pick(record, "annotation_name", "name") if "status_code" not in record else None
    score = _pick(record, "result.score", "score", "result.label", "label")
    if name is not None and score is not None:
        is_person = _pick(record, "annotator_kind") == "HUMAN"
        marks.append((PEOPLE if is_person else str(_pick(record, "metadata.model") or ""), name, score))
    for column, cell in record.items():
        score = _parse(cell) if column.endswith("_score") else None
        if isinstance(score, Mapping) and "score" in score:
            marks.append(("", score.get("name"), _pick(score, "score", "label")))
    return str(key), turn, marks


def _read_deepeval(place: str, record: Fields) -> _Found:
    """A test result; a metric of a whole conversation becomes the mark of its last reply."""
    metrics = _pick(record, "metrics_data", "metricsData")
    if not isinstance(metrics, list) or not all(isinstance(each, Mapping) for each in metrics):
        raise ValueError("metrics_data: must be a list of objects")
    context, text = read_messages(record.get("input")), read_reply(_pick(record, "actual_output", "actualOutput"))
    if (turns := read_messages(record.get("turns"))) == _UNREADABLE:
        context = turns
    elif turns:
        *context, (speaker, said) = turns
        text = said if speaker != USER else ""
    judges = [str(_pick(each, "evaluation_model", "evaluationModel") or "") for each in metrics]
    marks = [(judge, each.get("name"), each.get("score")) for judge, each in zip(judges, metrics, strict=True)]
    return place, _make_turn(record.get("name"), context, text), [each for each in marks if each[2] is not None]


_READERS = {"csv": _read_table, "deepeval": _read_deepeval, "langfuse": _read_langfuse, "phoenix": _read_phoenix}


def _read_records(path: Path) -> Iterable[tuple[int, Fields]]:
    """The records of CSV, of JSON lines, or of JSON: a list, or an object that has one."""
    if ".csv" in path.suffixes:
        return read_csv(path, separators=",;\t").rows
    if ".json" not in path.suffixes:
        return read_rows(path)
    content = read_document(path)
    listed = [each for name in _LISTS for each in content.get(name) or ()] if isinstance(content, Mapping) else content
    if not isinstance(listed, list) or not all(isinstance(each, Mapping) for each in listed):
        raise BadFileError(path, 0, "must be a list of objects, or an object with one")
    return enumerate(listed, start=1)


def _pick(record: Fields, *names: str) -> Any:
    """The first of these fields that has a value; `a.b` is a column of that name, or `b` within `a`."""
    for name in names:
        found: Any = record.get(name)
        if found is None and "." in name:
            outer, _, inner = name.partition(".")
            within = _parse(record.get(outer))
            found = _pick(within, inner) if isinstance(within, Mapping) else None
        if found not in (None, "") and found == found:
            return found
    return None


def _parse(value: object) -> Any:
    """What a text that is a list or an object holds; else the value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return ast.literal_eval(value)  # a data frame's CSV has Python's lists
    return value


def _listed(values: object) -> Iterable[object]:
    return values if isinstance(values, list) else [] if values in (None, "") else [values]


def _read_number(value: object) -> float | None:
    if not isinstance(value, str):
        return float(value) if isinstance(value, int | float) else None
    word = value.strip().lower()
    with suppress(ValueError):
        return _WORDS[word] if word in _WORDS else float(word)
    return None


def read_messages(given: object) -> Sequence[Spoken]:
    """The turns of a traced input: chat messages, an object that has some, or the user's text.

    Messages that cannot all be read are _UNREADABLE: without one of them, it would be another context.
    """
    found = _parse(given)
    turns: Sequence[Spoken] = ()
    if isinstance(found, Mapping) and "role" not in found:
        turns = next((read_messages(found[name]) for name in _TEXT_FIELDS if found.get(name)), ())
    elif isinstance(found, Mapping | list):
        listed = [_unwrap(each) for each in ([found] if isinstance(found, Mapping) else found)]
        try:
            turns = [(each.speaker, each.text) for each in map_messages(_MESSAGES.validate_python(listed)).turns]
        except ValidationError:
            if any(isinstance(each, Mapping) and "role" in each for each in listed):
                return _UNREADABLE
    return turns or ([(USER, given)] if isinstance(given, str) and given.strip() else [])


def _unwrap(message: Any) -> Any:
    """OpenInference puts a message's fields into `message`, or that word before them; roles get OpenAI's names."""
    if isinstance(message, Mapping) and "message.role" in message:
        message = {"role": message["message.role"], "content": message.get("message.content") or ""}
    found = message.get("message", message) if isinstance(message, Mapping) else message
    if isinstance(found, Mapping) and isinstance(role := found.get("role"), str):
        return {**found, "role": _ROLES.get(role, role)}
    return found


def read_reply(given: object) -> str:
    """The text of a traced output: the last reply within messages or choices, or the text, which may be JSON."""
    found = _unwrap(_parse(given))
    text = ""
    if isinstance(found, list):
        text = next((said for each in reversed(found) if (said := read_reply(each))), "")
    elif isinstance(found, Mapping):
        text = next((read_reply(found[name]) for name in _REPLY_FIELDS if found.get(name)), "")
    return text or (given if isinstance(given, str) else "")
