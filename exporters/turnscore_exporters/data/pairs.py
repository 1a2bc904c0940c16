"""Pairs of a text and its reply: ConvAI 2017 with engagement labels, pairs to contrast, and real turns for reference.

Two readings of ConvAI's ratings. `published` does as the released code of Ghazarian et al. (2020): in a human-bot
dialogue it takes the entry under the human's name, which is always 0, so every positive is a human-human dialogue.
`corrected` takes the entry under the bot's name, which holds the human's rating. In both, a human-human dialogue has
the rounded mean of its two ratings.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from turnscore_assessment.data.dialogues import (
    THUMB_NONE,
    THUMB_UP,
    USER,
    LabelledTurn,
    RecordedDialogue,
    RecordedTurn,
    is_sample,
    merge_turns,
    read_dialogues,
)
from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import read_csv

from turnscore_exporters.errors import ExporterError, PairCountError


def make_exchange(query: str, reply: str, rating: float | None = None, dialogue: str = "") -> LabelledTurn:
    """What one person said and the reply; an empty `query` means that the reply opens the dialogue."""
    labels = {} if rating is None else {"rating": float(rating)}
    return LabelledTurn(context=((USER, query),) if query else (), response=reply, labels=labels, dialogue=dialogue)


def read_pair_csv(path: Path) -> list[LabelledTurn]:
    """Reads the columns query, reply and label (0 or 1) of a CSV file; any other column is ignored.

    Raises BadFileError naming the file and the row (the header is row 1).
    """
    return [_build_pair(record, path, row) for row, record in read_csv(path, ("query", "reply", "label")).rows]


def _build_pair(record: dict[str, str | None], path: Path, row: int) -> LabelledTurn:
    query, reply, label = record["query"], record["reply"], record["label"]
    if query is None or reply is None:
        raise BadFileError(path, row, "has too few columns")
    if label not in ("0", "1"):
        raise BadFileError(path, row, f"has label {label!r}, expected 0 or 1")
    return make_exchange(query.strip(), reply.strip(), int(label), f"{path.stem}:{record.get('id') or row}")


# Specified: the paper's threshold and split, and the pair counts of its Table 4 as (label 0, label 1).
ENGAGING_FROM = 3
TRAIN_SHARE, TEST_END_SHARE = 0.6, 0.8
PUBLISHED_PAIR_COUNTS = {"train": (6222, 1562), "validation": (2121, 575), "test": (2062, 582)}


class Labels(StrEnum):
    """Which entry of a human-bot dialogue's ratings is read."""

    PUBLISHED = "published"
    CORRECTED = "corrected"


class ConvaiSplit(StrEnum):
    """The parts of the data, by position in the release."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True)
class ConvaiSplits:
    """Pairs of each split under both readings, and thumbed bot turns. A dialogue is in the same split under both."""

    pairs: Mapping[Labels, Mapping[ConvaiSplit, list[LabelledTurn]]]
    thumbs: Mapping[ConvaiSplit, list[LabelledTurn]]


def read_convai(path: Path, left_out_ids: frozenset[str] = frozenset()) -> ConvaiSplits:
    """Reads the shared form and builds every split; dialogues in `left_out_ids` appear nowhere."""
    dialogues = []
    for row, dialogue in enumerate(read_dialogues(path), start=1):
        _check_ratings(dialogue, path, row)
        if dialogue.id not in left_out_ids:
            dialogues.append(dialogue)
    by_split = split_dialogues(dialogues)
    pairs = {labels: {split: build_pairs(members, labels) for split, members in by_split.items()} for labels in Labels}
    return ConvaiSplits(pairs, {split: build_thumb_pairs(members) for split, members in by_split.items()})


def read_left_out_ids(path: Path) -> frozenset[str]:
    """Reads the first tab-separated column of each line: the dialogues that raters judged turn by turn."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise BadFileError(path, 0, "the file does not exist") from error
    return frozenset(line.split("\t")[0].strip() for line in lines if line.strip())


def rate_dialogue(dialogue: RecordedDialogue, labels: Labels) -> int:
    """The dialogue's engagement rating, 0 to 5, under one reading."""
    ratings = {name: int(rating["engagement"]) for name, rating in dialogue.ratings.items()}
    if not dialogue.has_bot:
        return round(sum(ratings.values()) / len(ratings))
    read_kind = "human" if labels is Labels.PUBLISHED else "bot"
    return next(ratings[name] for name, kind in dialogue.participants.items() if kind == read_kind)


