"""The output folder: commits blocks, and knows which are committed. Readers believe only manifests.

OUTPUT/
  job.json                    what was asked; written before anything else
  turns/part-0000000.parquet  a block's tables
  dialogues/...
  set_aside/...               where a block has something to set aside
  manifests/part-0000000.json written last: the block is whole
  finished.json               every block has its manifest
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, ValidationError
from turnscore_client._files.runs import FileEngine, Reply
from turnscore_client._options import Options
from turnscore_wire import DialogueReply, DialogueTurnScores, ErrorReply, ModelDescription, Score

from turnscore_corpus.inputs.dialogues import InputDialogue, SetAside, refuse
from turnscore_corpus.inputs.files import CorpusError, absolute
from turnscore_corpus.inputs.plan import Block, Plan
from turnscore_corpus.outputs.stores import TEMPORARY, BadOutputError, Store, open_store


class ChangedJobError(CorpusError):
    """The folder was begun with another input, model, option or column; the message names each difference."""


class BlockEngine(FileEngine, Protocol):
    """An engine that also says what a folder's manifests hold."""

    @property
    def code_versions(self) -> Mapping[str, str]:
        """By scorer the code that scores, where it is known; it may not change within a folder."""

    @property
    def turns_computed(self) -> int:
        """Turns computed since the start, summed over scorers: equal ones may be computed once."""


TABLES = ("turns", "dialogues", "set_aside")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `<scorer>_` stands before the name of a column that each scorer has."""

    name: str
    type: Any
    meaning: str


PLACE = (
    Column("dialogue", pa.string(), "the dialogue's name in the input, or `row N` where it has none"),
    Column("file", pa.string(), "the input file: an absolute path or a URI"),
    Column("row", pa.int64(), "the row in that file, from 1: a line, a record behind the header, a row of a table"),
)
CARRIED = (
    Column("system", pa.string(), "what `--system-column` held"),
    Column("day", pa.string(), "what `--day-column` held"),
)
TURN = (
    *PLACE,
    Column("index", pa.int32(), "the turn's place in its dialogue, from 0; of messages that of its last text"),
    Column("speaker", pa.string(), "`system`, or `user` where scorers of user turns are asked"),
    *CARRIED,
)
TURN_SCORES = (
    Column("value", pa.float64(), "the score; null where this scorer gave none"),
    Column("percentile", pa.float64(), "share of the bundle's reference turns that score lower"),
    Column("label", pa.string(), "`low`, `fair` or `good`; null without a threshold"),
    Column("details", pa.map_(pa.string(), pa.float64()), "the parts that the value is made of"),
    Column("warnings", pa.list_(pa.string()), "what to know before the score is believed"),
    Column("signals", pa.list_(pa.string()), "what a user's turn shows, the most probable first"),
    Column("tokens_used", pa.int32(), "tokens that the model saw"),
    Column("tokens_dropped", pa.int32(), "tokens that were left out, at least"),
    Column("truncated", pa.bool_(), "whether anything was left out"),
    Column("model", pa.string(), "the bundle, as `name:version`"),
    Column("digest", pa.string(), "SHA-256 of what in the bundle can change a score"),
)
DIALOGUE = (
    *PLACE,
    *CARRIED,
    Column("turns", pa.int32(), "turns, or messages, in the input"),
    Column("scored", pa.int32(), "turns that have a score of at least one scorer"),
)
DIALOGUE_SCORES = (
    Column("mean", pa.float64(), "mean of the values: the dialogue's score as the papers define it"),
    Column("min", pa.float64(), "least value"),
    Column("max", pa.float64(), "greatest value"),
    Column("turns", pa.int32(), "turns that count for this scorer; null where there is none"),
    Column("percentile_mean", pa.float64(), "mean of the percentiles; null if one has none"),
    Column("percentile_min", pa.float64(), "least percentile"),
    Column("percentile_max", pa.float64(), "greatest percentile"),
)
SET_ASIDE = (
    *PLACE,
    Column("turn", pa.int32(), "the turn's place in its dialogue; null where the whole row was set aside"),
    Column("scorer", pa.string(), "the scorer that gave no score; null where none was asked"),
    Column("code", pa.string(), "the error's code, as a service has it, such as `invalid_request` or `too_large`"),
    Column("field", pa.string(), "the field at fault, such as `turns.3.text`"),
    Column("reason", pa.string(), "why; never holds a text of the input"),
)


def schema_of(table: str, scorers: Iterable[str]) -> Any:
    """The Arrow schema of a table for these scorers, in their order."""
    if table == "set_aside":
        return pa.schema([(each.name, each.type) for each in SET_ASIDE])
    own, of_scorers = (TURN, TURN_SCORES) if table == "turns" else (DIALOGUE, DIALOGUE_SCORES)
    named = [(f"{scorer}_{each.name}", each.type) for scorer in scorers for each in of_scorers]
    return pa.schema([*((each.name, each.type) for each in own), *named])


Row = dict[str, Any]


class BlockRows:
    """The rows of one block's three tables, in the order of the input."""

    def __init__(self, file: str, models: Sequence[ModelDescription]) -> None:
        self._file = file
        self._models = {each.scorer: each for each in models}
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}

    def set_aside(self, each: SetAside) -> None:
        """Adds something that was not scored."""
        place = {"dialogue": each.dialogue, "file": self._file, "row": each.row, "turn": each.turn}
        why = {"scorer": each.scorer, "code": each.code, "field": each.field, "reason": each.reason}
        self._rows["set_aside"].append({**place, **why})

    def add(self, dialogue: InputDialogue, reply: Reply) -> None:
        """Adds a scored dialogue, or why it was refused."""
        if isinstance(reply, ErrorReply):
            self.set_aside(refuse(dialogue, dialogue.row, reply.error))
            return
        assert isinstance(reply, DialogueReply)
        scored = sum(self._add_turn(dialogue, turn) for turn in reply.turns)
        place = {"dialogue": dialogue.id, "file": self._file, "row": dialogue.row}
        row = {**place, "system": dialogue.system, "day": dialogue.day, "turns": dialogue.turns_given, "scored": scored}
        for name in self._models:
            found = reply.dialogue.get(name)
            cells = {each.name: None if found is None else getattr(found, each.name) for each in DIALOGUE_SCORES}
            row |= {f"{name}_{column}": cell for column, cell in cells.items()}
        self._rows["dialogues"].append(row)

    def tables(self) -> dict[str, Any]:
        """The tables that have rows."""
        return {
            name: pa.Table.from_pylist(rows, schema=schema_of(name, self._models))
            for name, rows in self._rows.items()
            if rows
        }

    def _add_turn(self, dialogue: InputDialogue, turn: DialogueTurnScores) -> bool:
        place = dialogue.places[turn.index]
        for name, error in turn.errors.items():
            self.set_aside(refuse(dialogue, dialogue.rows[turn.index], error, turn=place, scorer=name))
        if not turn.scores:
            return False
        row = {
            "dialogue": dialogue.id, "file": self._file, "row": dialogue.rows[turn.index], "index": place,
            "speaker": dialogue.turns[turn.index].speaker, "system": dialogue.system, "day": dialogue.day,
        }  # fmt: skip
        for name, model in self._models.items():
            row |= _score_cells(name, model, turn.scores.get(name))
        self._rows["turns"].append(row)
        return True


