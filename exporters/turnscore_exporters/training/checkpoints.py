"""Checkpoints: weights, settings, the BERT's shape and the tokenizer in a folder, or packed into one file."""

import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import nn
from transformers import BertConfig, BertModel
from turnscore_models.bundle import sha256_of

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.options import ReleaseOptions
from turnscore_exporters.training.encoders import Encoder
from turnscore_exporters.training.loop import STATE_FOLDER, TRAINING_FILE

WEIGHTS_FILE, SETTINGS_FILE, TOKENIZER_FILE, BERT_FILE = "weights.pt", "settings.json", "tokenizer.json", "bert.json"
POOLED = "pooled"
"""A model's pooling by BERT's own pooling layer, which other models do without."""
SMOOTHING_FILE = "smoothing.npy"
"""Where the weights were trained with int8 rounding: the factors to round with."""

Factors = NDArray[np.float32]

Model = TypeVar("Model", bound=nn.Module)


def write_checkpoint(folder: Path, model: nn.Module, settings: Mapping[str, Any], encoder: Encoder) -> None:
    """Writes everything that export needs. The settings name the `encoder` and its `token_limit`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / WEIGHTS_FILE)
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / BERT_FILE).write_text(encoder.model.config.to_json_string(use_diff=False), encoding="utf-8")
    encoder.tokenizer.save(str(folder / TOKENIZER_FILE))


def read_checkpoint(
    folder: Path, kind: str, build: Callable[[dict[str, Any], BertModel], Model]
) -> tuple[Model, Encoder]:
    """The model that `build` makes from the settings and an untrained BERT, with its weights, ready to score.

    Raises CheckpointError naming what is missing or broken.
    """
    try:
        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        shape = json.loads((folder / BERT_FILE).read_text(encoding="utf-8"))
        has_pooler = settings.get("pooling") == POOLED
        bert = BertModel(BertConfig(**{**shape, "attn_implementation": "eager"}), add_pooling_layer=has_pooler)
        model = build(settings, bert)
        model.load_state_dict(torch.load(folder / WEIGHTS_FILE, weights_only=True))
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    except Exception as error:
        raise CheckpointError(f"{folder}: is not a checkpoint of {kind} ({error})") from error
    return model.eval(), Encoder(
        name=settings["encoder"], model=bert, tokenizer=tokenizer, token_limit=settings["token_limit"]
    )


def write_smoothing(folder: Path, factors: Factors | None) -> None:
    """Keeps the factors [smoothed inputs, width] next to the weights; removes older ones where there are none."""
    if factors is None:
        (folder / SMOOTHING_FILE).unlink(missing_ok=True)
    else:
        np.save(folder / SMOOTHING_FILE, factors)


def read_smoothing(folder: Path) -> Factors | None:
    """What write_smoothing wrote, None if there is nothing; CheckpointError where it cannot be read."""
    path = folder / SMOOTHING_FILE
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            factors: Factors = np.lib.format.read_array(file)  # np.load also takes archives and pickles for it
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    return factors


def release_checkpoint(options: ReleaseOptions) -> list[str]:
    """Writes all that an export needs to the tar file `output`; the line that sha256sum would print.

    The state of an interrupted training is left out. Raises CheckpointError where the folder is not a finished
    checkpoint; the file appears whole or not at all.
    """
    folder, output = options.checkpoint, options.output
    if not (folder / TRAINING_FILE).is_file():
        raise CheckpointError(f"{folder}: has no {TRAINING_FILE}: its training is not finished")
    if output.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"{output}: lies inside the checkpoint; choose another place")
    partial = output.with_name(output.name + ".partial")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(partial, "w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and name.parts[0] != STATE_FOLDER:
                archive.add(path, str(name), filter=_plain)
    partial.replace(output)
    return [f"{sha256_of(output)}  {output}"]


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without owners and times, which differ between machines and days."""
    member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode = 0, 0, 0, "", "", 0o644
    return member
