"""The dialogue language model's text: dialogues as windows of tokens, held-out dialogues apart. Trains nothing."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnscore_assessment.data.dialogues import read_dialogues
from turnscore_assessment.errors import BadFileError

HELD_OUT_SHARE = 50  # chosen: one dialogue in 50

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
                is_held_out = zlib.crc32(" ".join(turns[:3]).encode()) % HELD_OUT_SHARE == 0
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
