"""Dialogues and turns that people judged, as published: JSON lines, their sets, labels, and the splits by dialogue."""

import hashlib
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import scipy
from pydantic import BeforeValidator, ConfigDict, Field, PositiveInt, TypeAdapter, with_config
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_wire import Turn

from turnscore_assessment.errors import BadFileError
from turnscore_assessment.files import StrictForm, check_row, read_document, read_rows

USER, SYSTEM = "user", "system"
THUMB_NONE, THUMB_DOWN, THUMB_UP = 0, 1, 2

Spoken = tuple[Annotated[str, Field(pattern=f"^({USER}|{SYSTEM})$")], str]  # Speaker and text.


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One message. `thumb` is the other speaker's vote on it: 0 none, 1 down, 2 up."""

    speaker: str
    text: str
    thumb: Annotated[int, Field(ge=THUMB_NONE, le=THUMB_UP)] = THUMB_NONE


def _name_speakers(turns: object) -> object:
    """Turns that are plain texts are said by A and B by turns, A first."""
    if not isinstance(turns, list):
        return turns
    return [
        {"speaker": "AB"[place % 2], "text": turn} if isinstance(turn, str) else turn
        for place, turn in enumerate(turns)
    ]


@with_config(ConfigDict(coerce_numbers_to_str=True))
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDialogue:
    """One conversation, oldest turn first. `ratings` and `participants` are as released and may be empty.

    `system` is the name or number of the system that spoke, where the row has one under `system` or `model`; `line` is
    the row's number in its file, from 1.
    """

    id: str
    order: int
    turns: Annotated[tuple[RecordedTurn, ...], BeforeValidator(_name_speakers)]
    participants: Mapping[str, str] = field(default_factory=dict)
    ratings: Any = None
    source: str = ""
    system: str = ""
    line: int = 0

    @property
    def spoken(self) -> tuple[Spoken, ...]:
        """Speakers and texts."""
        return tuple((turn.speaker, turn.text) for turn in self.turns)

    @property
    def has_bot(self) -> bool:
        return "bot" in self.participants.values()


_DIALOGUE = TypeAdapter(RecordedDialogue)


def read_dialogues(path: Path) -> Iterator[RecordedDialogue]:
    """Yields the dialogues of a `.jsonl` or `.jsonl.gz` file in file order.

    A turn may be an object with `speaker` and `text`, or a plain string (then the speakers alternate, "A" first).
    Raises BadFileError naming the file, the line and the field.
    """
    for line, record in read_rows(path):
        fields = {"id": line, "order": line - 1, "system": record.get("model", ""), **record, "line": line}
        yield check_row(_DIALOGUE.validate_python, path, line, fields)


def read_conversations(path: Path) -> Iterator[RecordedDialogue]:
    """Yields every dialogue between a user and a system that has a turn.

    Every second plain text is the system's. A ratings file's first line is skipped. Raises BadFileError.
    """
    names = {"A": USER, "B": SYSTEM, USER: USER, SYSTEM: SYSTEM}
    is_ratings = False
    for line, record in read_rows(path):
        if "criteria" in record and "turns" not in record:
            is_ratings = True
            continue
        fields = {"turns": [] if is_ratings else None, "system": record.get("model", ""), **record, "line": line}
        fields |= {"id": line, "order": line - 1}
        found = check_row(_DIALOGUE.validate_python, path, line, fields)
        for place, turn in enumerate(found.turns):
            if turn.speaker not in names:
                raise BadFileError(path, line, f"turns.{place}.speaker: must be user or system")
        if found.turns:
            turns = tuple(replace(turn, speaker=names[turn.speaker]) for turn in found.turns)
            yield replace(found, turns=turns)


def merge_turns(turns: Sequence[RecordedTurn]) -> tuple[RecordedTurn, ...]:
    """Joins consecutive messages of one speaker with a space; the last vote that is not 0 stands for all."""
    merged: list[RecordedTurn] = []
    for turn in turns:
        if merged and merged[-1].speaker == turn.speaker:
            before = merged[-1]
            merged[-1] = RecordedTurn(turn.speaker, f"{before.text} {turn.text}", turn.thumb or before.thumb)
        else:
            merged.append(turn)
    return tuple(merged)


