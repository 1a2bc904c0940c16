"""The dialogue language model for FED: GPT-2 architecture, byte-level BPE, DialoGPT's layout, and its training."""

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import typer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel
from turnscore_assessment.data.dialogues import read_dialogues
from turnscore_assessment.errors import BadFileError

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import LanguageModelOptions
from turnscore_exporters.training.loop import (
    TRAINING_FILE,
    LoopSettings,
    choose_batch,
    claim_folder,
    describe_run,
    train,
)

END_OF_TEXT = "<|endoftext|>"
TOKENIZER_FILE = "tokenizer.json"


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE as GPT-2's: every text can be encoded, and the end-of-text token comes last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def find_end_of_text(tokenizer: Tokenizer) -> int:
    """The id of the token between turns; CheckpointError where the tokenizer has none."""
    token_id = tokenizer.token_to_id(END_OF_TEXT)
    if token_id is None:
        raise CheckpointError(f"the tokenizer has no {END_OF_TEXT} token")
    return token_id


def build_model(size: LanguageModelOptions, vocabulary: int, eos_id: int) -> GPT2LMHeadModel:
    """A new model without dropout: it sees each text once or twice."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_positions=size.positions,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=eos_id,
            eos_token_id=eos_id,
        )
    )


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json`, and `vocab.json` and `merges.txt` as GPT-2 has them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / TOKENIZER_FILE))
    tokenizer.model.save(str(folder))
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")


Turns = tuple[str, ...]


@dataclass(frozen=True)
class TextSource:
    """One data file; one in `keep_one_in` of the dialogues with the source `thinned` is read."""

    file: str
    thinned: str = ""
    keep_one_in: int = 1


# Task-oriented SGD is four fifths of the dialogues and unlike chat: a third of it is enough (chosen).
SOURCES = (
    TextSource("dialogue_text.jsonl.gz", thinned="sgd", keep_one_in=3),
    TextSource("convai2017.jsonl.gz"),
    TextSource("dstc9_interactive.jsonl.gz"),
)


@dataclass(frozen=True)
class DialogueTexts:
    """Dialogues as their turns' texts, and the words read from each file."""

    train: list[Turns]
    held_out: list[Turns]
    words: dict[str, int]


def read_texts(folder: Path, sources: Sequence[TextSource] = SOURCES) -> DialogueTexts:
    """Reads every source that is in the folder; BadFileError where there is none.

    A dialogue's first turns alone decide its side, so a repeated dialogue is never on both.
    """
    texts = DialogueTexts([], [], {})
    for source in sources:
        if not (folder / source.file).exists():
            continue
        for number, dialogue in enumerate(read_dialogues(folder / source.file)):
            if dialogue.source == source.thinned and number % source.keep_one_in:
                continue
            turns = tuple(text for text in (" ".join(turn.text.split()) for turn in dialogue.turns) if text)
            if len(turns) > 1:
                is_held_out = zlib.crc32(" ".join(turns[:3]).encode()) % 50 == 0  # chosen: one dialogue in 50
                (texts.held_out if is_held_out else texts.train).append(turns)
                texts.words[source.file] = texts.words.get(source.file, 0) + sum(len(turn.split()) for turn in turns)
    if not texts.train or not texts.held_out:
        raise BadFileError(folder / sources[0].file, 0, "no dialogues to train and to test on")
    return texts


def cut_windows(dialogues: Iterable[Sequence[Sequence[int]]], eos_id: int, window: int) -> list[list[int]]:
    """Token windows of whole turns, at most `window` long: the separator, a turn, the separator, a turn ...

    Each ends on a separator; a turn longer than a window loses its end.
    """
    windows: list[list[int]] = []
    for turns in dialogues:
        current = [eos_id]
        for turn in turns:
            piece = [*turn[: window - 2], eos_id]
            if len(current) + len(piece) > window:
                windows.append(current)
                current = [eos_id]
            current += piece
        if len(current) > 1:
            windows.append(current)
    return [each for each in windows if len(each) > 2]


