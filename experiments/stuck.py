"""Measures how many loops and good dialogues are called `stuck`, and says from which sameness on few good ones are.

`python experiments/stuck.py DATA results/stuck.json`, where DATA is the folder of the dialogues. Loops of four kinds
are made from dialogues that go on well, and 40 were written by hand (stuck_loops.json).
"""

import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from quality_figures import write_record
from turnscore_assessment.agreement.scoring import load_bundles
from turnscore_assessment.files import read_rows
from turnscore_core.kept_vectors import VectorStore
from turnscore_core.scorers.quality import QualityScorer, TurnRows
from turnscore_core.scorers.scorer import TurnToScore
from turnscore_core.scorers.turn_warnings import STUCK_FROM, find_suspect
from turnscore_wire import Turn

LOOPS = 50  # of each kind
GOOD = 500  # dialogues of each set
SETS = ("sgd", "topical_chat", "synthetic_persona_chat")  # the threshold was chosen for the first two
MOST_FALSE = 0.01  # share of good dialogues that may be called stuck
# How the same is said and asked again, and the loops written by hand.
_SAID: dict[str, Any] = json.loads(Path(__file__).with_name("stuck_loops.json").read_text(encoding="utf-8"))

Dialogue = list[str]  # the user's and the system's turns, one after the other


def reword(text: str, rng: random.Random, leads: str = "leads") -> str:
    """The same in other words: others where the table has some, sentences in another order, another beginning."""
    swapped = re.sub(r"[\w']+", lambda word: _SAID["same_words"].get(word[0].lower(), word[0]), text)
    sentences = re.split(r"(?<=[.!?])\s+", swapped)
    if len(sentences) > 2 and rng.random() < 0.5:
        sentences.pop(rng.randrange(len(sentences)))
    place = rng.randrange(len(sentences))
    return str(rng.choice(_SAID[leads])) + " ".join(sentences[place:] + sentences[:place])


def ask_again(text: str, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return str(rng.choice(_SAID["complaints"]))
    return str(rng.choice(_SAID["again"])).format(reword(text, rng, "no_leads").lower().rstrip(".?!"))


def _loop(before: Dialogue, said: list[str], rng: random.Random, leads: str = "leads") -> Dialogue:
    """`before` ends with the user's request, of which each of `said` is one of three answers, the first as it is."""
    turns = list(before)
    for number, text in enumerate(said):
        turns += [text if text not in said[:number] else reword(text, rng, leads), ask_again(before[-1], rng)]
    return turns[:-1]


def _short(text: str) -> str:
    return " ".join(re.split(r"(?<=[.!?])\s+", text)[:2])


def make_loops(data: Path, seed: int) -> Iterator[tuple[str, Dialogue]]:
    """Kind and turns of each loop, as many of each kind."""
    rng = random.Random(seed)
    modern = [each for each in _rows(data / "judged_modern.jsonl.gz") if len(each["context"]) % 2]
    schema = [each["turns"] for each in _rows(data / "dialogue_text.jsonl.gz") if each["source"] == "sgd"]
    schema = [turns for turns in schema if len(turns) > 5]
    rng.shuffle(modern)
    rng.shuffle(schema)

    def replies(made: str) -> Iterator[tuple[Dialogue, str]]:
        for row in modern:
            for each in row["responses"]:
                if made in each["made"]:
                    yield [turn["text"] for turn in row["context"]], _short(each["text"])

    questions = [
        (before, text) for before, text in chain(replies("what was told"), replies("none")) if text.endswith("?")
    ]
    for number, (before, text) in zip(range(LOOPS), replies("none"), strict=False):
        turns = schema[number]
        before, text = (before, text) if number // 2 % 2 else (turns[:5], _short(turns[5]))
        yield "same answer", _loop(before, [text] * 3, rng)
    for _, (before, text) in zip(range(LOOPS), questions, strict=False):
        yield "same question", _loop(before, [text] * 3, rng, "question_leads")
    for turns in schema[LOOPS : 2 * LOOPS]:
        yield "two answers in turn", _loop(turns[:3], [turns[3], turns[5]] * 2, rng)
    for number, (before, text) in zip(range(LOOPS), replies("refus"), strict=False):
        said = [text] * 3 if number // 2 % 2 else rng.sample(_SAID["refusals"], 3)
        yield "refusal", _loop(before, said, rng)


def _rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path)]


