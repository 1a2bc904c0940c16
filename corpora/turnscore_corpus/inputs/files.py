"""Input files: places and file systems, formats, and lines of any length in bounded memory."""

import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pyarrow as pa
from fsspec.core import url_to_fs
from pyarrow import fs
from turnscore_wire import Speaker


class CorpusError(Exception):
    """Anything that stops a run and that the user can act on. A row that cannot be scored is not among them."""


class BadInputError(CorpusError):
    """A file of the input cannot be read; the message names it."""


class BadColumnsError(CorpusError):
    """A column is missing; the message names it, its option, the file, and the columns that the file has."""


def absolute(place: str | os.PathLike[str]) -> str:
    """A name of the place that is the same from every folder: a path without links, or the URI."""
    text = os.fspath(place)
    if "://" not in text:
        return str(Path(text).resolve())
    if urlsplit(text).password is not None:
        raise CorpusError("an address must not hold a password: it would stand in the output; use the environment")
    return text.rstrip("/")


@lru_cache(maxsize=256)
def open_place(place: str) -> tuple[Any, str]:
    """The file system and the path in it. Raises CorpusError for an unknown kind of address."""
    if "://" not in place:
        return fs.LocalFileSystem(), place
    try:
        return tuple(fs.FileSystem.from_uri(place))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        try:
            filesystem, path = url_to_fs(place)
        except (ImportError, ValueError) as error:
            raise CorpusError(f"{place.partition('://')[0]}:// cannot be opened: {error}") from None
        return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


def is_local(filesystem: Any) -> bool:
    """Whether files can be renamed, locked and synchronised to disk."""
    return isinstance(filesystem, fs.LocalFileSystem)


Format = Literal["parquet", "jsonl", "csv"]
Packing = Literal["gzip", "zstd"]
_ENDINGS: dict[str, Format] = {
    "parquet": "parquet", "pq": "parquet", "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "csv": "csv",
}  # fmt: skip
_PACKINGS: dict[str, Packing] = {"gz": "gzip", "zst": "zstd"}
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file, its format, and how it is packed."""

    place: str  # an absolute path or a URI
    format: Format
    packing: Packing | None = None

    def open(self) -> Any:
        """Its bytes, unpacked, as a pyarrow stream. Raises BadInputError."""
        return self._opened("open_input_stream", compression=self.packing, buffer_size=_CHUNK_BYTES)

    def open_for_seeking(self) -> Any:
        """The file's bytes as they are stored, from any position."""
        return self._opened("open_input_file")

    def digest(self) -> tuple[int, str]:
        """The file's size and a hash of its bytes."""
        found, size = hashlib.blake2b(digest_size=16), 0
        with self._opened("open_input_stream", compression=None, buffer_size=_CHUNK_BYTES) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                found.update(chunk)
                size += len(chunk)
        return size, found.hexdigest()

    def _opened(self, way: str, **options: Any) -> Any:
        filesystem, path = open_place(self.place)
        try:
            return getattr(filesystem, way)(path, **options)
        except OSError as error:
            raise BadInputError(f"{self.place} cannot be read: {error}") from None


def find_files(places: Sequence[str], given: Format | None = None) -> list[InputFile]:
    """The files at these places, in an order that depends only on their names; a folder stands for all in it.

    `given` is the format of files whose endings do not say it. Raises BadInputError where there is none, or where one
    was named twice.
    """
    found: list[InputFile] = []
    for place in map(absolute, places):
        filesystem, path = open_place(place)
        try:
            info = filesystem.get_file_info(path)
        except OSError as error:
            raise BadInputError(f"{place} cannot be read: {error}") from None
        if info.type == fs.FileType.NotFound:
            raise BadInputError(f"{place} does not exist")
        if info.type == fs.FileType.Directory:
            found += _in_folder(place, filesystem, path, given)
        else:
            found.append(_describe(place, given))
    for name, times in Counter(each.place for each in found).items():
        if times > 1:
            raise BadInputError(f"{name} is named twice; name each input once")
    return found


def refuse_within(places: Sequence[str], output: str) -> None:
    """Raises BadInputError where the output lies among an input's data files: the next run would read it as input."""
    inside = absolute(output)
    for place in map(absolute, places):
        if inside == place or (inside.startswith(f"{place}/") and _is_visible(inside.removeprefix(place).lstrip("/"))):
            raise BadInputError(
                f"the output {inside} lies in the input {place}, and would be read as input when the run goes on; name "
                "a folder elsewhere, or one whose name begins with _"
            )


def _is_visible(name: str) -> bool:
    return not any(part.startswith((".", "_")) for part in name.split("/"))


