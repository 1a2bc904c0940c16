"""`turnscore data`: original files of public sets in the form that our commands read. Downloads and filters nothing.

JSON, JSON lines, or CSV, gzipped or not. Errors name the file and the place.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from turnscore_assessment.command_line import Commands, SeedOption, refuse_input
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import UNREADABLE, open_text, read_csv, write_rows
from turnscore_assessment.sample_data import write_sample

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Original:
    """An object of a file, as its authors wrote it."""

    path: Path
    place: int  # From 1.
    record: Record

    def take(self, name: str, kind: type) -> Any:
        """A field of that type; BadFileError naming it."""
        value = self.record.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.refuse(f"`{name}` is {type(value).__name__}, expected {kind.__name__}")
        return value

    def take_rating(self, name: str, low: float = 1, high: float = 5) -> float:
        """A number that stands as text."""
        text = self.take(name, str)
        try:
            value = float(text)
        except ValueError:
            raise self.refuse(f"`{name}` is {text!r}, expected a number") from None
        if not low <= value <= high:
            raise self.refuse(f"`{name}` is {text}, expected {low} to {high}")
        return value

    def refuse(self, reason: str) -> BadFileError:
        return BadFileError(self.path, self.place, reason)


def read_json_lists(paths: Sequence[Path]) -> Iterator[Original]:
    """The objects of files that are lists of objects, or JSON lines."""
    for path in paths:
        text = _read(path)
        if text.lstrip().startswith("["):
            found = list(enumerate(_parse(text, path), start=1))
        else:  # lines end at \n alone: a JSON text may hold what else Python takes for a line's end, such as U+2028
            lines = enumerate(text.split("\n"), start=1)
            found = [(place, _parse(line, path, place)) for place, line in lines if line.strip()]
        for place, record in found:
            if not isinstance(record, dict):
                raise BadFileError(path, place, "is not a JSON object")
            yield Original(path, place, record)


def read_json_objects(paths: Sequence[Path]) -> Iterator[Original]:
    """The objects of files that are one object each."""
    for path in paths:
        found = _parse(_read(path), path)
        if not isinstance(found, dict):
            raise BadFileError(path, 1, "is not a JSON object")
        yield Original(path, 1, found)


def read_tables(paths: Sequence[Path]) -> Iterator[Original]:
    """The rows of CSV files."""
    return (Original(path, place, record) for path in paths for place, record in read_csv(path).rows)


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


def read_schema_guided(paths: Sequence[Path]) -> Iterator[Record]:
    """The turns' texts; a dialogue that repeats another word for word is left out."""
    seen: set[tuple[str, ...]] = set()
    for each in read_json_lists(paths):
        turns = tuple(str(turn["utterance"]) for turn in each.take("turns", list))
        if turns not in seen:
            seen.add(turns)
            yield {"source": "sgd", "turns": list(turns)}


def read_topical_chat(paths: Sequence[Path]) -> Iterator[Record]:
    """The messages, with white space collapsed."""
    for each in read_json_objects(paths):
        for name in each.record:
            content = Original(each.path, 1, each.take(name, dict)).take("content", list)
            yield {"source": "topical_chat", "turns": [" ".join(turn["message"].split()) for turn in content]}


def read_persona_chat(paths: Sequence[Path]) -> Iterator[Record]:
    """The lines of each conversation that begin with `User 1:` or `User 2:`."""
    for each in read_tables(paths):
        lines = each.take(CONVERSATION, str).split("\n")
        said = [line[found.end() :].strip() for line in lines if (found := re.match(r"User [12]: ?", line))]
        yield {"source": "synthetic_persona_chat", "turns": said}


DBDC3_SYSTEMS = {"iris": "IRIS", "ticktock": "TKTK", "tktk": "TKTK", "yi": "YI"}
DBDC3_SPEAKERS = {"U": "user", "S": "system"}
_SPEAKER = re.compile(r"^(User|System): ?")


def read_convai(paths: Sequence[Path]) -> Iterator[Record]:
    """Rows in the order of the files and their dialogues, which the published split depends on.

    A human's rating of a bot stands under the bot's name, as released.
    """
    for order, each in enumerate(read_json_lists(paths)):
        users, ratings = each.take("users", list), each.take("evaluation", list)
        kinds = ("engagement", "quality", "breadth")
        yield {
            "id": str(each.record.get("dialogId")),
            "order": order,
            "participants": {str(user["id"]): str(user["userType"]).lower() for user in users},
            "ratings": {str(given["userId"]): {name: given[name] for name in kinds} for given in ratings},
            "turns": [
                {"speaker": str(turn["userId"]), "text": str(turn["text"]), "thumb": int(turn["evaluation"])}
                for turn in each.take("thread", list)
            ],
            "topic_paragraph": each.record.get("context", ""),
        }