def group_windows(windows: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
    """Indices of the windows in groups of like length, each of at most `max_tokens` tokens, padding included."""
    groups: list[list[int]] = []
    width = 0
    for number in sorted(range(len(windows)), key=lambda each: (-len(windows[each]), each)):
        if not groups or (len(groups[-1]) + 1) * width > max_tokens:
            groups.append([])
            width = len(windows[number])
        groups[-1].append(number)
    return groups


TOKENS_PER_STEP = 2048  # chosen: half a second on one core with bf16 instructions
LEARNING_RATE, WEIGHT_DECAY, WARM_UP_STEPS = 2e-3, 0.1, 100
IGNORED = -100


def run_language_model_training(options: LanguageModelOptions) -> None:
    """Trains the tokenizer and the model, resuming where a run was interrupted; writes both and `training.json`.

    The tokenizer takes seconds and is trained each time: one that lay there might be of other options. It is written
    last, so that a folder of another run keeps its own where this one is refused.
    """
    claim_folder(options.output, options.data)
    texts = read_texts(options.data)
    tokenizer = train_tokenizer((turn for turns in texts.train for turn in turns), options.vocabulary)
    eos_id = find_end_of_text(tokenizer)
    trained, held_out = (_tokenize(tokenizer, own, eos_id, options.positions) for own in (texts.train, texts.held_out))
    typer.echo(f"{sum(map(len, trained)):,} tokens to train on, {sum(map(len, held_out)):,} held out")
    torch.manual_seed(options.seed)
    model = build_model(options, tokenizer.get_vocab_size(), eos_id)
    train_model(model, trained, eos_id, options)
    perplexity = measure_perplexity(model, held_out, eos_id)
    model.save_pretrained(options.output)
    save_tokenizer(tokenizer, options.output)
    tokens = {"train": sum(map(len, trained)), "held_out": sum(map(len, held_out))}
    described = describe_run(
        f"turnscore train dialogue-lm --data DATA --output CHECKPOINT --steps {options.steps} --seed {options.seed}",
        size=_size_of(options),
        steps=options.steps,
        tokens_per_step=TOKENS_PER_STEP,
        seed=options.seed,
        data=[source.file for source in SOURCES if source.file in texts.words],
        words=texts.words,
        tokens=tokens,
        held_out_dialogues=len(texts.held_out),
        held_out_perplexity=round(perplexity, 2),
    )
    write_json(options.output / TRAINING_FILE, described)
    typer.echo(f"held-out perplexity {perplexity:.1f} per token")


def _size_of(options: LanguageModelOptions) -> dict[str, int]:
    return {name: getattr(options, name) for name in ("vocabulary", "positions", "width", "layers", "heads")}


def train_model(
    model: GPT2LMHeadModel, windows: Sequence[Sequence[int]], eos_id: int, options: LanguageModelOptions
) -> None:
    """Trains in place on the mean loss of every token but the first of each window."""
    groups = group_windows(windows, TOKENS_PER_STEP)
    key = f"dialogue-lm {_size_of(options)} steps {options.steps} seed {options.seed} windows {len(windows)}"
    settings = LoopSettings(
        steps=options.steps,
        run_key=key,
        seed=options.seed,
        warm_up_steps=WARM_UP_STEPS,
        save_every=100,
        description="dialogue-lm",
        learning_rate=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        betas=(0.9, 0.95),
    )

    def step_loss(step: int) -> Tensor:
        group = groups[choose_batch(len(groups), 1, step, options.seed)[0]]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total, tokens = compute_loss(model, [windows[number] for number in group], eos_id)
        return total / tokens

    train(model, step_loss, settings, state_path=options.output / "state.pt")


def compute_loss(model: GPT2LMHeadModel, windows: Sequence[Sequence[int]], eos_id: int) -> tuple[Tensor, int]:
    """The summed loss in fp32 of every token but each window's first, and the number of these tokens."""
    width = max(map(len, windows))
    ids = torch.tensor([[*window, *[eos_id] * (width - len(window))] for window in windows])
    targets = torch.tensor([[*window[1:], *[IGNORED] * (width - len(window))] for window in windows])
    logits = model(input_ids=ids).logits[:, :-1]
    total = functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).float(), targets.reshape(-1), ignore_index=IGNORED, reduction="sum"
    )
    return total, sum(len(window) - 1 for window in windows)


def measure_perplexity(model: GPT2LMHeadModel, windows: Sequence[Sequence[int]], eos_id: int) -> float:
    """exp of the mean loss per token, in fp32; the separators after turns count as tokens."""
    total, tokens = 0.0, 0
    with torch.inference_mode():
        for group in group_windows(windows, TOKENS_PER_STEP):
            loss, count = compute_loss(model, [windows[number] for number in group], eos_id)
            total, tokens = total + float(loss), tokens + count
    return math.exp(total / tokens)


def _tokenize(tokenizer: Tokenizer, dialogues: Sequence[Turns], eos_id: int, window: int) -> list[list[int]]:
    encoded = tokenizer.encode_batch_fast([turn for turns in dialogues for turn in turns], add_special_tokens=False)
    ids = iter(encoded)
    return cut_windows(([next(ids).ids for _ in turns] for turns in dialogues), eos_id, window)