def _in_folder(place: str, filesystem: Any, path: str, given: Format | None) -> list[InputFile]:
    """The data files below a folder; names that begin with a dot or `_` are those of other programs."""
    inside = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(each.path[len(path) :].lstrip("/") for each in inside if each.type == fs.FileType.File)
    found = [_describe(f"{place}/{name}", given) for name in names if _is_visible(name) and (given or _split(name)[0])]
    if not found:
        raise BadInputError(f"{place} holds no file that ends in {', '.join(f'.{each}' for each in _ENDINGS)}")
    return found


def _describe(place: str, given: Format | None) -> InputFile:
    format_, packing = _split(place)
    if given is None and format_ is None:
        raise BadInputError(f"{place}: the ending names no format; give --format")
    chosen = given or format_
    assert chosen is not None
    if chosen == "parquet" and packing is not None:
        raise BadInputError(f"{place}: a Parquet file is packed inside; unpack it")
    return InputFile(place=place, format=chosen, packing=packing)


def _split(place: str) -> tuple[Format | None, Packing | None]:
    *_, first, last = ("", "", *place.rpartition("/")[2].lower().split("."))
    packing = _PACKINGS.get(last)
    return _ENDINGS.get(first if packing else last), packing


# Most bytes of a line: more than the largest legal dialogue takes, written as JSON with every character escaped (1,024
# turns of 8,000 characters of 12 bytes).
MOST_BYTES = 128 * 1024 * 1024


def read_lines(stream: Any, begin: int = 0) -> Iterator[tuple[bytes | None, int]]:
    """The lines with their ends, and the position behind each; None for a line longer than any row may be.

    Raises OSError as the stream does, for a torn file too.
    """
    buffered, place = io.BufferedReader(stream, _CHUNK_BYTES), begin
    while line := buffered.readline(MOST_BYTES + 1):
        place += len(line)
        if len(line) <= MOST_BYTES:
            yield line, place
            continue
        while line and not line.endswith(b"\n"):
            line = buffered.readline(MOST_BYTES)
            place += len(line)
        yield None, place


RowHolds = Literal["dialogue", "turn"]
# The columns tried for a row's dialogue where none is named: our form, and OpenAI's chat form.
DIALOGUE_FIELDS = ("turns", "messages")
DEFAULT_ID = "id"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns' names; None for one that was not named: its usual name is looked for, or it is left out."""

    row: RowHolds = "dialogue"  # what a row holds: a whole dialogue, or one turn of it
    id: str | None = None  # the dialogue's name: `id` where a row is a dialogue, `dialogue` where it is a turn
    turns: str | None = None
    messages: str | None = None
    speaker: str = "speaker"
    text: str = "text"
    order: str | None = None  # the column that orders a dialogue's turns; None keeps the order of the rows
    # Names of speakers besides `user` and `system`, with the one that each stands for.
    speakers: tuple[tuple[str, Speaker], ...] = ()
    system: str | None = None
    day: str | None = None

    def speaker_of(self, name: object) -> object:
        """The wire's word for a speaker; other names stay as they are."""
        return dict(self.speakers).get(name, name) if isinstance(name, str) else name

    @property
    def id_column(self) -> str:
        """The column of the dialogue's name, if there is one."""
        return self.id or ("dialogue" if self.row == "turn" else DEFAULT_ID)

    def needed(self, file: str, known: Sequence[str]) -> list[str]:
        """The columns to read of a file that has those. Raises BadColumnsError for one that is missing."""
        given = {name: getattr(self, name) for name in ("turns", "messages", "id", "system", "day")}
        if self.row == "turn":
            given |= {"id": self.id_column, "speaker": self.speaker, "text": self.text, "order": self.order}
        named = {f"--{name}-column": column for name, column in given.items() if column is not None}
        if self.row == "dialogue" and self.turns is None and self.messages is None:
            dialogue = next((each for each in DIALOGUE_FIELDS if each in known), DIALOGUE_FIELDS[0])
            named["--turns-column or --messages-column"] = dialogue
        for option, column in named.items():
            if column not in known:
                raise BadColumnsError(f"{option}: {file} has no column {column!r}; it has {', '.join(known) or 'none'}")
        own_id = [DEFAULT_ID] if self.row == "dialogue" and DEFAULT_ID in known and self.id is None else []
        return list(dict.fromkeys([*named.values(), *own_id]))

    def dialogue_field(self, fields: Mapping[str, object]) -> tuple[str, bool] | None:
        """The field that holds a row's dialogue, and whether it holds messages; None where there is none."""
        if self.turns is not None:
            return (self.turns, False) if self.turns in fields else None
        if self.messages is not None:
            return (self.messages, True) if self.messages in fields else None
        return next(((each, each == "messages") for each in DIALOGUE_FIELDS if fields.get(each) is not None), None)
