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
from dataclasses import asdict
from typing import Any, Literal

import pyarrow as pa
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from turnscore_core.dialogues import ModelIdentity

from turnscore_corpus.errors import BadOutputError, ChangedJobError
from turnscore_corpus.inputs.files import absolute
from turnscore_corpus.inputs.plan import Block, Plan
from turnscore_corpus.outputs.stores import TEMPORARY, Store, open_store
from turnscore_corpus.outputs.tables import TABLES

FOLDER = "manifests"
FORM: Literal[1] = 1


class TableFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    rows: int
    size_bytes: int
    digest: str
    """Hash of its bytes."""


class BlockManifest(BaseModel):
    """One committed block."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal[1] = FORM
    job: str
    """Digest of the job that it belongs to."""
    block: int
    file: str
    start: int
    rows: int
    dialogues: int
    turns: int
    """System turns with a score."""
    turns_computed: int
    """Turns that were computed, summed over scorers: equal turns are computed once."""
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


def describe_job(
    plan: Plan,
    models: Mapping[str, ModelIdentity],
    options: Mapping[str, Mapping[str, JsonValue]],
    block_dialogues: int,
) -> Described:
    """The job as it is written with its output. Holds no secret and no text."""
    columns = {} if not plan.blocks else asdict(plan.blocks[0].columns)
    described: Described = {
        "form": 1,
        "input": {
            each.file.place: {
                "format": each.file.format,
                "packing": each.file.packing,
                "size_bytes": each.size_bytes,
                "digest": each.digest,
                "rows": each.rows,
            }
            for each in plan.files
        },
        "order": [each.file.place for each in plan.files],
        "columns": columns,
        "block_dialogues": block_dialogues,
        "blocks": len(plan.blocks),
        "scorers": list(models),
        "models": {name: asdict(each) for name, each in models.items()},
        "options": {name: dict(each) for name, each in options.items()},
    }
    return dict(json.loads(json.dumps(described)))  # as JSON gives it back


def write_job(job: Described) -> bytes:
    """The job as JSON."""
    return json.dumps(job, indent=1, ensure_ascii=False).encode() + b"\n"


def job_digest(job: Described) -> str:
    """The digest that the job's manifests carry."""
    return digest_of(json.dumps(job, sort_keys=True).encode())


def find_differences(before: object, now: object, path: str = "") -> list[str]:
    """The differences by name: `models.engagement.digest was a..., is b...`; the first few, and how many more."""
    found = list(_differences(before, now, path))
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
            if folder.has_tables():
                raise BadOutputError(f"{folder.place} has tables and no {JOB_FILE}: this command did not write it")
            folder.store.put(JOB_FILE, write_job(job))
        elif before != job:
            raise ChangedJobError(folder.place, find_differences(before, job))
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

    def has_tables(self) -> bool:
        """Whether the folder holds more than a job."""
        return any(self.store.sizes(each) for each in (*TABLES, FOLDER))

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

    def clean(self, committed: Iterable[BlockManifest]) -> int:
        """Removes what a killed run left: temporary files and files that no manifest names. Returns their number.

        Only the owner of the folder may call it.
        """
        kept = {name for each in committed for name in (each.name, *(file.name for file in each.tables.values()))}
        left = [name for folder in (*TABLES, FOLDER) for name in self.store.sizes(folder) if name not in kept]
        left += [name for name in self.store.sizes("") if name.endswith(TEMPORARY)]
        for name in left:
            self.store.remove(name)
        return len(left)

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
