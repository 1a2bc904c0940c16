"""Lines of a file, the rows made of them, and the output that holds those rows."""

import codecs
import csv
import gzip
import json
import os
import re
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Self

import turnscore_wire as wire
from turnscore_wire.json_lines import SILENT, read_json_line, read_turn

from turnscore_client._errors import InvalidRequestError, ServiceError, TurnScoreError, UnexpectedReplyError


@dataclass(frozen=True)
class Line:
    """One line as it lies in the file, its number from 1, and how far into the file reading has come (0 for a pipe)."""

    number: int
    raw: bytes
    position_bytes: int


def is_file(path: Path) -> bool:
    """Whether it is not `-`, which stands for the standard input or output."""
    return str(path) != "-"


def size_of(path: Path) -> int | None:
    """Bytes in the file to read; None where that is not known before the end."""
    return (path.stat().st_size if is_file(path) else 0) or None


def read_lines(path: Path) -> Iterator[Line]:
    """The lines that are not blank; of a `.gz` file the unpacked ones. `-` is the standard input, which stays open.

    A row of a `.csv` file and a dialogue of a `.txt` file are told as lines of JSON, by the number of their first line.
    Raises OSError or EOFError for a broken file, BadLayoutError for one that is laid out otherwise.
    """
    opened = path.open("rb") if is_file(path) else nullcontext(sys.stdin.buffer)
    with opened as file, gzip.open(file) if path.suffix == ".gz" else nullcontext(file) as unpacked:
        read = _READERS.get(Path(path.name.removesuffix(".gz")).suffix)
        for number, raw in enumerate(unpacked, start=1) if read is None else read(path, unpacked):
            if raw.strip():
                yield Line(number, raw, file.tell() if file.seekable() else 0)


class BadLayoutError(Exception):
    """A file is no table or transcript of turns; the sentence names file and line."""

    def __init__(self, path: Path, number: int, message: str) -> None:
        super().__init__(f"{path}, line {number}: {message}")


_SPEAKERS = {
    **dict.fromkeys(("user", "human", "customer", "client", "you"), "user"),
    **dict.fromkeys(("bot", "assistant", "system", "agent", "chatbot", "ai"), "system"),
}
# A speaker, and what was said behind it or, where the speaker has a line of its own, on the lines below.
_SAID = re.compile(r"[\s>*-]*(\w+)\W{0,40}?:(?:\W{0,40}?\s(.*)|[*_]*)")
# Of a dialogue in plain text, or a table's cell: eight times what a service takes at most.
_MOST_CHARS = 8 * 1024 * 8000


_Told = list[tuple[str, list[str]]]  # of each turn its speaker and lines


