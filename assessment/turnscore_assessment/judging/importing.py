"""Marks that exist already: Langfuse's and Phoenix's exports, DeepEval's results, and plain CSV."""

import ast
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError
from turnscore_wire import ChatMessage, map_messages

from turnscore_assessment.data.dialogues import SYSTEM, USER, Spoken
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import open_text, read_csv, read_rows
from turnscore_assessment.judging.rubric import RESERVED, Rubric
from turnscore_assessment.judging.turns import PEOPLE, Marks, build_row, name_by_context, read_context

Source = Literal["csv", "deepeval", "langfuse", "phoenix"]
SOURCES: tuple[Source, ...] = get_args(Source)

# Words that stand for a mark of yes or no. Chosen: the labels that the tools' own evaluators give.
_WORDS = dict.fromkeys(("yes", "true", "pass", "correct"), 1.0) | dict.fromkeys(
    ("no", "false", "fail", "incorrect"), 0.0
)
_SCALES = ((0.0, 1.0), (1.0, 5.0), (0.0, 10.0), (0.0, 100.0))  # The first that holds all marks is a criterion's.
_MESSAGES = TypeAdapter(list[ChatMessage])
_PERSON = "people"

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Exchange:
    """A response in its context; `text` is empty where the export does not have it."""

    dialogue: str
    context: Sequence[Spoken]
    text: str


@dataclass
class _Marked:
    line: int
    exchange: Exchange | None = None
    # By judge and criterion, `people` for people's; several are averaged.
    marks: dict[tuple[str, str], list[float]] = field(default_factory=dict)