def _score_cells(name: str, model: ModelDescription, score: Score | None) -> Row:
    if score is None:
        return dict.fromkeys(f"{name}_{each.name}" for each in TURN_SCORES)
    cells: Sequence[object] = (
        score.value, score.percentile, score.label, list(score.details.items()), score.warnings,
        score.signals, score.tokens.used, score.tokens.dropped, score.tokens.truncated, score.model, model.digest,
    )  # fmt: skip
    return {f"{name}_{each.name}": cell for each, cell in zip(TURN_SCORES, cells, strict=True)}


FOLDER = "manifests"


class TableFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    rows: int
    size_bytes: int
    digest: str  # hash of its bytes


class BlockManifest(BaseModel):
    """One committed block."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal[1] = 1
    job: str  # digest of the job that it belongs to
    block: int
    file: str
    start: int
    rows: int
    dialogues: int
    turns: int  # turns with a score
    turns_computed: int  # turns that were computed, summed over scorers: equal turns are computed once
    set_aside: int
    seconds: float
    tables: dict[str, TableFile]

    @property
    def name(self) -> str:
        return manifest_name(self.block)


def manifest_name(block: int) -> str:
    """The name of a block's manifest."""
    return f"{FOLDER}/part-{block:07d}.json"


def read_manifest(content: bytes) -> BlockManifest | None:
    """The manifest; None for a torn one."""
    try:
        return BlockManifest.model_validate_json(content)
    except ValidationError:
        return None


def digest_of(content: bytes) -> str:
    """The hash that manifests and jobs use."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


JOB_FILE = "job.json"
_MOST_NAMED = 5  # chosen: enough to see what kind of difference it is

Described = dict[str, Any]


def describe_job(plan: Plan, engine: BlockEngine, options: Options, block_dialogues: int) -> Described:
    """The job as it is written with its output. Holds no secret and no text."""
    columns = {} if not plan.blocks else asdict(plan.blocks[0].columns)
    described: Described = {
        "form": 1,
        "input": {each.file.place: asdict(each) for each in plan.files},
        "order": [each.file.place for each in plan.files],
        "columns": columns,
        "block_dialogues": block_dialogues,
        "blocks": len(plan.blocks),
        "scorers": [each.scorer for each in engine.models],
        "models": {
            each.scorer: {
                **each.model_dump(include={"model", "digest", "graph", "threshold"}),
                "code_version": engine.code_versions.get(each.scorer),
            }
            for each in engine.models
        },
        "options": {name: dict(each) for name, each in options.items()},
    }
    return dict(json.loads(json.dumps(described)))  # as JSON gives it back


def job_digest(job: Described) -> str:
    """The digest that the job's manifests carry."""
    return digest_of(json.dumps(job, sort_keys=True).encode())


