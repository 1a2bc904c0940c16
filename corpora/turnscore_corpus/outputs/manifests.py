"""Manifests: which files make a block whole. A file that no manifest names is not part of the output."""

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

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