def label_dialogue(dialogue: RecordedDialogue, labels: Labels) -> int:
    """1 if the dialogue is engaging under this reading, else 0."""
    return int(rate_dialogue(dialogue, labels) >= ENGAGING_FROM)


def split_dialogues(dialogues: Iterable[RecordedDialogue]) -> dict[ConvaiSplit, list[RecordedDialogue]]:
    """Splits by position within each published label, as the paper does: 60 % train, 20 % test, 20 % validation.

    Both readings use the published label's split, so no dialogue in one's training is in another's test. Dialogues with
    fewer than two merged turns are left out first.
    """
    usable = [dialogue for dialogue in dialogues if len(merge_turns(dialogue.turns)) >= 2]
    splits: dict[ConvaiSplit, list[RecordedDialogue]] = {split: [] for split in ConvaiSplit}
    for label in (0, 1):
        members = [dialogue for dialogue in usable if label_dialogue(dialogue, Labels.PUBLISHED) == label]
        members.sort(key=lambda dialogue: dialogue.order)
        train_end, test_end = int(TRAIN_SHARE * len(members)), int(TEST_END_SHARE * len(members))
        splits[ConvaiSplit.TRAIN] += members[:train_end]
        splits[ConvaiSplit.TEST] += members[train_end:test_end]
        splits[ConvaiSplit.VALIDATION] += members[test_end:]
    return splits


def build_pairs(dialogues: Iterable[RecordedDialogue], labels: Labels) -> list[LabelledTurn]:
    """The labelled pairs of the dialogues under one reading, in order.

    Published: a label-1 dialogue gives every adjacent pair, a label-0 dialogue every second one (1-2, 3-4, ...).
    Corrected: every adjacent pair whose reply was rated; in a human-bot dialogue these are the bot's replies.
    """
    pairs: list[LabelledTurn] = []
    for dialogue in dialogues:
        label = label_dialogue(dialogue, labels)
        turns = merge_turns(dialogue.turns)
        step = 2 if labels is Labels.PUBLISHED and label == 0 else 1
        for index in range(0, len(turns) - 1, step):
            query, reply = turns[index], turns[index + 1]
            if labels is Labels.PUBLISHED or not dialogue.has_bot or dialogue.participants[reply.speaker] == "bot":
                pairs.append(make_exchange(query.text, reply.text, label, dialogue.id))
    return pairs


def build_thumb_pairs(dialogues: Iterable[RecordedDialogue]) -> list[LabelledTurn]:
    """Every bot message with a human's vote, after the human's text: label 1 for up, 0 for down."""
    pairs = []
    for dialogue in dialogues:
        said = ""
        for speaker, turns in groupby(dialogue.turns, key=attrgetter("speaker")):
            if dialogue.participants.get(speaker) == "bot":
                voted = (turn for turn in turns if turn.thumb != THUMB_NONE)
                pairs += [make_exchange(said, turn.text, turn.thumb == THUMB_UP, dialogue.id) for turn in voted]
            else:
                said = " ".join(turn.text for turn in turns)
    return pairs


def count_labels(pairs: Sequence[LabelledTurn]) -> tuple[int, int]:
    """(pairs with label 0, pairs with label 1)."""
    counts = Counter(pair.rating for pair in pairs)
    return counts[0], counts[1]


def check_published_counts(splits: ConvaiSplits) -> dict[str, tuple[int, int]]:
    """Returns the published reading's pair counts per split; PairCountError unless they equal the paper's Table 4."""
    counts = {str(split): count_labels(pairs) for split, pairs in splits.pairs[Labels.PUBLISHED].items()}
    for split, expected in PUBLISHED_PAIR_COUNTS.items():
        if counts[split] != expected:
            raise PairCountError(
                f"ConvAI {split}: {counts[split][0]}/{counts[split][1]} pairs with label 0/1, "
                f"the paper has {expected[0]}/{expected[1]}; "
                "is this the complete release, with the AMT dialogues left out?"
            )
    return counts