def _read_csv(path: Path, file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Of each row the columns: `response`, `context` as JSON or as `read_context` reads it, and others as they are."""
    csv.field_size_limit(_MOST_CHARS)
    file = iter(file)
    head = next(file, b"")
    table = csv.reader(codecs.iterdecode(chain([head], file), "utf-8-sig"), delimiter=find_separator(head))
    try:
        names = [_name_column(name) for name in next(table, [])]
        if "response" not in names:
            raise BadLayoutError(
                path, 1, f"the header names no column `response`; it names {', '.join(names) or 'none'}"
            )
        first = table.line_num + 1
        for cells in table:
            fields: Fields = {name: text for name, text in zip(names, cells, strict=False) if name}
            if "context" in fields:
                fields["context"] = read_context(fields["context"])
            if cells:
                yield first, json.dumps(fields).encode()
            first = table.line_num + 1
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadLayoutError(path, table.line_num + 1, f"is no CSV in UTF-8: {error}") from None


def find_separator(head: bytes) -> str:
    """Of a table with this first line."""
    return max(",;\t", key=lambda each: head.count(each.encode()))  # Excel writes semicolons in many languages


def _name_column(given: str) -> str:
    """Ours in any case; others as they are."""
    own = given.strip().lower()
    return own if own in ("context", "response") else given


def read_context(text: str) -> object:
    """The turns of a context: JSON, or lines that begin with a speaker, or what the user said."""
    if text.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    told: _Told = [("user", [])]
    for line in text.splitlines():
        _tell(told, line)
    return [turn for turn in _turns_of(told) if turn["text"]]


def _read_transcripts(path: Path, file: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Dialogues of lines that begin with a speaker such as `User:` or `Bot:`; a blank line is between two."""
    told: _Told = []
    first = chars = 0
    for number, raw in enumerate(chain(file, [b""]), start=1):
        try:
            line = raw.decode("utf-8-sig").rstrip()
        except UnicodeDecodeError:
            raise BadLayoutError(path, number, "is not UTF-8") from None
        if line:
            first, chars = first if told else number, chars + len(line)
            if not _tell(told, line):
                raise BadLayoutError(path, number, "a dialogue begins with its speaker, such as `User:` or `Bot:`")
            if chars > _MOST_CHARS:
                raise BadLayoutError(path, number, "a dialogue is too long; a blank line ends one")
        elif told:
            yield first, json.dumps({"turns": _turns_of(told)}).encode()
            told, chars = [], 0


def _tell(told: _Told, line: str) -> bool:
    """Adds a line: a turn where it begins with a speaker, else more of the latest one; whether it was added."""
    said = _SAID.fullmatch(line)
    speaker = _SPEAKERS.get(said[1].lower()) if said else None
    if said and speaker:
        told.append((speaker, [said[2] or ""]))
    elif told:
        told[-1][1].append(line)
    return bool(told)


def _turns_of(told: _Told) -> list[dict[str, str]]:
    return [{"speaker": speaker, "text": "\n".join(lines).strip()} for speaker, lines in told]


_READERS = {".csv": _read_csv, ".txt": _read_transcripts}


Fields = dict[str, Any]

_KINDS = ("turns", "response", "messages")  # what a line is, by the first of these fields that it has
# What a row may hold of ours; that of a dialogue also has `dialogue`.
_OURS = frozenset({"line", "error", "errors", "scores", "timing_ms", "request_id", "skipped"})
_OF_A_TURN = frozenset({"index", "scores", "errors", "error"})  # what a dialogue's turn may hold of ours
_SET_ASIDE = "input"  # where the line's own fields of such a name are kept


@dataclass(kw_only=True)
class Asked:
    """A line's request, and what is known of the turns that are not part of it."""

    fields: Fields  # what the client's method takes
    kept: Fields  # the line's own fields, as `keep` gives them
    kind: str
    chosen: "ChosenTurns"  # of a line with `turns`


def read_line(raw: bytes, scorers: Sequence[str] | None, limits: wire.Limits) -> Asked:
    """What is asked for a line. Raises InvalidRequestError for one of which nothing can be scored."""
    fields = _parse(raw)
    kinds = [kind for kind in _KINDS if kind in fields]
    if not kinds or ("turns" in kinds and len(kinds) > 1):
        raise InvalidRequestError("the line must have either `turns`, or `response` or `messages`")
    kind = kinds[0]
    known = wire.ScoreRequest.model_fields if "response" in fields else wire.DialogueRequest.model_fields
    request = {name: value for name, value in fields.items() if name in known}
    if request.get("scorers") is None:
        request["scorers"] = scorers
    asked = Asked(fields=request, kept=keep(fields), kind=kind, chosen=ChosenTurns())
    if kind == "turns":
        _choose_turns(asked, limits)
    elif isinstance(request.get("context"), list):
        request["context"] = [_bare(turn) for turn in request["context"]]
    return asked


def keep(fields: Mapping[str, Any]) -> Fields:
    """A line's fields: those named as one of ours in `input`, or, of a row of an earlier run, left out."""
    is_dialogue = next((kind for kind in _KINDS if kind in fields), None) in ("turns", "messages")
    take = _leave_out if _is_row(fields) else _set_aside
    kept = take(fields, _OURS | {"dialogue"} if is_dialogue else _OURS)
    for name in ("turns", "messages"):
        if is_dialogue and isinstance(kept.get(name), list):
            kept[name] = [take(turn, _OF_A_TURN) if isinstance(turn, dict) else turn for turn in kept[name]]
    return kept


def _is_row(fields: Mapping[str, Any]) -> bool:
    """Whether the line is a row of an earlier run: it has a number, and a reply or our error."""
    error = fields.get("error")
    return isinstance(fields.get("line"), int) and (
        isinstance(fields.get("timing_ms"), dict) or (isinstance(error, dict) and {"code", "message"} <= error.keys())
    )


def _leave_out(fields: Mapping[str, Any], ours: frozenset[str]) -> Fields:
    return {name: value for name, value in fields.items() if name not in ours}


def _set_aside(fields: Mapping[str, Any], ours: frozenset[str]) -> Fields:
    if ours.isdisjoint(fields):
        return dict(fields)
    ours = ours | {_SET_ASIDE}
    return {**_leave_out(fields, ours), _SET_ASIDE: {name: value for name, value in fields.items() if name in ours}}


def kept_of(raw: bytes) -> Fields:
    """Of a line that may be broken, what a row keeps."""
    try:
        return keep(_parse(raw))
    except InvalidRequestError:
        return {}


def row_of(asked: Asked, reply: wire.ScoreReply | wire.DialogueReply) -> Fields:
    """The row, without its number. Raises UnexpectedReplyError where a number in it is infinite or none."""
    plain = reply.model_dump(mode="json")
    if isinstance(reply, wire.ScoreReply):
        row = {**asked.kept, **{name: value for name, value in plain.items() if name not in ("index", "skipped")}}
    else:
        row = {**asked.kept, **plain, asked.kind: _with_scores(asked, plain.pop("turns"))}
        row.pop("turns" if asked.kind == "messages" else "skipped", None)
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        raise UnexpectedReplyError("the reply holds a number that is not JSON", 200) from None
    return row


def is_row_of(row: Mapping[str, Any], raw: bytes) -> bool:
    """Whether the row can have come of the line: everything of the line that a row keeps is in it."""
    kept, written = kept_of(raw), keep({**row, "timing_ms": {}})
    return all(name in written and written[name] == value for name, value in kept.items())


def failures_in(row: Mapping[str, Any]) -> list[str]:
    """What went wrong in a row, one sentence each: the line's error, its turns' and its scorers'."""
    return [_sentence(where, error) for where, error in _errors_in(row)]


def is_worth_asking_again(row: Mapping[str, Any]) -> bool:
    """Whether something went wrong that is not for what the line holds."""
    return any(
        error.get("code") not in (wire.ErrorCode.INVALID_REQUEST, wire.ErrorCode.TOO_LARGE)
        for _, error in _errors_in(row)
    )


def _errors_in(row: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(row.get("error"), dict):
        yield "", row["error"]
        return
    yield from ((f"{scorer}: ", error) for scorer, error in (row.get("errors") or {}).items())
    for place, turn in enumerate(turns_in(row)):
        if not isinstance(turn, dict):
            continue
        if isinstance(error := turn.get("error"), dict) and not is_blank(error):
            yield f"turn {place}: ", error
        yield from ((f"turn {place}: {scorer}: ", each) for scorer, each in (turn.get("errors") or {}).items())


def turns_in(row: Mapping[str, Any]) -> list[Any]:
    """The turns, or messages, of a dialogue's row."""
    turns = row.get("messages") if "messages" in row else row.get("turns")
    return turns if isinstance(turns, list) else []


def describe(error: TurnScoreError) -> Fields:
    """The error as an object of the output, in the wire's form."""
    if isinstance(error, ServiceError):
        return error.detail().model_dump(mode="json", exclude_none=True)
    return {"code": error.code, "message": str(error)}


def is_blank(error: Mapping[str, Any]) -> bool:
    """Whether a turn is not scored because nothing was said, which is no failure."""
    return error.get("message") == SILENT


def _choose_turns(asked: Asked, limits: wire.Limits) -> None:
    """Asks the turns that can be scored or read; names the others. Raises InvalidRequestError."""
    turns = asked.fields.get("turns")
    if not isinstance(turns, list):
        return
    chosen = choose_turns(turns, limits, name_field)
    if chosen.refused is not None:
        raise InvalidRequestError(chosen.refused.message, chosen.refused.field)
    asked.fields["turns"], asked.chosen = chosen.turns, chosen


def name_field(place: int, name: str, field: str = "turns") -> str:
    """A turn's field as errors name it."""
    return f"{field}.{place}" if name == wire.BODY_FIELD else f"{field}.{place}.{name}"


@dataclass(kw_only=True)
class ChosenTurns:
    """What of a dialogue is asked."""

    turns: list[wire.Turn] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # of these turns, among those given
    left_out: dict[int, wire.ErrorDetail] = field(default_factory=dict)  # by place the others
    refused: wire.ErrorDetail | None = None  # why nothing of the dialogue is asked
    refused_place: int | None = None  # of the turn whose speaker is not known


def choose_turns(given: Iterable[object], limits: wire.Limits, name: Callable[[int, str], str]) -> ChosenTurns:
    """The turns that can be scored or read: of the others the context then has nothing.

    A dialogue is refused where it is not known who speaks, or no turn is left. `name` names a turn's field for errors.
    """
    chosen = ChosenTurns()
    for place, turn in enumerate(given):
        read = read_turn(_bare(turn), limits)
        if isinstance(read, wire.Turn):
            chosen.turns.append(read)
            chosen.places.append(place)
            continue
        named = read.model_copy(update={"field": name(place, read.field or wire.BODY_FIELD)})
        if read.field != "text":
            chosen.refused, chosen.refused_place = named, place
            return chosen
        chosen.left_out[place] = named
    if not chosen.turns:
        message, code = "there is no turn that can be scored", wire.ErrorCode.INVALID_REQUEST
        chosen.refused = wire.ErrorDetail(code=code, message=message, field="turns")
    return chosen


def _bare(turn: object) -> object:
    """A turn without the fields that the wire does not know; a chat message keeps its role, by which it is refused."""
    if not isinstance(turn, dict):
        return turn
    names = ("speaker", "text") if "speaker" in turn else ("text", "role")
    return {name: turn[name] for name in names if name in turn}


def _with_scores(asked: Asked, scored: Sequence[Fields]) -> list[Any]:
    """The line's turns, those that were scored with their scores, those that were left out with the reason."""
    places = {asked.chosen.places[turn["index"]] if asked.kind == "turns" else turn["index"]: turn for turn in scored}
    written = []
    for place, turn in enumerate(asked.kept[asked.kind]):
        own = turn
        if place in places:
            own = {**turn, **places[place], "index": place}
        elif place in asked.chosen.left_out:
            own = {**turn, "error": asked.chosen.left_out[place].model_dump(mode="json", exclude_none=True)}
        written.append(own)
    return written


def _sentence(where: str, error: Mapping[str, Any]) -> str:
    field = f" ({error['field']})" if error.get("field") else ""
    return f"{where}{error.get('code')}{field}: {error.get('message')}"


def _parse(raw: bytes) -> Fields:
    try:
        return read_json_line(raw)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None


Row = dict[str, Any]

# So often what is packed is written through, at the cost of a few bytes. So much work a crash may cost.
_PACK_SECONDS = 1.0


class NotOurOutputError(Exception):
    """The file exists and is not what this command wrote for this input; the sentence says what is wrong."""


def rows_in(path: Path) -> Iterator[Row]:
    """The rows of an output, without a last one that was cut off. Nothing where the file is not there yet.

    Raises NotOurOutputError for a file with anything else in it.
    """
    if not is_file(path) or not path.exists():
        return
    last = 0
    for number, raw in enumerate(_whole_lines(path), start=1):
        try:
            row = json.loads(raw)
        except ValueError:
            row = None
        line = row.get("line") if isinstance(row, dict) else None
        if not isinstance(line, int) or line <= last:
            raise NotOurOutputError(f"exists, and this command did not write its line {number}; name another file")
        last = line
        yield row


class RowOutput:
    """An output that only this run writes. `append` returns once the row is on its way to the disk."""

    def __init__(self, path: Path, file: BinaryIO, *, is_new: bool) -> None:
        self._path = path
        self._file = file
        self._is_new = is_new
        self._is_packed = path.suffix == ".gz"
        self._packer: Any = None
        self._has_begun = False
        self._through_at = time.monotonic()
        self.last_line = 0  # of what was added here

    def rows(self) -> Iterator[Row]:
        """What `rows_in` gives; no other run adds to it while this one is open."""
        return rows_in(self._path)

    @contextmanager
    def rewriting(self) -> Iterator["RowOutput"]:
        """An output that takes this one's place at the end of the block, with the rows here that come after its own."""
        again = self._path.resolve().with_name(f".{self._path.stem}.again{self._path.suffix}")
        again.unlink(missing_ok=True)
        other = open_rows(again)
        shutil.copymode(self._path, again)
        other.begin()
        try:
            yield other
        finally:
            try:
                for row in self.rows():
                    if row["line"] > other.last_line:
                        other.append(row)
                other.close()
            except BaseException:
                again.unlink(missing_ok=True)  # what was there before stays
                raise
            self._take_place(again)

    def _take_place(self, other: Path) -> None:
        """That file becomes this output, or what this one links to."""
        locked = other.open("ab")
        _lock(locked)  # before it gets the output's name, so that no other run finds it unlocked
        other.replace(self._path.resolve())
        self._file.close()
        self._file, self._packer = locked, None

    def append(self, row: Row) -> None:
        self.begin()
        self.last_line = row.get("line", 0)
        raw = json.dumps(row, allow_nan=False).encode() + b"\n"
        if self._is_packed:
            self._packer = self._packer or zlib.compressobj(wbits=31)
            raw = self._packer.compress(raw)
            if time.monotonic() - self._through_at >= _PACK_SECONDS:
                raw += self._packer.flush(zlib.Z_SYNC_FLUSH)
                self._through_at = time.monotonic()
        self._write(raw)

    def _write(self, raw: bytes) -> None:
        """Raises OSError with the file's name, which that of a full disk lacks."""
        try:
            self._file.write(raw)
            self._file.flush()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is still held, and lets other runs write."""
        self._write(b"" if self._packer is None else self._packer.flush(zlib.Z_FINISH))
        if is_file(self._path):
            if self._is_new and not self._has_begun:
                self._path.unlink()
            self._file.close()

    def begin(self) -> None:
        """Takes away the cut-off end that a crash left; a file that was made for this run stays from here on."""
        if self._has_begun:
            return
        self._has_begun = True
        if not is_file(self._path):
            return
        if not self._is_packed:
            if (end := sum(map(len, _whole_lines(self._path)))) < self._path.stat().st_size:
                os.truncate(self._file.fileno(), end)
        elif not _is_whole(self._path):
            with self.rewriting():
                pass  # what is whole is packed again


def open_rows(path: Path) -> RowOutput:
    """The output, locked before anything of it is read; packed if it ends in `.gz`; `-` is the standard output.

    Nothing that is there changes before `begin`, and a file that is made here goes again without it. Raises OSError,
    and NotOurOutputError where another run is writing it.
    """
    file, is_new = _open_alone(path) if is_file(path) else (sys.stdout.buffer, False)
    return RowOutput(path, file, is_new=is_new)


def _open_alone(path: Path) -> tuple[BinaryIO, bool]:
    """The file to add to, locked, and whether it is new."""
    while True:
        is_new = not path.exists()
        file = path.open("ab")
        try:
            _lock(file)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file, is_new
        except FileNotFoundError:
            pass  # the run that had the lock took its empty file away
        except BaseException:
            file.close()
            raise
        file.close()  # the run that had the lock put another file in its place


def _lock(file: BinaryIO) -> None:
    """Keeps a second run from writing between, where the system has such locks."""
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NotOurOutputError("is being written by another run") from None


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The lines that end; of a packed file that breaks off those before."""
    broken = suppress(EOFError, zlib.error, gzip.BadGzipFile)
    with broken, gzip.open(path) if path.suffix == ".gz" else path.open("rb") as unpacked:
        for raw in unpacked:
            if raw.endswith(b"\n"):
                yield raw


def _is_whole(path: Path) -> bool:
    try:
        with gzip.open(path) as unpacked:
            return all(raw.endswith(b"\n") for raw in unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