def read_dstc9(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per dialogue with the ratings of all its raters, who stand one after another in the original."""
    for path in paths:
        named = re.search(r"chatbot(\d+)", path.name)
        if named is None:
            raise BadFileError(path, 0, "is not named after its system, as chatbot1.json is")
        groups = groupby(list(read_json_lists([path])), key=lambda each: each.record.get("context"))
        for index, (_, members) in enumerate(groups):
            found = [*members]
            yield {
                "id": f"dstc9-{named[1]}-{index}",
                "system": int(named[1]),
                "turns": _split_turns(found[0]),
                "ratings": [{name: it for name, it in each.record.items() if name != "context"} for each in found],
            }


def _split_turns(each: Original) -> list[Record]:
    """A line without a speaker goes on with the turn before it."""
    turns: list[Record] = []
    for line in each.take("context", str).splitlines():
        found = _SPEAKER.match(line)
        if found:
            turns.append({"speaker": found[1].lower(), "text": line[found.end() :]})
        elif turns and line.strip():
            turns[-1]["text"] += f" {line.strip()}"
        elif line.strip():
            raise each.refuse(f"`context` begins with {line[:30]!r}, which names no speaker")
    return turns


def read_dbdc3(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per dialogue; a system's turns have the number of annotators for each kind of breakdown."""
    for each in read_json_objects(paths):
        name = each.take("dialogue-id", str)
        system = DBDC3_SYSTEMS.get(name.partition("_")[0])
        if system is None:
            raise each.refuse(f"`dialogue-id` is {name!r}, of none of {', '.join(DBDC3_SYSTEMS)}")
        turns = [_convert_breakdown(turn, each) for turn in each.take("turns", list)]
        yield {"id": name, "system": system, "turns": turns}


def _convert_breakdown(turn: Mapping[str, Any], each: Original) -> Record:
    speaker = DBDC3_SPEAKERS.get(str(turn.get("speaker")))
    if speaker is None:
        raise each.refuse(f"a turn's `speaker` is {turn.get('speaker')!r}, expected U or S")
    row: Record = {"speaker": speaker, "text": str(turn["utterance"])}
    votes = Counter(str(given["breakdown"]) for given in turn.get("annotations", ()))
    if votes:
        row["breakdown_votes"] = {kind: votes[kind] for kind in ("O", "T", "X")}
    return row


def read_dialogue_eval(paths: Sequence[Path]) -> Iterator[Record]:
    """A row per conversation; `robotic` and `repetitive` are reversed as released. Ids of people are hashed."""
    names = {"user": "user", "system": "bot"}
    for task in read_json_lists(paths):
        for position, record in enumerate(task.take("data", list)):
            each = Original(task.path, task.place, record)
            yield {
                "worker": _hash(task.take("WorkerId", str)),
                "hit": _hash(task.take("HITId", str)),
                "position": position,
                "model": each.take("model", str),
                "topic": record.get("topic", []),
                "ratings": each.take("raw scores", dict),
                "turns": [
                    {"speaker": speaker, "text": spoken[name]}
                    for spoken in record["dialogue"]
                    for speaker, name in names.items()
                ],
            }


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:12]


KINDS = {
    "relevant": "positive_responses",
    "adversarial": "adversarial_negative_responses",
    "random": "random_negative_responses",
}
ZHAO_SETS = ("persona-zhao", "dailydialog-zhao")
_TURN, _REFERENCE = "||||", "\t"


def read_adversarial(paths: Sequence[Path]) -> Iterator[Record]:
    """Contexts with relevant, adversarial and random responses; the file's name gives the split."""
    for each in read_json_lists(paths):
        split = next((part for part in ("train", "dev", "test") if part in each.path.name), "")
        texts = {kind: each.take(name, list) for kind, name in KINDS.items()}
        yield {"split": split, "context": each.take("context", list), **texts}


def read_several(paths: Sequence[Path]) -> Iterator[Record]:
    """Contexts with several relevant responses."""
    for each in read_json_lists(paths):
        yield {"context": each.take("context", list), "relevant": each.take(KINDS["relevant"], list)}


def read_grade(paths: Sequence[Path]) -> Iterator[Record]:
    """Responses with each rater's relevance from 1 to 5."""
    for each in read_json_lists(paths):
        ratings = _read_ratings(each)
        yield {
            "set": f"{each.record.get('Dataset')}-grade",
            "question": "relevance",
            "scale": [1, 5],
            "system": each.record.get("DialogModel"),
            "context": each.take("Context", str).split("|||"),
            "response": each.take("Response", str),
            "rating": sum(ratings) / len(ratings),
            "ratings": ratings,
        }


def _read_ratings(each: Original) -> list[int]:
    text = each.take("HumanScores", str)
    try:
        ratings = json.loads(text)
    except json.JSONDecodeError:
        ratings = None
    if not isinstance(ratings, list) or not ratings or not all(isinstance(given, int) for given in ratings):
        raise each.refuse(f"`HumanScores` is {text[:40]!r}, expected a list of whole numbers")
    return ratings


