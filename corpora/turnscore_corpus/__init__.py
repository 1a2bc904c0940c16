"""turnscore: scores corpora of dialogues offline, block by block; a block is committed whole or not at all."""

from turnscore_corpus.engines.work import process_block
from turnscore_corpus.errors import CorpusError
from turnscore_corpus.inputs.files import Columns, InputFile, find_files
from turnscore_corpus.inputs.plan import Block
from turnscore_corpus.outputs.folder import BlockManifest, OutputFolder

__all__ = [
    "Block",
    "BlockManifest",
    "Columns",
    "CorpusError",
    "InputFile",
    "OutputFolder",
    "find_files",
    "process_block",
]