class Import:
    """The marks of files, by what they are of; the texts may come from another file than the marks."""

    def __init__(self, source: Source, rubric: Rubric | None, judge: str | None) -> None:
        self._source, self._rubric, self._judge = source, rubric, judge or source
        self._found: dict[str, _Marked] = {}
        self.left_out: dict[str, int] = {}  # Why a mark was left out, and how often.

    def read(self, path: Path) -> None:
        """Reads a file of marks, or of the texts. BadFileError names the file, the row and the field."""
        reader: Callable[[Path, int, Fields], None] = getattr(self, f"_read_{self._source}")
        for line, record in _read_records(path):
            reader(path, line, record)

    @property
    def scales(self) -> dict[str, list[float]]:
        """The rubric's scales; without a rubric the narrowest usual one that holds all marks of a criterion."""
        if self._rubric:
            return self._rubric.scales
        marks: dict[str, list[float]] = {}
        for each in self._found.values():
            for (_, name), values in each.marks.items():
                marks.setdefault(name, []).extend(values)
        ends = {name: (min(values), max(values)) for name, values in marks.items()}
        return {
            name: list(next((each for each in _SCALES if each[0] <= low and high <= each[1]), (low, high)))
            for name, (low, high) in ends.items()
        }

    def rows(self, set_name: str) -> Iterator[dict[str, Any]]:
        """The rows, as `turnscore judge` writes them; marks without texts are left out and counted."""
        scales = self.scales
        for each in self._found.values():
            if not each.marks:
                continue
            if each.exchange is None or not each.exchange.text.strip():
                self._leave_out("no response is known: give the file that has the texts by --texts")
                continue
            by_judge: dict[str, Marks] = {}
            for (judge, name), values in each.marks.items():
                by_judge.setdefault(judge, {})[name] = math.fsum(values) / len(values)
            people = by_judge.pop(_PERSON, {})
            row = build_row(set_name, each.exchange.dialogue, each.exchange.context, [{"text": each.exchange.text}])
            response = describe_response(each.exchange.text, by_judge, people, {})
            rubric = {"rubric": self._rubric.sha256} if self._rubric else {}
            yield row.to_json([response], **rubric, scales=scales, models=[*by_judge])

    def _marked(self, key: str, line: int) -> _Marked:
        return self._found.setdefault(key, _Marked(line))

    def _leave_out(self, reason: str) -> None:
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def _add(self, path: Path, line: int, marked: _Marked, judge: str, name: object, value: object, at: str) -> None:
        """Adds a mark, checked; of a rubric's criteria alone where there is one."""
        if not isinstance(name, str) or not name:
            raise BadFileError(path, line, f"{at}: has no name")
        name = "_".join(name.lower().replace("-", " ").split())
        if name in RESERVED:
            raise BadFileError(path, line, f"{at}: no criterion may be called {name}")
        if self._rubric and name not in self._rubric.criteria:
            self._leave_out(f"{name} is no criterion of the rubric")
            return
        mark = _read_number(value)
        if mark is None:
            self._leave_out(f"{name} is neither a number nor yes or no")
            return
        if not math.isfinite(mark):
            raise BadFileError(path, line, f"{at}: {value!r} is not a number")
        low, high = self._rubric.scales[name] if self._rubric else (-math.inf, math.inf)
        if not low <= mark <= high:
            raise BadFileError(path, line, f"{at}: {mark:g} is not from {low:g} to {high:g}, the rubric's {name}")
        marked.marks.setdefault((judge, name), []).append(mark)

    def _read_csv(self, path: Path, line: int, record: Fields) -> None:
        """Columns `context` and `response`, `judge` and `dialogue` where known, `people.NAME`; the others are marks."""
        known = {"context", "response", "dialogue", "id", "judge", "set", "split"}
        if not isinstance(record.get("response"), str):
            raise BadFileError(path, line, "response: must be a text")
        context = read_context(path, line, record.get("context") or [])
        row = build_row("", "", context, [{"text": record["response"]}])
        if not row.responses:
            raise BadFileError(path, line, "response: has no text")
        key = row.responses[0].key
        marked = self._marked(key, line)
        dialogue = str(record.get("dialogue") or record.get("id") or name_by_context(context))
        marked.exchange = marked.exchange or Exchange(dialogue, context, record["response"])
        for name, value in record.items():
            if name in known or value in (None, ""):
                continue
            is_person = name.startswith(PEOPLE)
            judge = _PERSON if is_person else str(record.get("judge") or self._judge)
            if _read_number(value) is None:
                raise BadFileError(path, line, f"{name}: {value!r} is neither a number nor yes or no")
            self._add(path, line, marked, judge, name.removeprefix(PEOPLE), value, name)

    def _read_langfuse(self, path: Path, line: int, record: Fields) -> None:
        """A score (API, table or blob storage), or a trace or observation, whose scores may be columns or listed."""
        if "value" in record and "name" in record:
            subject = _pick(record, "observationId", "observation_id", "subject.id", "traceId", "trace_id")
            if subject is None:
                self._leave_out("the score is of a session or a run, not of a trace or an observation")
                return
            marked = self._marked(str(subject), line)
            self._add_score(path, line, marked, record, "value")
            self._take_texts(marked, record, _pick(record, "sessionId", "session_id") or subject)
            return
        key = _pick(record, "id")
        if key is None or not {"input", "output"} & record.keys():
            raise BadFileError(path, line, "must have name and value, or id, input and output")
        marked = self._marked(str(key), line)
        self._take_texts(marked, record, _pick(record, "sessionId", "session_id", "traceId", "trace_id") or key)
        scores = _parse(record.get("scores"))
        for each in scores if isinstance(scores, list) else ():
            if isinstance(each, Mapping) and "value" in each:
                self._add_score(path, line, marked, each, "scores")
        # A table's export has each score's values in a column, or within `scores`.
        columns = {name: record.get(name) for name in (self._rubric.criteria if self._rubric else ())}
        for name, values in (columns | (scores if isinstance(scores, Mapping) else {})).items():
            for value in _listed(_parse(values)):
                self._add(path, line, marked, self._judge, name, value, name)

    def _add_score(self, path: Path, line: int, marked: _Marked, score: Fields, at: str) -> None:
        """A score of Langfuse: a category's number is its place in a list, and means nothing."""
        value = _pick(score, "value")
        if _read_number(value) is None or _pick(score, "dataType", "data_type") == "CATEGORICAL":
            value = _pick(score, "stringValue", "string_value", "value")
        judge = _PERSON if score.get("source") == "ANNOTATION" else self._judge
        self._add(path, line, marked, judge, score.get("name"), value, at)

    def _read_phoenix(self, path: Path, line: int, record: Fields) -> None:
        """An annotation of a span, or a span with its texts and perhaps `evaluate_dataframe`'s columns `NAME_score`."""
        key = _pick(record, "span_id", "context.span_id", "id")
        if key is None:
            raise BadFileError(path, line, "span_id: is missing")
        marked = self._marked(str(key), line)
        dialogue = _pick(record, "attributes.session.id", "context.trace_id", "trace_id") or key
        texts = {
            "input": _pick(record, "attributes.llm.input_messages", "attributes.input.value", "input"),
            "output": _pick(record, "attributes.output.value", "attributes.llm.output_messages", "output"),
        }
        self._take_texts(marked, texts, dialogue)
        name = _pick(record, "annotation_name", "name") if "status_code" not in record else None
        score = _pick(record, "result.score", "score", "result.label", "label")
        if name is not None and score is not None:
            is_person = _pick(record, "annotator_kind") == "HUMAN"
            judge = _PERSON if is_person else str(_pick(record, "metadata.model") or self._judge)
            self._add(path, line, marked, judge, name, score, "score")
        for column, cell in record.items():
            found = _parse(cell) if column.endswith("_score") else None
            if isinstance(found, Mapping) and "score" in found:
                own = found.get("name") or column.removesuffix("_score")
                self._add(path, line, marked, self._judge, own, _pick(found, "score", "label"), column)

    def _read_deepeval(self, path: Path, line: int, record: Fields) -> None:
        """A test result; a metric of a whole conversation becomes the mark of its last reply."""
        marked = self._marked(f"{path.name} {line}", line)
        name = str(_pick(record, "name") or line)
        if turns := record.get("turns"):
            *context, last = read_messages(turns) or [(SYSTEM, "")]
            marked.exchange = Exchange(name, context, last[1] if last[0] == SYSTEM else "")
        else:
            output = _pick(record, "actual_output", "actualOutput")
            self._take_texts(marked, {"input": record.get("input"), "output": output}, name)
        metrics = _pick(record, "metrics_data", "metricsData")
        if not isinstance(metrics, list):
            raise BadFileError(path, line, "metrics_data: must be a list")
        for place, each in enumerate(metrics):
            if each.get("score") is not None:
                judge = str(_pick(each, "evaluation_model", "evaluationModel") or self._judge)
                self._add(path, line, marked, judge, each.get("name"), each["score"], f"metrics_data.{place}.score")

    def _take_texts(self, marked: _Marked, record: Fields, dialogue: object) -> None:
        """Takes the texts of a row that has them."""
        if marked.exchange is None and record.get("output") not in (None, ""):
            text = read_reply(record["output"])
            marked.exchange = Exchange(str(dialogue), read_messages(record.get("input")), text)