def read_zhao(paths: Sequence[Path]) -> Iterator[Record]:
    """Responses with the mean of what people said of them in all, from 1 to 5 (Zhao et al. 2020).

    The form is xDial-Eval's: a context's texts are the lines of a cell, and the file's name is the set's.
    """
    for path in paths:
        if not any(each in path.name for each in ZHAO_SETS):
            raise BadFileError(path, 0, f"is not named after its set, as {ZHAO_SETS[0]}.csv is")
    for each in read_tables(paths):
        yield {
            "set": next(name for name in ZHAO_SETS if name in each.path.name),
            "question": "overall",
            "scale": [1, 5],
            "context": each.take("english_ctx", str).split("\n"),
            "response": each.take("english_res", str),
            "rating": each.take_rating("ratings"),
        }


def read_multiref_ratings(paths: Sequence[Path]) -> Iterator[Record]:
    """Rated responses of five systems with their references."""
    for each in read_tables(paths):
        rating = each.take_rating("human_average_rating")
        yield {
            "system": each.record.get("model"),
            "context_id": each.record.get("context_id"),
            "context": each.take("context", str).split(_TURN),
            "response": each.take("response", str),
            "reference": each.record.get("prevgt"),
            "references": each.take("all_references", str).split(_REFERENCE),
            "rating": rating,
        }


def read_multiref_test(paths: Sequence[Path]) -> Iterator[Record]:
    """Test dialogues with several references for each turn."""
    for each in read_json_lists(paths):
        turns = each.take("dialogue", list)
        yield {
            "topic": each.record.get("topic"),
            "turns": [{"text": turn["text"], "references": turn.get("responses", [])} for turn in turns],
        }


Read = Callable[[Sequence[Path]], Iterator[Record]]


@dataclass(frozen=True, kw_only=True)
class OriginalSet:
    """A set as its authors publish it."""

    read: Read
    # Patterns of the files in a folder, in the order in which they are read. Those of dailydialog-adversarial do not
    # match multireftest.json.
    files: Sequence[str]
    rows: int | None = None  # Rows of the whole set; None where we hold none to count.
    turns: int | None = None
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


def compare_counts(described: OriginalSet, rows: int, turns: int) -> str:
    """A sentence on whether these are the counts of the whole set."""
    if described.rows is None and described.turns is None:
        return described.note
    counts = (("rows", described.rows, rows), ("turns", described.turns, turns))
    missed = [f"{want:,} {name}" for name, want, have in counts if want not in (None, have)]
    if missed:
        return f"the whole set has {' and '.join(missed)}: this is a part of it, or another version"
    return "these are the counts of the whole set"


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def data() -> None:
    """Convert public dialogue sets for our commands; docs/data.md says where each comes from."""


@app.command()
def convert(
    name: Annotated[str, typer.Argument(help=f"The set: {', '.join(SETS)}.")],
    source: Annotated[Path, typer.Argument(exists=True, help="The original file, or a folder that holds the files.")],
    output: Annotated[Path, typer.Argument(dir_okay=False, help="JSON lines; gzipped if it ends in .gz.")],
    whole: Annotated[bool, typer.Option("--whole", help="Fail unless the counts are those of the whole set.")] = False,
) -> None:
    """Write a set's original files in our form, and compare the counts with a correct reading's."""
    if name not in SETS:
        raise typer.BadParameter(f"{name!r} must be one of {', '.join(SETS)}", param_hint="NAME")
    described = SETS[name]
    files = find_files(described, source)
    refuse_input(output, files, "OUTPUT")
    try:
        rows = list(described.read(files))
    except (KeyError, TypeError, AttributeError, ValueError) as error:  # a field is missing deep inside a record
        raise BadFileError(source, 0, f"is not in its published form ({type(error).__name__}: {error})") from error
    turns = sum(len(row.get("turns", ())) for row in rows)
    verdict = compare_counts(described, len(rows), turns)
    if whole and "whole set has" in verdict:
        raise BadFileError(source, 0, f"has {len(rows):,} rows and {turns:,} turns; {verdict}")
    write_rows(output, rows)
    read = f"{len(files)} {'file' if len(files) == 1 else 'files'}"
    typer.echo(f"wrote {output}: {len(rows):,} rows, {turns:,} turns of {read}. {verdict}".rstrip(" ."))


@app.command()
def sample(
    output: Annotated[Path, typer.Argument(file_okay=False, help="Folder to fill; empty or missing.")],
    seed: SeedOption = 0,
) -> None:
    """Write a made-up sample in place of every public set, to try each command with."""
    written = write_sample(output, seed)
    typer.echo(f"wrote {written} files to {output}; nothing that is measured on them means anything")
