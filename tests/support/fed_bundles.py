"""A FED bundle without weights: a byte-level BPE of bytes alone, two qualities and a few reference turns."""

from pathlib import Path

import numpy as np
from pydantic import JsonValue
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from turnscore_core.scorers.fed.scorer import FedScorer
from turnscore_models import Bundle

from support.bundles import make_bundle
from support.fed_paths import PathBackend

EOS = 256
QUALITIES: dict[str, JsonValue] = {
    "kind": {"positive": ["Thanks!", "That's nice."], "negative": ["That's rude!", "How rude."]},
    "clear": {"positive": [], "negative": ["What?", "That makes no sense!"]},
}
REFERENCE = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])


def save_byte_tokenizer(path: Path) -> None:
    """Every byte a token; the end-of-text token is number 256."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save(str(path))


def make_fed_bundle(folder: Path, window: int = 1024, **options: JsonValue) -> Bundle:
    """Written without its checksums being taken: the scorer alone is tested with it."""
    bundle = make_bundle(folder, name="fed", kind="fed")
    save_byte_tokenizer(folder / "tokenizer.json")
    np.savez(folder / "reference.npz", response_only=REFERENCE, whole_sequence=REFERENCE)
    described: dict[str, JsonValue] = {
        "qualities": QUALITIES,
        "default_qualities": ["kind", "clear"],
        "eos_id": EOS,
        "reference": "reference.npz",
        **options,
    }
    files = {**bundle.manifest.files, "reference.npz": "0" * 64}
    manifest = bundle.manifest.model_copy(update={"options": described, "token_limit": window, "files": files})
    return Bundle(folder, manifest)


def make_fed_scorer(folder: Path, window: int = 1024, **options: JsonValue) -> tuple[FedScorer, PathBackend]:
    backend = PathBackend()
    return FedScorer(make_fed_bundle(folder, window, **options), backend), backend