def _check_ratings(dialogue: RecordedDialogue, path: Path, row: int) -> None:
    ratings = dialogue.ratings
    if not isinstance(ratings, dict) or set(ratings) != set(dialogue.participants) or len(ratings) != 2:
        raise BadFileError(
            path, row, f"dialogue {dialogue.id}: `ratings` and `participants` must name the same two speakers"
        )
    for name, rating in ratings.items():
        value = rating.get("engagement") if isinstance(rating, dict) else None
        if not isinstance(value, int) or not 0 <= value <= 5:
            raise BadFileError(path, row, f"dialogue {dialogue.id}: {name} has engagement {value!r}, expected 0 to 5")
    unknown = {turn.speaker for turn in dialogue.turns} - set(dialogue.participants)
    if unknown or not set(dialogue.participants.values()) <= {"human", "bot"}:
        raise BadFileError(path, row, f"dialogue {dialogue.id}: speakers {sorted(unknown)} are no known human or bot")


CONVAI_FILE, LEFT_OUT_FILE = "convai2017.jsonl.gz", "predictive_engagement/50convs_AMT.txt"
JUDGED_FILE = "predictive_engagement/humanAMT_engscores_utt.csv"
TRANSFER_FILES = ("predictive_engagement/DD_finetune_train.csv", "predictive_engagement/DD_finetune_valid.csv")
TEXT_FILE = "dialogue_text.jsonl.gz"  # Dialogues without labels; missing where no recipe needs them.


@dataclass(frozen=True, kw_only=True)
class EngagementData:
    """Everything with a label. `judged` are the pairs that raters judged; no model may train on them."""

    convai: ConvaiSplits
    judged: list[LabelledTurn]
    transfer: list[LabelledTurn]


def read_engagement_data(folder: Path, *, check_counts: bool = True) -> EngagementData:
    """Reads the folder's files; with a check, raises PairCountError unless the pair counts are the published ones."""
    convai = read_convai(folder / CONVAI_FILE, read_left_out_ids(folder / LEFT_OUT_FILE))
    if check_counts and not is_sample(folder):
        check_published_counts(convai)
    transfer = [pair for name in TRANSFER_FILES for pair in read_pair_csv(folder / name)]
    return EngagementData(convai=convai, judged=read_pair_csv(folder / JUDGED_FILE), transfer=transfer)


DULL_REPLIES = (
    "i don't know .", "yes .", "ok .", "no .", "i see .", "sure .", "lol", "thank you .", "i'm not sure .", "what ?",
    "i don't think so .", "that's good .", "all right .",
)  # fmt: skip
LONGEST_CHAIN = 40
_WORD = re.compile(r"\w+(?:'\w+)?|[^\w\s]")
_START, _END = "<start>", "<end>"


class MarkovChain:
    """Word sequences in which every word follows the `order` words before it as in some real text."""

    def __init__(self, texts: Sequence[str], order: int = 2) -> None:
        self._order = order
        self._followers: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for text in texts:
            words = [_START] * order + _WORD.findall(text) + [_END]
            for index in range(order, len(words)):
                self._followers[tuple(words[index - order : index])].append(words[index])

    def draw(self, generator: random.Random) -> str:
        """One text of at most LONGEST_CHAIN words."""
        state: tuple[str, ...] = (_START,) * self._order
        words: list[str] = []
        while len(words) < LONGEST_CHAIN:
            word = generator.choice(self._followers[state])
            if word == _END:
                break
            words.append(word)
            state = (*state[1:], word)
        return " ".join(words)