FIT_SHARE = 60  # Percent of the groups of dialogues that models are fitted on.
SHARED_WORDS = 5  # Rows whose contexts share a text of so many words count as one dialogue's.
# The set whose texts are DailyDialog's: licensed for non-commercial use, so nothing that ships is fitted on it.
DAILYDIALOG = "dailydialog-zhao"
THUMBS_SET = "convai-thumbs"
GOOD_FROM = 3.5  # Least rating, from 1 to 5, of a turn that people call good. Chosen: nearer to 4 than to 3.
_WORD = re.compile(r"[a-z0-9]+")


# Splits of rated turns: those that models are fitted on, and those that they are chosen on.
FIT, CHOOSE = "fit", "choose"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTurn:
    """A response in its context with what is known of it, on each set's own scale; unknown labels are absent."""

    context: tuple[Spoken, ...]  # Speakers and texts, oldest first.
    response: Annotated[str, Field(min_length=1)]
    # `rating`: people's mean rating. `goes_on`: 1 where the user went on, 0 where the user stopped. Judged responses
    # have their marks, judged user turns `satisfaction` and their signals.
    labels: Mapping[str, float] = field(default_factory=dict)
    next_user: str | None = None  # What the user said next; None where no user turn follows.
    set_name: str = ""
    system: str = ""
    dialogue: str = ""
    place: int = 0  # In the dialogue, where the set's reader tells it.
    split: str = ""

    @property
    def query(self) -> str:
        """What the response answers; empty where it opens the dialogue."""
        return self.context[-1][1] if self.context else ""

    @property
    def rating(self) -> float:
        return self.labels["rating"]

    @property
    def goes_on(self) -> bool | None:
        """None where the set does not show it, or the user had said goodbye before the response."""
        known = self.labels.get("goes_on")
        return None if known is None else bool(known)

    @property
    def is_fitted_on(self) -> bool:
        return self.split == FIT

    def to_score(self) -> TurnToScore:
        """The turn as a caller would send it."""
        context = [Turn.model_validate({"speaker": speaker, "text": text}) for speaker, text in self.context]
        return TurnToScore(context, self.response)


def read_rated_turns(path: Path) -> list[LabelledTurn]:
    """The rows of `turn_ratings.jsonl.gz`, split; the last text of a context is the user's."""
    rows = list(read_rows(path))
    for number, row in rows:
        if not isinstance(row.get("response"), str) or not isinstance(row.get("rating"), int | float):
            raise BadFileError(path, number, "lacks a string `response` or a number `rating`")
    contexts = [[text for text in row["context"] if text.strip()] for _, row in rows]
    groups = group_contexts(contexts)
    return [
        LabelledTurn(
            set_name=row["set"],
            system=str(row.get("system") or ""),
            dialogue=group,
            context=alternate(context),
            response=row["response"],
            labels={"rating": float(row["rating"])},
            split=choose_split(group),
        )
        for (_, row), context, group in zip(rows, contexts, groups, strict=True)
        if row["response"].strip()
    ]


def read_dbdc3(path: Path) -> list[LabelledTurn]:
    """The judged system turns of DBDC3: quality (O + T/2) over all votes. Chosen on, never fitted on."""
    turns = []
    for _, row in read_rows(path):
        spoken: list[Spoken] = []
        for turn, after in zip(row["turns"], [*row["turns"][1:], {}], strict=False):
            votes = turn.get("breakdown_votes")
            if turn["speaker"] == SYSTEM and votes and sum(votes.values()) and turn["text"].strip():
                turns.append(
                    LabelledTurn(
                        set_name="dbdc3",
                        system=row.get("system", ""),
                        dialogue=row["id"],
                        context=tuple(spoken),
                        response=turn["text"],
                        next_user=after["text"] if after.get("speaker") == USER else None,
                        labels={"rating": (votes.get("O", 0) + votes.get("T", 0) / 2) / sum(votes.values())},
                    )
                )
            if turn["text"].strip():
                spoken.append((turn["speaker"], turn["text"]))
    return turns


def read_thumbs(path: Path) -> list[LabelledTurn]:
    """ConvAI's voted turns of systems talking to people: 1 for a thumb up, 0 for one down."""
    turns = []
    for dialogue in read_dialogues(path):
        if sorted(dialogue.participants.values()) != ["bot", "human"]:
            continue
        bot = next(name for name, kind in dialogue.participants.items() if kind == "bot")
        merged = [turn for turn in merge_turns(dialogue.turns) if turn.text.strip()]
        for place, turn in enumerate(merged):
            if turn.speaker == bot and turn.thumb and place:
                context = tuple((SYSTEM if each.speaker == bot else USER, each.text) for each in merged[:place])
                turns.append(
                    LabelledTurn(
                        set_name=THUMBS_SET,
                        dialogue=dialogue.id,
                        context=context,
                        response=turn.text,
                        labels={"rating": float(turn.thumb == 2)},
                        split=choose_split(dialogue.id),
                    )
                )
    return turns


