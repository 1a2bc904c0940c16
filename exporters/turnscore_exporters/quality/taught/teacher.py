"""A larger sentence encoder as a teacher: how alike it finds a response and what it answers.

Such an encoder (all-MPNet-base-v2, say) was trained on far more pairs of texts than are at hand here, and is too large
to be asked for each turn. What it finds alike is learned once, by the model that is served.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from turnscore_exporters.errors import EncoderError
from turnscore_exporters.training.encoders import cut_end, pad_rows, plain_tokenizer

TEXT_TOKENS = 128
TEXTS_AT_ONCE, TOKENS_AT_ONCE = 64, 4096
SAVE_EVERY = 4000
"""Texts after which the vectors are written: a larger encoder reads some forty texts per second and core."""

HalfVectors = NDArray[np.float16]


@dataclass(frozen=True, kw_only=True)
class SentenceTeacher:
    """A sentence encoder: the mean of its token vectors says what a text is about."""

    name: str
    model: PreTrainedModel
    tokenizer: Tokenizer

    def embed(self, texts: Sequence[str]) -> HalfVectors:
        """Unit vectors [texts, width] of the texts, each cut after TEXT_TOKENS tokens."""
        encoded = self.tokenizer.encode_batch_fast(list(texts))
        rows = [cut_end(each.ids, TEXT_TOKENS) for each in encoded]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        vectors = np.zeros((len(rows), int(self.model.config.hidden_size)), dtype=np.float16)
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            while order:
                width = len(rows[order[-1]])
                chosen = [order.pop() for _ in range(min(len(order), TEXTS_AT_ONCE, max(1, TOKENS_AT_ONCE // width)))]
                ids, mask = pad_rows([rows[place] for place in chosen])
                tokens = self.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
                pooled = (tokens * mask[..., None]).sum(1)
                vectors[chosen] = torch.nn.functional.normalize(pooled, dim=-1).numpy()
        return vectors


def load_sentence_teacher(name: str) -> SentenceTeacher:
    """Any sentence encoder whose text vector is the mean of its token vectors; EncoderError if it is not found."""
    try:
        model = AutoModel.from_pretrained(name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise EncoderError(f"--sentence-teacher {name}: cannot be loaded ({error})") from error
    return SentenceTeacher(name=name, model=model.eval(), tokenizer=plain_tokenizer(tokenizer.backend_tokenizer))


def read_or_embed(teacher: SentenceTeacher, texts: Sequence[str], folder: Path) -> dict[str, HalfVectors]:
    """The vector of each text. The folder keeps what this teacher said of these texts: an interrupted run goes on."""
    digest = hashlib.blake2b(json.dumps([teacher.name, *texts]).encode(), digest_size=8).hexdigest()
    folder = folder / digest
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, HalfVectors] = {}
    for start in tqdm(range(0, len(texts), SAVE_EVERY), desc="teacher", unit=f"{SAVE_EVERY} texts"):
        chunk = list(texts[start : start + SAVE_EVERY])
        file = folder / f"vectors{start}.npy"
        if file.exists():
            vectors = np.load(file)
        else:
            vectors = teacher.embed(chunk)
            partial = file.with_suffix(".partial")
            with partial.open("wb") as written:
                np.save(written, vectors)
            partial.replace(file)
        known.update(zip(chunk, vectors, strict=True))
    return known


def compare_texts(responses: Tensor, latest: Tensor, previous: Tensor) -> Tensor:
    """How alike each context [contexts] and each response [responses] are, [contexts, responses], from -1 to 1.

    Of unit vectors [.., width]: the mean of the cosines with the latest turn and with the last two together; `previous`
    is 0 where there is but one turn. Measured: agrees with people better than either cosine (docs/models/quality.md).
    """
    both = torch.nn.functional.normalize(latest + previous, dim=-1)
    return (latest @ responses.T + both @ responses.T) / 2