def say(texts: Dialogue) -> list[TurnToScore]:
    turns = [Turn(speaker=("user", "system")[place % 2], text=text) for place, text in enumerate(texts)]
    return [TurnToScore(turns[:place], turns[place].text) for place in range(1, len(turns), 2)]


def measure(scorer: QualityScorer, texts: Dialogue) -> dict[str, float]:
    """A dialogue's greatest sameness; its turns, those where older texts are read, and the tokens of both."""
    packs = scorer.encode([scorer.trim(turn) for turn in say(texts)])
    laid = [cast("TurnRows", pack.structure) for pack in packs]
    means = scorer._encoder.find_means(row for turn in laid for row in turn.suspect_rows)
    tokens = sum(pack.real_tokens for pack in packs)
    found = {"same": 0.0, "turns": len(packs), "tokens": tokens, "looked": 0, "more": 0}
    for turn in laid:
        read = {row: means[row] for row in (turn.response, *turn.context) if row in means}
        found["same"] = max(found["same"], turn.sameness(means))
        if turn.sameness(read) >= STUCK_FROM:
            found["looked"] += 1
            found["more"] += sum(len(row) for row in set(turn.suspect_rows) - read.keys())
    return found


def share(found: Sequence[dict[str, float]], least: float) -> float:
    return sum(each["same"] >= least for each in found) / len(found)


def main(
    data: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder with the dialogues.")],
    output: Annotated[Path, typer.Argument(help="Where the figures are written.")],
    bundle: Annotated[str, typer.Option(help="A bundle of quality: a folder (with a /) or a name.")] = "quality",
    seed: Annotated[int, typer.Option(help="Of the good dialogues that are drawn.")] = 2,
) -> None:
    """Measures, and writes the figures to OUTPUT."""
    loaded = load_bundles([bundle])["quality"]
    scorer = cast("QualityScorer", loaded.scorer)
    scorer.keep_vectors(VectorStore(1 << 30).of(loaded.bundle.digest))
    dialogues = _rows(data / "dialogue_text.jsonl.gz")
    good = {
        name: random.Random(seed).sample([each["turns"] for each in dialogues if each["source"] == name], GOOD)
        for name in SETS
    }
    fine = {f"{name}: good dialogues": [measure(scorer, each) for each in good[name]] for name in good}
    stuck: dict[str, list[dict[str, float]]] = {}
    made = [(f"made, seed {each}", make_loops(data, each)) for each in (37, 1, 2, 3)]
    for origin, loops in (*made, ("by hand", _SAID["by_hand"])):
        for kind, texts in loops:
            stuck.setdefault(f"{kind}: loops {origin}", []).append(measure(scorer, texts))
    first = [each for found in list(fine.values())[:2] for each in found[::2]]
    least = next(each / 100 for each in range(30, 130) if share(first, each / 100) <= MOST_FALSE)
    rows = [
        [title, str(len(found)), *(f"{share(found[half::2], STUCK_FROM):.3f}" for half in (0, 1))]
        for title, found in {**fine, **stuck}.items()
    ]
    spoken = [turn for of_set in good.values() for each in of_set[:100] for turn in say(each)]
    began = time.process_time()
    for turn in spoken:
        find_suspect(turn.context, turn.response)
    words = (time.process_time() - began) / len(spoken)
    total = {name: sum(each[name] for each in chain(*fine.values())) for name in ("turns", "tokens", "looked", "more")}
    rows += [
        ["good turns for which older texts are read, share", "", f"{total['looked'] / total['turns']:.3f}", ""],
        ["tokens that they add where no vectors are kept, share", "", f"{total['more'] / total['tokens']:.3f}", ""],
        ["CPU time for the words of a turn, us", "", f"{1e6 * words:.0f}", ""],
    ]
    table = {
        "title": f"Share called stuck by {loaded.bundle.manifest.reference}, from a sameness of {STUCK_FROM} on",
        "columns": ["", "dialogues", "first half", "second half"],
        "conditions": [
            f"From {least} on at most {MOST_FALSE} of the first half's good dialogues of the first two sets are called "
            "stuck. The weights were chosen in view of two other draws of these, and of the loops of seed 37."
        ],
        "rows": rows,
    }
    write_record(output, "stuck.py", {"tables": [table]})
    typer.echo("\n".join("  ".join(row) for row in rows))


if __name__ == "__main__":
    typer.run(main)