def alternate(texts: Sequence[str]) -> tuple[Spoken, ...]:
    """The texts as spoken by user and system in turns, the last one by the user."""
    return tuple((USER if (len(texts) - 1 - place) % 2 == 0 else SYSTEM, text) for place, text in enumerate(texts))


def choose_split(dialogue: str) -> str:
    """The committed rule: by the dialogue's name alone, the same on every machine."""
    return FIT if hashlib.sha256(dialogue.encode()).digest()[0] * 100 < FIT_SHARE * 256 else CHOOSE


def group_contexts(contexts: Sequence[Sequence[str]]) -> list[str]:
    """A name for each context; contexts that share a text of at least SHARED_WORDS words have the same name.

    The name is the least of the normalized texts that link the group, so that it does not depend on the order of rows.
    """
    keys_of = [_link_keys(context) for context in contexts]
    joined = scipy.cluster.hierarchy.DisjointSet(dict.fromkeys(chain.from_iterable(keys_of)))
    for first, *others in keys_of:
        for other in others:
            joined.merge(first, other)
    names = {key: min(group) for group in joined.subsets() for key in group}
    return [names[first] for first, *_ in keys_of]


def _link_keys(context: Iterable[str]) -> list[str]:
    normalized = [" ".join(_WORD.findall(text.lower())) for text in context]
    long = [text for text in normalized if len(text.split()) >= SHARED_WORDS]
    return long or [" | ".join(normalized)]


TURNS_FILE, MODERN_FILE = "judged_turns.jsonl.gz", "judged_modern.jsonl.gz"
USER_TURNS_FILE = "judged_user_turns.jsonl.gz"
# What a response is marked for, 1 to 5; the files call `fluent` `sound`.
MARKS = ("relevant", "fluent", "engaging", "overall")
LIVE_SETS = ("dstc9", "convai", "human_assessment")  # Of the judged sets, those of chatbots' turns as they were said.
UNKNOWN = math.nan

Part = Literal["train", "choose", "calibrate", "report"]
# Of the judged dialogues that are not trained on, the share below which a hash chooses, and calibrates.
_CHOOSE, _CALIBRATE = 0.3, 0.6


# Every judged response to one context, its labels its marks as 0 to 1: 1 of 5 is 0, 5 of 5 is 1.
JudgedContext = Sequence[LabelledTurn]


def part_of(dialogue: str, split: str) -> Part:
    """Which part a dialogue belongs to: what was not trained on is split by the SHA-256 of the dialogue's name."""
    if split == "train":
        return "train"
    place = int.from_bytes(hashlib.sha256(f"quality 2: {dialogue}".encode()).digest()[:4], "big") / 2**32
    return "choose" if place < _CHOOSE else "calibrate" if place < _CALIBRATE else "report"


def scale_mark(mark: float) -> float:
    """A mark from 1 to 5 as 0 to 1."""
    return (float(mark) - 1) / 4


def read_judged_contexts(path: Path) -> Iterator[JudgedContext]:
    """The rows of a file of judged responses, `system` telling how each was made; turns without text are left out."""
    for _, row in read_rows(path):
        context, part = _read_turns(row["context"]), part_of(row["dialogue"], row["split"])
        yield [
            LabelledTurn(
                set_name=row["set"],
                dialogue=row["dialogue"],
                split=part,
                context=context,
                response=each["text"],
                system=each.get("made", ""),
                labels={name: scale_mark(each["sound" if name == "fluent" else name]) for name in MARKS},
            )
            for each in row["responses"]
            if each["text"].strip()
        ]


def read_judged_user_turns(path: Path) -> Iterator[LabelledTurn]:
    """The rows of a file of judged user turns: labels are `satisfaction` from 0 to 1, and a 1 for each signal shown.

    `system` tells how each was drawn: `random`, or by words that make a signal likely.
    """
    for _, row in read_rows(path):
        *context, (_, text) = _read_turns(row["turns"])
        yield LabelledTurn(
            set_name=row["set"],
            dialogue=row["dialogue"],
            split=part_of(row["dialogue"], row["split"]),
            context=tuple(context),
            response=text,
            system=row.get("drawn", ""),
            labels={"satisfaction": scale_mark(row["satisfaction"]), **dict.fromkeys(row["signals"], 1.0)},
        )