class ContrastText:
    """Real pairs and a spoilt reply for each; the same seed gives the same text.

    Teaches an encoder what labelled dialogues are too few for: whether a reply makes sense and says anything. Spoilt
    replies are drawn from a Markov chain over real replies (fluent for three words, senseless beyond, as early
    sequence-to-sequence models write), spliced, shuffled, repetitive, or one of a few dull ones.
    """

    def __init__(self, pairs: Sequence[LabelledTurn], seed: int = 0) -> None:
        self.pairs = pairs
        self._seed = seed
        self._chain = MarkovChain([pair.response for pair in pairs])

    def spoil(self, index: int) -> str:
        """A made-up reply for the pair at `index`; depends on the seed and the index alone."""
        generator = random.Random(self._seed * 1_000_003 + index)  # noqa: S311
        words, others = self.pairs[index].response.split(), generator.choice(self.pairs).response.split()
        ways: tuple[Callable[[], str], ...] = (
            lambda: self._chain.draw(generator),
            lambda: " ".join(words[: max(1, len(words) // 2)] + others[len(others) // 2 :]),
            lambda: " ".join(generator.choice(others or words) if generator.random() < 0.35 else own for own in words),
            lambda: " ".join(generator.sample(words, len(words))),
            lambda: _repeat(words, generator),
            lambda: generator.choice(DULL_REPLIES),
        )
        [spoil] = generator.choices(ways, weights=(0.45, 0.15, 0.15, 0.10, 0.08, 0.07))  # chosen
        return spoil().strip() or DULL_REPLIES[0]


def _repeat(words: list[str], generator: random.Random) -> str:
    start, length = generator.randrange(max(1, len(words))), generator.randint(1, 3)
    piece = words[start : start + length]
    return " ".join(words[: start + length] + piece * generator.randint(1, 3) + words[start + length :])


def read_contrast_text(path: Path, pairs: int, seed: int = 0) -> ContrastText:
    """Draws `pairs` neighbouring turns from dialogues in the shared form, equally many from each `source`.

    Raises BadFileError if the file has fewer than two pairs of turns.
    """
    found: dict[str, list[LabelledTurn]] = defaultdict(list)
    for dialogue in read_dialogues(path):
        for query, reply in zip(dialogue.turns, dialogue.turns[1:], strict=False):
            if query.text.strip() and reply.text.strip():
                found[dialogue.source].append(make_exchange(query.text, reply.text))
    generator = random.Random(seed)  # noqa: S311
    share = -(-pairs // max(1, len(found)))
    drawn = [pair for _, own in sorted(found.items()) for pair in generator.sample(own, min(share, len(own)))]
    if len(drawn) < 2:
        raise BadFileError(path, 0, "has fewer than two pairs of turns")
    generator.shuffle(drawn)
    return ContrastText(drawn, seed)


SYSTEM_FILE = "dstc9_interactive.jsonl.gz"


@dataclass(frozen=True)
class ReferenceTurns:
    """(query, reply) texts and the sentence that names their source; an empty query opens a dialogue."""

    pairs: Sequence[tuple[str, str]]
    source: str


def read_reference_turns(folder: Path, limit: int) -> ReferenceTurns:
    """Draws at most `limit` turns, half from ConvAI's test dialogues, half system turns of DSTC9, without repeats.

    A missing DSTC9 file leaves ConvAI alone; BadFileError if nothing can be read.
    """
    dialogues = list(read_dialogues(folder / CONVAI_FILE))
    left_out = read_left_out_ids(folder / LEFT_OUT_FILE)
    test = split_dialogues(dialogue for dialogue in dialogues if dialogue.id not in left_out)[ConvaiSplit.TEST]
    sources = {"ConvAI 2017 test dialogues": [pair for each in test for pair in pair_turns(each, None)]}
    if (folder / SYSTEM_FILE).exists():
        system = [pair for each in read_dialogues(folder / SYSTEM_FILE) for pair in pair_turns(each, "system")]
        sources["system turns of DSTC9 interactive"] = system
    share = limit // len(sources)
    generator = random.Random(0)  # noqa: S311
    drawn: list[tuple[str, str]] = []
    for found in sources.values():
        unique = sorted(set(found))
        drawn += generator.sample(unique, min(share, len(unique)))
    if not drawn:
        raise BadFileError(folder / CONVAI_FILE, 0, "has no turns")
    generator.shuffle(drawn)
    return ReferenceTurns(drawn, " and ".join(sources))


def choose_reference_turns(folder: Path | None, dialogues: Sequence[Path], limit: int) -> ReferenceTurns:
    """Reference turns of a data folder, or from files of dialogues; ExporterError unless one of the two is given."""
    if (folder is None) == (not dialogues):
        raise ExporterError("give either --data or --dialogues: parity and percentiles are measured on real turns")
    if folder is not None:
        return read_reference_turns(folder, limit)
    unique = sorted({pair for path in dialogues for each in read_dialogues(path) for pair in pair_turns(each, None)})
    drawn = random.Random(0).sample(unique, min(limit, len(unique)))  # noqa: S311
    return ReferenceTurns(drawn, " and ".join(path.name for path in dialogues))


def pair_turns(dialogue: RecordedDialogue, speaker: str | None) -> list[tuple[str, str]]:
    """Every merged turn of that speaker, or of both, with the turn before it; the first has an empty query."""
    turns: tuple[RecordedTurn, ...] = merge_turns(dialogue.turns)
    queries = ["", *(turn.text for turn in turns)]
    return [
        (query, turn.text)
        for query, turn in zip(queries, turns, strict=False)
        if (speaker is None or turn.speaker == speaker) and turn.text.strip()
    ]
