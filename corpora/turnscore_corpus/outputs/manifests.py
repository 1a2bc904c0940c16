"""Manifests: that a block is whole, and which files it is. A file that no manifest names is not part of the output."""

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

FOLDER = "manifests"
FORM: Literal[1] = 1


class TableFile(BaseModel):
    """One table's file of one block."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    rows: int
    size_bytes: int
    digest: str
    """Hash of its bytes."""


class BlockManifest(BaseModel):
    """One block that was committed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal[1] = FORM
    job: str
    """Hash of the job that it is part of."""
    block: int
    file: str
    start: int
    rows: int
    dialogues: int
    turns: int
    """System turns with a score."""
    turns_computed: int
    """Those that were computed, once for each scorer: equal turns are computed once."""
    set_aside: int
    seconds: float
    tables: dict[str, TableFile]

    @property
    def name(self) -> str:
        """Where it stands."""
        return manifest_name(self.block)


def manifest_name(block: int) -> str:
    """Where the manifest of a block stands."""
    return f"{FOLDER}/part-{block:07d}.json"


def read_manifest(content: bytes) -> BlockManifest | None:
    """The manifest; None for one that is torn."""
    try:
        return BlockManifest.model_validate_json(content)
    except ValidationError:
        return None


def digest_of(content: bytes) -> str:
    """The hash that manifests and jobs use."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
