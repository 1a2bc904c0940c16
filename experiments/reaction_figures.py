"""Measures the starter bundle of reaction on judged user turns that nothing was fitted on, next to frozen baselines.

    .venv-dev/bin/python experiments/reaction_figures.py DATA results/reaction.json

The baselines are a list of words for each signal, VADER, and TF-IDF with a logistic regression, which are fitted to the
same turns. Intervals of 95 %: exact ones of shares, by bootstrap over dialogues of all else.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from quality_figures import PROBES, read_starter, with_interval, write_record
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score
from turnscore_assessment.data.dialogues import USER_TURNS_FILE, LabelledTurn, read_judged_user_turns
from turnscore_assessment.figures import Flags, Floats, compute_auc, compute_spearman
from turnscore_assessment.files import read_rows
from turnscore_core.scorers.reaction import SIGNALS
from turnscore_exporters.calibration.recalibration import measure_share
from turnscore_exporters.quality.reaction import FITTED_ON, RANDOM, score_user_turns, shown_by
from turnscore_exporters.sentiment.model import score_vader

NEGATIVE = SIGNALS[:5]
ROUNDS = 1000
MOST_OF_SET = 800
# Frozen before the first bundle was measured.
WORDS = {
    "frustrated": r"annoy|frustrat|ridiculous|useless|waste|not listening|come on|ugh|stop (it|that|asking)|seriously",
    "corrects": r"\b(no,|i said|i meant|actually|that( i|')s not|not what i|you (already )?said|wrong|incorrect)",
    "repeats_request": r"\bagain\b|i (already )?asked|as i said|i repeat|still (not|no|waiting)|answer my question",
    "does_not_understand": r"what do you mean|don'?t understand|confus|not sure what|makes? no sense|huh\b|what\?+$",
    "wants_out": r"\bbye\b|goodbye|got(ta| to) go|have to go|see you|talk to you later|leave me|i'?m done|quit",
    "asks_for_a_person": r"\b(human|person|agent|representative|operator|real people|manager|a bot|a robot)\b",
    "abuse": r"\b(stupid|idiot|dumb|shut up|hate you|fuck\w*|shit|moron|suck)\b",
    "pleased": r"\bthank|great\b|awesome|perfect|love (it|that)|helpful|wonderful|nice talking",
    "engages": r"\?|\b(tell me|i (like|love|think|have|enjoy))\b",
    "disengages": r"^\W*(ok(ay)?|yes|no|yeah|sure|cool|nice|i see|i don'?t know|idk|hi|hello|maybe|lol)\W*$",
}


def score_baselines(turns: Sequence[LabelledTurn]) -> dict[str, Floats]:
    """What each says of every turn, [turns, satisfaction and signals]; no number where it says nothing."""
    texts, shown = [turn.response for turn in turns], shown_by(turns)
    satisfied = np.array([turn.labels["satisfaction"] for turn in turns])
    train = np.array([turn.split == "train" for turn in turns])
    found = {name: np.full((len(turns), 1 + len(SIGNALS)), np.nan) for name in ("words", "VADER", "TF-IDF")}
    for place, name in enumerate(SIGNALS):
        said = re.compile(WORDS[name], re.IGNORECASE)
        found["words"][:, 1 + place] = [float(said.search(text) is not None) for text in texts]
    mood = np.array([score_vader(text) for text in texts])
    found["VADER"][:, 0] = mood
    found["VADER"][:, 1 + SIGNALS.index("frustrated")] = found["VADER"][:, 1 + SIGNALS.index("abuse")] = -mood
    found["VADER"][:, 1 + SIGNALS.index("pleased")] = mood
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    read = words.fit(compress(texts, train)).transform(texts)
    found["TF-IDF"][:, 0] = Ridge(1.0).fit(read[train], satisfied[train]).predict(read)
    for place in range(len(SIGNALS)):
        model = LogisticRegression(C=10, class_weight="balanced", max_iter=2000).fit(read[train], shown[train, place])
        found["TF-IDF"][:, 1 + place] = model.predict_proba(read)[:, 1]
    return found


def most_f1(scores: Floats, shown: Floats) -> float:
    """The threshold with the greatest F1, as a baseline's probabilities are none."""
    return float(max(np.unique(scores).tolist(), key=lambda least: f1_score(shown, scores >= least, zero_division=0)))


def measure_signal(calls: Flags, shown: Floats) -> dict[str, Any]:
    is_shown = shown > 0
    shares = {"precision": measure_share(is_shown[calls]), "recall": measure_share(calls[is_shown])}
    found = {
        name: each and [round(each.share, 3), round(each.low, 3), round(each.high, 3)] for name, each in shares.items()
    }
    return {**found, "f1": round(float(f1_score(is_shown, calls, zero_division=0)), 3)}