def _read_turns(turns: Sequence[Mapping[str, Any]]) -> tuple[Spoken, ...]:
    return tuple((each["speaker"], each["text"]) for each in turns if each["text"].strip())


def read_judged_turns(folder: Path, parts: Sequence[Part]) -> list[LabelledTurn]:
    """The judged responses of these parts as rated turns, their overall mark from 1 to 5 as the rating.

    Live turns of chatbots, real responses with made-up ones, and modern ones are sets of their own.
    """
    turns = []
    for name in (TURNS_FILE, MODERN_FILE):
        contexts = read_judged_contexts(folder / name) if (folder / name).exists() else ()
        for each in chain.from_iterable(contexts):
            kind = "modern" if name == MODERN_FILE else "live" if each.set_name in LIVE_SETS else "made"
            rating = {"rating": 1 + 4 * each.labels["overall"]}
            if each.split in parts:
                turns.append(replace(each, set_name=f"judged-{kind}", system=each.set_name, split="", labels=rating))
    return turns


RATINGS_FILE, THUMBS_FILE = "turn_ratings.jsonl.gz", "convai2017.jsonl.gz"
DBDC3_FILE, ADVERSARIAL_FILE = "dbdc3_dev.jsonl.gz", "adversarial_responses.jsonl.gz"
ADVERSARIAL_KINDS = ("relevant", "random", "adversarial")


def read_development_sets(folder: Path) -> dict[str, list[LabelledTurn]]:
    """The rated turns by set, those fitted on apart, DBDC3's development turns, and ConvAI's thumbs."""
    found: dict[str, list[LabelledTurn]] = {}
    for file, read in ((RATINGS_FILE, read_rated_turns), (THUMBS_FILE, read_thumbs), (DBDC3_FILE, read_dbdc3)):
        for turn in read(folder / file) if (folder / file).exists() else ():
            part = "" if file == DBDC3_FILE else " (fitted on)" if turn.is_fitted_on else " (chosen on)"
            found.setdefault(f"{turn.set_name}{part}", []).append(turn)
    return found


DEFAULT_SETS = Path(__file__).with_name("dialogue_sets.json")
_GOODBYE = re.compile(
    r"\b(good ?bye|bye+|gotta go|got to go|have to go|need to go|time to go|going to go|end (the )?(conversation|chat)"
    r"|talk to you later|see you|see ya|i'?m done|im done|ttyl|have a (good|nice|great) (day|night|evening|one))\b",
    re.IGNORECASE,
)


class DialogueSet(StrictForm):
    """One set of dialogues in the shared form: its file, who the system is, and what its ends mean."""

    name: str
    files: list[str] = Field(min_length=1, description="The file, below the data folder.")
    roles: Literal["speaker", "participants", "alternate"] = Field(
        description="`speaker`: the turns say user or system. `participants`: the row says who is human and who bot; "
        "other pairings are left out. `alternate`: every second turn is the system's, the first one of odd dialogues."
    )
    goes_on: Literal["observed", "answered", "unknown"] = Field(
        description="`observed`: a user turn follows, or the user stopped. `answered`: only turns that were answered. "
        "`unknown`: neither means anything; the turns carry only a sentiment."
    )
    reason: str = Field(description="Why `goes_on` is what it is.")
    licence: str
    left_out_systems: Sequence[str] = ()
    every: dict[str, PositiveInt] = Field({}, description="Rows of this source are thinned: one in this many is read.")
    most_turns: PositiveInt | None = Field(None, description="A random draw of this many turns.")


def read_sets(path: Path = DEFAULT_SETS) -> list[DialogueSet]:
    """The descriptions in a JSON file; BadFileError naming the first field that is wrong."""
    return check_row(TypeAdapter(list[DialogueSet]).validate_python, path, 0, read_document(path))


def read_turns(folder: Path, sets: Sequence[DialogueSet], seed: int = 0) -> dict[str, list[LabelledTurn]]:
    """The usable turns of each set by its name: system turns with a text and something said before."""
    return {each.name: list(_draw(each, folder, seed)) for each in sets}


