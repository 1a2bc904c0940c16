"""The output folder: commits blocks, and knows which are committed. Readers believe manifests alone.

OUTPUT/
  job.json                    what was asked; written before anything else
  turns/part-0000000.parquet  a block's tables
  dialogues/...
  set_aside/...               where a block has something to set aside
  manifests/part-0000000.json written last: the block is whole
  finished.json               every block has its manifest
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from turnscore_corpus.errors import BadOutputError, ChangedJobError
from turnscore_corpus.filesystems import absolute
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.columns import TABLES
from turnscore_corpus.outputs.jobs import JOB_FILE, Described, find_differences, job_digest, write_job
from turnscore_corpus.outputs.manifests import (
    FOLDER,
    BlockManifest,
    TableFile,
    digest_of,
    manifest_name,
    read_manifest,
)
from turnscore_corpus.outputs.stores import TEMPORARY, Store, open_store

FINISHED_FILE = "finished.json"


@dataclass(frozen=True, kw_only=True)
class BlockCounts:
    """What a block's manifest counts beside its rows."""

    turns_computed: int
    seconds: float


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

    def commit(self, block: Block, tables: Mapping[str, Any], counts: BlockCounts) -> BlockManifest:
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
            turns_computed=counts.turns_computed,
            set_aside=rows["set_aside"],
            seconds=round(counts.seconds, 3),
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