def find_differences(before: object, now: object) -> list[str]:
    """The differences by name: `models.engagement.digest was a..., is b...`; the first few, and how many more."""
    found = list(_differences(before, now, ""))
    more = [f"and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []
    return [*found[:_MOST_NAMED], *more]


def _differences(before: object, now: object, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in [*before, *(each for each in now if each not in before)]:
            inner = f"{path}.{name}" if path else str(name)
            if name not in now:
                yield f"{inner} is missing"
            elif name not in before:
                yield f"{inner} is added"
            else:
                yield from _differences(before[name], now[name], inner)
    elif before != now:
        yield f"{path} was {_short(before)}, is {_short(now)}"


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


FINISHED_FILE = "finished.json"


class OutputFolder:
    """Where a run commits its blocks. Can be pickled: each worker opens the folder for itself."""

    def __init__(self, place: str, job: str) -> None:
        """`job` is the digest of the job that the folder belongs to."""
        self.place = absolute(place)
        self._job = job
        self._store: Store | None = None

    @classmethod
    def begin(cls, place: str, job: Described) -> "OutputFolder":
        """The folder, new or started by the same job. Raises ChangedJobError, and BadOutputError for a foreign one."""
        folder = cls(place, job_digest(job))
        before = folder.read_job()
        if before is None:
            if any(folder.store.sizes(each) for each in (*TABLES, FOLDER)):
                raise BadOutputError(f"{folder.place} has tables and no {JOB_FILE}: this command did not write it")
            folder.store.put(JOB_FILE, json.dumps(job, indent=1, ensure_ascii=False).encode() + b"\n")
        elif before != job:
            told = f"{folder.place} was begun with another job: {'; '.join(find_differences(before, job))}"
            raise ChangedJobError(f"{told}. Name another folder, or repeat the first job")
        return folder

    @classmethod
    def opened(cls, place: str) -> "OutputFolder":
        """The folder of a job that was started, for reading. Raises BadOutputError where there is none."""
        job = cls(place, "").read_job()
        if job is None:
            raise BadOutputError(f"{absolute(place)} has no {JOB_FILE}: `turnscore corpus score` wrote nothing there")
        return cls(place, job_digest(job))

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(self.place)
        return self._store

    def read_job(self) -> Described | None:
        """The job that started it; None for a fresh folder."""
        content = self.store.get(JOB_FILE)
        if content is None:
            return None
        try:
            return dict(json.loads(content))
        except (TypeError, ValueError):
            raise BadOutputError(f"{self.place}: {JOB_FILE} is torn; remove the folder, or name another") from None

    def commit(self, block: Block, tables: Mapping[str, Any], *, turns_computed: int, seconds: float) -> BlockManifest:
        """Writes the block's tables and then its manifest, which makes them count."""
        files = {name: self._put_table(f"{name}/{block.name}.parquet", table) for name, table in tables.items()}
        rows = {name: files[name].rows if name in files else 0 for name in TABLES}
        manifest = BlockManifest(
            job=self._job,
            block=block.number,
            file=block.file.place,
            start=block.start,
            rows=block.rows,
            dialogues=rows["dialogues"],
            turns=rows["turns"],
            turns_computed=turns_computed,
            set_aside=rows["set_aside"],
            seconds=round(seconds, 3),
            tables=files,
        )
        self.store.put(manifest_name(block.number), manifest.model_dump_json().encode() + b"\n")
        return manifest

    def committed(self) -> dict[int, BlockManifest]:
        """The whole blocks: their manifest can be read, and their files have its sizes."""
        sizes = {name: size for table in TABLES for name, size in self.store.sizes(table).items()}
        found = {}
        for name in sorted(self.store.sizes(FOLDER)):
            manifest = read_manifest(self.store.get(name) or b"")
            if manifest is None or manifest.name != name:
                continue  # torn, or a temporary one: the block is done again
            if manifest.job != self._job:
                raise BadOutputError(f"{self.place}: {name} is another job's")
            if all(sizes.get(each.name) == each.size_bytes for each in manifest.tables.values()):
                found[manifest.block] = manifest
        return found

    def clean(self, committed: Iterable[BlockManifest]) -> None:
        """Removes what a killed run left: temporary files and files that no manifest names.

        Only the owner of the folder may call it.
        """
        kept = {name for each in committed for name in (each.name, *(file.name for file in each.tables.values()))}
        left = [name for folder in (*TABLES, FOLDER) for name in self.store.sizes(folder) if name not in kept]
        left += [name for name in self.store.sizes("") if name.endswith(TEMPORARY)]
        for name in left:
            self.store.remove(name)

    def finish(self, totals: Mapping[str, Any]) -> None:
        """Records that every block has its manifest."""
        self.store.put(FINISHED_FILE, json.dumps(dict(totals), indent=1).encode() + b"\n")

    def _put_table(self, name: str, table: Any) -> TableFile:
        stream = pa.BufferOutputStream()
        parquet.write_table(table, stream, compression="zstd")
        content = stream.getvalue().to_pybytes()
        self.store.put(name, content)
        return TableFile(name=name, rows=table.num_rows, size_bytes=len(content), digest=digest_of(content))

    def __getstate__(self) -> dict[str, object]:
        return {"place": self.place, "_job": self._job, "_store": None}