def describe_response(text: str, marks: Mapping[str, Marks], people: Marks, other: Fields) -> dict[str, Any]:
    """A response of a row: its marks by judge, and the mean of every criterion."""
    names = dict.fromkeys(name for found in marks.values() for name in found)
    by_name = {name: [found[name] for found in marks.values() if name in found] for name in names}
    means = {name: round(math.fsum(values) / len(values), 4) for name, values in by_name.items()}
    response = {**other, "text": text, **means, "judges": len(marks), "marks": dict(marks)}
    return response | ({"people": people} if people else {})


def _read_records(path: Path) -> Iterator[tuple[int, Fields]]:
    """The records of CSV, of JSON lines, or of JSON: a list, or an object that has one."""
    if ".csv" in path.suffixes:
        yield from read_csv(path).rows
        return
    if ".json" not in path.suffixes:
        yield from read_rows(path)
        return
    try:
        with open_text(path) as file:
            content = json.load(file)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise BadFileError(path, 0, f"cannot be read ({error})") from error
    lists = ("data", "test_results", "testCases", "conversationalTestCases", "test_cases", "conversational_test_cases")
    found = content
    if isinstance(content, Mapping):
        found = [each for name in lists for each in content.get(name) or ()]
    if not isinstance(found, list):
        raise BadFileError(path, 0, "must be a list, or an object with one")
    for place, record in enumerate(found, start=1):
        if not isinstance(record, Mapping):
            raise BadFileError(path, place, "is not a JSON object")
        yield place, record


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
        try:
            return json.loads(value)
        except ValueError:
            with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                return ast.literal_eval(value)  # a data frame's CSV has Python's lists
    return value


def _listed(values: object) -> Iterable[object]:
    return values if isinstance(values, list) else [] if values in (None, "") else [values]


def _read_number(value: object) -> float | None:
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _WORDS:
            return _WORDS[word]
        try:
            return float(word)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


# Where applications keep the text, or the messages, of what they trace. Chosen.
_TEXT_FIELDS = ("messages", "input", "inputs", "query", "question", "prompt", "content", "text", "message")
_REPLY_FIELDS = ("content", "text", "output", "answer", "response", "message", "messages", "choices")


def read_messages(given: object) -> list[Spoken]:
    """The turns of a traced input: chat messages, an object that has some, or the user's text."""
    found = _parse(given)
    if isinstance(found, Mapping) and "role" not in found:
        return next((read_messages(found[name]) for name in _TEXT_FIELDS if found.get(name)), [])
    if isinstance(found, Mapping | list):
        listed = [_unwrap(each) for each in ([found] if isinstance(found, Mapping) else found)]
        try:
            return [(each.speaker, each.text) for each in map_messages(_MESSAGES.validate_python(listed)).turns]
        except ValidationError:
            return [(USER, text) for text in listed if isinstance(text, str)]
    return [] if found in (None, "") else [(USER, str(found))]


def _unwrap(message: Any) -> Any:
    """OpenInference puts a message's fields into `message`, or before them."""
    if isinstance(message, Mapping) and "message.role" in message:
        return {"role": message["message.role"], "content": message.get("message.content") or ""}
    return message.get("message", message) if isinstance(message, Mapping) else message


def read_reply(given: object) -> str:
    """The text of a traced output: the text, or the last reply within messages or choices."""
    found = _parse(given)
    if isinstance(found, list):
        texts = [text for each in found if (text := read_reply(each))]
        return texts[-1] if texts else ""
    if isinstance(found, Mapping):
        found = _unwrap(found)
        return next((read_reply(found[name]) for name in _REPLY_FIELDS if found.get(name)), "")
    return "" if found is None else str(found)