def measure(turns: Sequence[LabelledTurn], scores: dict[str, Floats], thresholds: dict[str, Floats]) -> dict[str, Any]:
    """Figures of the part report."""
    shown = shown_by(turns)
    satisfied = np.array([turn.labels["satisfaction"] for turn in turns])
    calls = {name: found[:, 1:] >= thresholds[name] for name, found in scores.items()}

    def macro(name: str, drawn: NDArray[np.int64]) -> float:
        each = [f1_score(shown[drawn, k], calls[name][drawn, k], zero_division=0) for k in range(len(NEGATIVE))]
        return float(np.mean(each))

    def bootstrap(figure: Callable[[NDArray[np.int64]], float]) -> list[float]:
        return with_interval([turn.dialogue for turn in turns], figure, ROUNDS)

    best = max(("words", "TF-IDF"), key=lambda name: macro(name, np.arange(len(turns))))
    return {
        "turns": len(turns),
        "satisfaction, Spearman": {
            name: bootstrap(lambda drawn, found=found: compute_spearman(found[drawn, 0], satisfied[drawn]))
            for name, found in scores.items()
            if not np.isnan(found[:, 0]).any()
        },
        "macro-F1 of " + ", ".join(NEGATIVE): {
            **{
                name: bootstrap(lambda drawn, name=name: macro(name, drawn)) for name in ("reaction", "words", "TF-IDF")
            },
            f"reaction over {best}": bootstrap(lambda drawn: macro("reaction", drawn) - macro(best, drawn)),
        },
        "signals": {
            signal: {
                "shown": int(shown[:, place].sum()),
                **{
                    name: measure_signal(calls[name][:, place], shown[:, place])
                    for name, found in scores.items()
                    if not np.isnan(found[:, 1 + place]).any()
                },
            }
            for place, signal in enumerate(SIGNALS)
        },
    }


def read_task_turns(file: Path) -> Iterator[LabelledTurn]:
    """User turns of USS after the rated system turn; the mark was given at the user's turn."""
    rows = [row for _, row in read_rows(file)]
    after = {(row["dialogue"], len(row["context"])): row for row in rows}
    for row in rows:
        following = after.get((row["dialogue"], len(row["context"]) + 2))
        if following is not None and following["context"][-2] == row["response"]:
            said = list(zip(following["speakers"], following["context"], strict=True))
            yield LabelledTurn(
                set_name=row["set"],
                dialogue=row["dialogue"],
                context=tuple(said[:-1]),
                response=said[-1][1],
                labels={"satisfaction": row["rating"]},
            )


def measure_task_sets(file: Path, score: Callable[[Sequence[LabelledTurn]], Floats]) -> dict[str, list[float]]:
    by_set: dict[str, list[LabelledTurn]] = defaultdict(list)
    for turn in read_task_turns(file):
        by_set[turn.set_name].append(turn)
    found = {}
    for name, turns in sorted(by_set.items()):
        drawn = random.Random(0).sample(turns, min(MOST_OF_SET, len(turns)))
        values, rated = score(drawn)[:, 0], np.array([turn.labels["satisfaction"] for turn in drawn])
        dialogues = [turn.dialogue for turn in drawn]
        found[name] = with_interval(dialogues, lambda at, v=values, r=rated: compute_spearman(v[at], r[at]), ROUNDS)
    return found


def measure_probes(score: Callable[[Sequence[LabelledTurn]], Floats], thresholds: Floats) -> dict[str, Any]:
    """Each signal's figures on turns to help desks, written for this measurement."""
    turns = [
        LabelledTurn(
            context=tuple((("user", "system")[place % 2], text) for place, text in enumerate(each["said"])),
            response=each["text"],
            labels=dict.fromkeys(each["signals"], 1.0),
        )
        for each in PROBES["user_turns"]
    ]
    found, shown = score(turns)[:, 1:], shown_by(turns)
    return {
        name: {"shown": int(own.sum()), "AUC": round(compute_auc(each, own), 3), **measure_signal(each >= least, own)}
        for name, each, own, least in zip(SIGNALS, found.T, shown.T, thresholds, strict=True)
    }


def main(data: Path, output: Path) -> None:
    """Measures, and writes the figures to OUTPUT."""
    turns = list(read_judged_user_turns(data / USER_TURNS_FILE))
    bundle = read_starter("reaction")
    scores = {"reaction": score_user_turns(bundle, turns), **score_baselines(turns)}
    own = bundle.manifest.options["thresholds"]
    shown = shown_by(turns)
    chosen_on = np.array([turn.split in FITTED_ON for turn in turns])
    thresholds = {"reaction": np.array([own[name] for name in SIGNALS]), "words": np.full(len(SIGNALS), 0.5)}
    for name in ("VADER", "TF-IDF"):
        columns = np.nan_to_num(scores[name][:, 1:])
        thresholds[name] = np.array([most_f1(columns[chosen_on, k], shown[chosen_on, k]) for k in range(len(SIGNALS))])
    report = np.array([turn.split == "report" for turn in turns])
    random_part = shown_by([turn for turn in turns if turn.system == RANDOM]).mean(0)
    ask = partial(score_user_turns, bundle)
    figures = {
        "bundle": bundle.manifest.reference,
        "judged by": "a large language model",
        "share of turns drawn at random": dict(zip(SIGNALS, random_part.round(4).tolist(), strict=True)),
        **measure(list(compress(turns, report)), {name: found[report] for name, found in scores.items()}, thresholds),
        "turns to help desks": measure_probes(ask, thresholds["reaction"]),
        "USS, people's satisfaction, Spearman": measure_task_sets(data / "satisfaction_turns.jsonl.gz", ask),
    }
    write_record(output, "reaction_figures.py", figures)


if __name__ == "__main__":
    typer.run(main)