def _draw(described: DialogueSet, folder: Path, seed: int) -> Sequence[LabelledTurn]:
    turns: list[LabelledTurn] = []
    for file in described.files:
        for row, dialogue in enumerate(read_dialogues(folder / file)):
            if row % described.every.get(dialogue.source, 1) == 0 and dialogue.system not in described.left_out_systems:
                turns += observe_turns(described, _assign_speakers(described, dialogue, row))
    return draw_turns(turns, described.most_turns, seed)


def _assign_speakers(described: DialogueSet, dialogue: RecordedDialogue, row: int) -> list[Spoken]:
    """The dialogue's turns as spoken by user and system; none where it has not one of each."""
    names: Mapping[str, str] = {USER: USER, SYSTEM: SYSTEM}
    if described.roles == "participants":
        if sorted(dialogue.participants.values()) != ["bot", "human"]:
            return []
        names = {name: SYSTEM if kind == "bot" else USER for name, kind in dialogue.participants.items()}
    if described.roles == "alternate":
        return [(SYSTEM if place % 2 == row % 2 else USER, turn.text) for place, turn in enumerate(dialogue.turns)]
    return [(names[turn.speaker], turn.text) for turn in dialogue.turns if turn.speaker in names]


def observe_turns(described: DialogueSet, turns: Sequence[Spoken]) -> Iterator[LabelledTurn]:
    """Every system turn with a context that a user turn follows, or, where the set shows stops, nothing."""
    for place, (speaker, text) in enumerate(turns):
        context = tuple(turns[:place])
        if speaker != SYSTEM or not context or not text.strip():
            continue
        is_last = place + 1 == len(turns)
        labels = {}
        if is_last:
            left_anyway = context[-1][0] == USER and says_goodbye(context[-1][1])
            labels = {} if left_anyway else {"goes_on": 0.0}
        elif described.goes_on != "unknown":
            labels = {"goes_on": 1.0}
        if described.goes_on == "observed" if is_last else turns[place + 1][0] == USER:
            yield LabelledTurn(
                set_name=described.name,
                context=context,
                response=text,
                next_user=None if is_last else turns[place + 1][1],
                labels=labels,
            )


def says_goodbye(utterance: str) -> bool:
    """Whether the user was leaving anyway: the stop that follows says nothing about the response."""
    return bool(_GOODBYE.search(utterance))


SET_NAME = "human_assessment"
STATED = (
    "system turns of the human assessment dialogues (Dialogue-Eval) of which no turn was trained on: five open-domain "
    "systems, with and without a persona, in 2021; the degraded system left out"
)


@dataclass(frozen=True)
class Population:
    """System turns in their contexts, and their dialogues (file, id and order, as training names them)."""

    turns: list[LabelledTurn]
    dialogues: frozenset[str]

    def turns_of(self, speaker: str) -> list[LabelledTurn]:
        """The system turns; or the user turns that they answer, each once, in their own contexts."""
        if speaker == "system":
            return self.turns
        asked = {turn.context: turn for turn in self.turns if turn.context and turn.context[-1][0] == speaker}
        return [replace(turn, context=turn.context[:-1], response=turn.context[-1][1]) for turn in asked.values()]


def read_population(folder: Path) -> Population:
    """The dialogues of which the sentiment/stop model's training draws nothing; the quality model leaves them out."""
    described = next(each for each in read_sets() if each.name == SET_NAME)
    drawn = {(turn.context, turn.response) for turn in read_turns(folder, [described])[SET_NAME]}
    turns: list[LabelledTurn] = []
    dialogues: set[str] = set()
    for file in described.files:
        for dialogue in read_dialogues(folder / file):
            if dialogue.system in described.left_out_systems:
                continue
            found = list(observe_turns(described, [(turn.speaker, turn.text) for turn in dialogue.turns]))
            if found and not any((turn.context, turn.response) in drawn for turn in found):
                turns += found
                dialogues.add(f"{file} {dialogue.id} {dialogue.order}")
    return Population(turns, frozenset(dialogues))


def draw_turns(turns: Sequence[LabelledTurn], limit: int | None, seed: int) -> list[LabelledTurn]:
    """All turns, or `limit` of them drawn at random."""
    if limit is None or limit >= len(turns):
        return list(turns)
    return random.Random(seed).sample(list(turns), limit)  # noqa: S311


SAMPLE_FILE = "SAMPLE.md"  # The file by which a sample's folder is known.


def is_sample(folder: Path) -> bool:
    return (folder / SAMPLE_FILE).is_file()
