"""Static word vectors: from a file (word2vec or GloVe), or the word table of a BERT where no file is given.

Reads vectors; trains none. A word that the file lacks has the vector 0, as in the released code.
"""

import gzip
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from turnscore_assessment.references.vector_metrics import split_line

from turnscore_exporters.errors import ExporterError
from turnscore_exporters.training.encoders import Encoder

MOST_WIDTH = 4096
"""Largest width of a vector; a larger number in a file's head is an error. Chosen."""

Vectors = NDArray[np.float32]


class WordVectors(Protocol):
    name: str
    width: int

    def of(self, words: Sequence[str]) -> Vectors:
        """[words, width]; 0 for an unknown word."""


class FileVectors:
    """The vectors of a file, for the wanted words alone."""

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        """Reads word2vec's binary form (`.bin`), or one word per line (GloVe, or word2vec's text form with its head).

        Raises ExporterError naming the file and the line.
        """
        self.name = path.name
        kept = set(wanted)
        self._table: dict[str, Vectors] = {}
        read = _read_binary if path.name.removesuffix(".gz").endswith(".bin") else _read_lines
        try:
            with _open(path) as file:
                for word, vector in read(file, path):
                    if word in kept and word not in self._table:
                        self._table[word] = vector
        except (OSError, EOFError, zlib.error) as error:
            raise ExporterError(f"{path}: cannot be read ({error})") from error
        if not self._table:
            raise ExporterError(f"{path}: has a vector for none of {len(kept)} words")
        self.width = len(next(iter(self._table.values())))
        self._unknown = np.zeros(self.width, dtype=np.float32)

    def of(self, words: Sequence[str]) -> Vectors:
        rows = [self._table.get(word, self._unknown) for word in words]
        return np.stack(rows) if rows else np.zeros((0, self.width), dtype=np.float32)


class PieceVectors:
    """A word's vector is the mean of its pieces' in a BERT's word table: static, and no word is unknown.

    The table is scaled to a spread of 1, near word2vec's: a BERT's own is some twenty times smaller, and would slow a
    network's start as much.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.name = f"the word table of {encoder.name}"
        self._encoder = encoder
        table = encoder.model.embeddings.word_embeddings.weight.detach().numpy()
        self._table: Vectors = np.asarray(table / table.std(), dtype=np.float32)
        self.width = int(self._table.shape[1])
        self._known: dict[str, Vectors] = {}

    def of(self, words: Sequence[str]) -> Vectors:
        fresh = [word for word in dict.fromkeys(words) if word not in self._known]
        for word, pieces in zip(fresh, self._encoder.tokenize_bare(fresh), strict=True):
            self._known[word] = self._table[pieces].mean(0) if pieces else np.zeros(self.width, dtype=np.float32)
        rows = [self._known[word] for word in words]
        return np.stack(rows) if rows else np.zeros((0, self.width), dtype=np.float32)


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _read_lines(file: IO[bytes], path: Path) -> Iterator[tuple[str, Vectors]]:
    width = 0
    for number, line in enumerate(file, start=1):
        cells = line.decode("utf-8", errors="replace").rstrip().split(" ")
        if number == 1 and len(cells) == 2:
            continue  # word2vec's head: words and width
        width = width or len(cells) - 1
        word, numbers = split_line(cells, width)
        try:
            vector = np.array(numbers, dtype=np.float32)
        except ValueError as error:
            raise ExporterError(f"{path}: line {number} must be a word and its numbers") from error
        if len(numbers) != width or width < 1:
            raise ExporterError(f"{path}: line {number} has {len(numbers)} numbers, expected {width}")
        yield word, vector


def _read_binary(file: IO[bytes], path: Path) -> Iterator[tuple[str, Vectors]]:
    head = file.readline(64).split()
    if len(head) != 2 or not all(each.isdigit() for each in head) or not 0 < int(head[1]) <= MOST_WIDTH:
        raise ExporterError(f"{path}: must begin with the number of words and their width")
    words, width = int(head[0]), int(head[1])
    for _ in range(words):
        word = bytearray()
        while (letter := file.read(1)) not in (b" ", b""):
            word += letter
        content = file.read(4 * width)
        if len(content) != 4 * width:
            raise ExporterError(f"{path}: ends before its {words} words")
        yield word.decode("utf-8", errors="replace").lstrip("\n"), np.frombuffer(content, dtype="<f4").copy()
