"""Measures a quality bundle on turns that nothing was fitted on, next to frozen baselines, into results/.

    .venv-dev/bin/python experiments/quality_figures.py DATA results/quality-2.4.0.json [--older older.json]

`older.json` holds the values of another version on the same turns, as `--values` of this program at that version's
commit writes them. Intervals of 95 % are by bootstrap over dialogues.
"""

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from turnscore_assessment.data.dialogues import (
    ADVERSARIAL_FILE,
    ADVERSARIAL_KINDS,
    LIVE_SETS,
    MODERN_FILE,
    LabelledTurn,
    Spoken,
    alternate,
    read_development_sets,
    read_judged_contexts,
    read_judged_turns,
)
from turnscore_assessment.figures import Flags, Floats, Integers, compute_auc, compute_spearman
from turnscore_assessment.files import read_rows
from turnscore_core.loaded_scorer import LoadedScorer, choose_variant, load_scorer
from turnscore_core.scorers.scorer import RawScore
from turnscore_core.scoring import score_turns
from turnscore_models.bundle import Bundle, read_bundle, starter_bundles
from typer import Option

# Written for this measurement. `fillers` by kind, an echo of the user's turn makes a fifth; `short_answers` that are
# right; `faults`, by words in the name of a modern reply's fault; and texts in which only the group named is
# `exchanged`.
PROBES = json.loads(Path(__file__).with_name("quality_probes.json").read_text(encoding="utf-8"))
ROUNDS = 500
GOOD, BAD, LONG_WORDS = 4.0, 2.5, 80


def read_turns(folder: Path) -> Iterator[LabelledTurn]:
    """The turns to measure on."""
    yield from read_judged_turns(folder, ["report"])
    for _, each in read_rows(folder / "turn_feedback.jsonl.gz"):
        if each["set"] in ("wochat", "abc-eval") and not each.get("held_back"):
            yield LabelledTurn(
                context=tuple(zip(each["speakers"], each["context"], strict=True)),
                response=each["response"],
                labels={"rating": each["rating"]},
                set_name=each["set"],
                dialogue=each["dialogue"],
            )
    for name, turns in read_development_sets(folder).items():
        if "thumbs" not in name:
            yield from (replace(turn, set_name=name) for turn in turns)


def read_starter(name: str) -> Bundle:
    return read_bundle(next(each for each in starter_bundles() if each.name == name))


def score(asked: Sequence[tuple[Sequence[Spoken], str]], name: str = "quality") -> tuple[LoadedScorer, list[RawScore]]:
    """The starter bundle of that name, and its scores of responses in their contexts."""
    bundle = read_starter(name)
    loaded = load_scorer(bundle, choose_variant(bundle), threads=1)
    turns = [LabelledTurn(context=tuple(context), response=response) for context, response in asked]
    return loaded, score_turns(loaded, [turn.to_score() for turn in turns])


def ask(asked: Sequence[tuple[Sequence[Spoken], str]], name: str = "quality") -> Floats:
    """The values alone."""
    return np.array([raw.value for raw in score(asked, name)[1]])


def auc_between(good: Floats, bad: Floats) -> float:
    return round(compute_auc(np.concatenate([good, bad]), np.repeat([1.0, 0.0], [len(good), len(bad)])), 3)


def measure_short(rows: Sequence[LabelledTurn], values: Floats) -> dict[str, Any]:
    """AUC of good modern replies against fillers in their contexts, and of short right answers against fillers."""
    good = [(each, value) for each, value in zip(rows, values, strict=True) if is_good_modern(each)]
    contexts = {str(each.context): each.context for each, _ in good}.values()
    kept = np.array([value for _, value in good])
    found: dict[str, Any] = {}
    for name, texts in PROBES["fillers"].items():
        found[name] = auc_between(kept, ask([(c, texts[n % len(texts)]) for n, c in enumerate(contexts)]))
    found["echo"] = auc_between(kept, ask([(context, context[-1][1]) for context in contexts]))
    asked = [[("user", question)] for question, _ in PROBES["short_answers"]]
    right = ask([(said, answer) for said, (_, answer) in zip(asked, PROBES["short_answers"], strict=True)])
    bare = [text for name in ("ok", "no idea") for text in PROBES["fillers"][name]]
    found["short right answers"] = auc_between(right, ask([(said, text) for said in asked for text in bare]))
    return found


def is_good_modern(each: LabelledTurn) -> bool:
    return each.set_name == "judged-modern" and each.rating >= GOOD


def measure_faults(folder: Path) -> dict[str, list[float]]:
    """By fault of a modern reply: how often a good reply to the same context has a higher value, and of how many pairs.

    All contexts that were not trained on; wide intervals.
    """
    contexts = [each for each in read_judged_contexts(folder / MODERN_FILE) if each[0].split != "train"]
    turns = [(turn.context, turn.response) for each in contexts for turn in each]
    values = iter(ask(turns))
    found: dict[str, list[bool]] = {name: [] for name in PROBES["faults"]}
    for each in contexts:
        own = [(turn, next(values)) for turn in each]
        good = [value for turn, value in own if turn.labels["overall"] >= 0.75]
        for name, words in PROBES["faults"].items():
            bad = [value for turn, value in own if any(word in turn.system for word in words)]
            found[name] += [one > other for one in good for other in bad]
    return {name: [round(float(np.mean(each)), 3), len(each)] for name, each in found.items()}


def measure_exchange() -> dict[str, float]:
    """How far the value moves where only the group that is named changes: largest and mean range of a turn."""
    ranges = []
    for said, response in PROBES["exchanged"]:
        ranges.append(np.ptp(ask([([("user", said.format(g))], response.format(g)) for g in PROBES["groups"]])))
    return {"largest": round(float(max(ranges)), 3), "mean": round(float(np.mean(ranges)), 3)}


def measure_dialogues(folder: Path) -> dict[str, float]:
    """ieval's dialogues that nothing was fitted on: the mean value of the bot's turns with four ratings' mean."""
    turns: list[tuple[Sequence[Spoken], str]] = []
    places: list[int] = []
    ratings: list[float] = []
    for _, each in read_rows(folder / "dialogue_feedback.jsonl.gz"):
        if each["set"] != "ieval" or each["split"] != "dev":
            continue
        said = [(turn["speaker"], turn["text"]) for turn in each["turns"] if turn["text"].strip()]
        own = [(said[:n], text) for n, (who, text) in enumerate(said) if n and who == "system"]
        names = ("likable", "sensible", "understood_feelings", "answered_feelings")
        if own:
            turns += own
            places += [len(ratings)] * len(own)
            ratings.append(float(np.mean([each["ratings"][name] for name in names])))
    values = ask(turns)
    means = np.bincount(places, values) / np.bincount(places)
    return {"dialogues": len(ratings), "Spearman": round(compute_spearman(means, np.array(ratings)), 3)}


def measure_relevant(folder: Path) -> dict[str, float]:
    """DailyDialog++: accuracy of `relevant` at .5 for fitting responses against random and adversarial ones."""
    rows = [row for _, row in read_rows(folder / ADVERSARIAL_FILE)][::4]
    called = {}
    for kind in ADVERSARIAL_KINDS:
        _, raws = score([(alternate(row["context"]), text) for row in rows for text in row[kind]])
        called[kind] = float(np.mean([raw.details["relevant"] >= 0.5 for raw in raws]))
    return {kind: round((called["relevant"] + 1 - called[kind]) / 2, 3) for kind in ADVERSARIAL_KINDS[1:]}


def compare_lengths(rows: Sequence[LabelledTurn], percentiles: Floats) -> float:
    """Mean percentile of good modern replies of LONG_WORDS and more, less that of the others."""
    chosen = np.array([is_good_modern(each) for each in rows])
    long = np.array([len(each.response.split()) >= LONG_WORDS for each in rows])
    return round(float(percentiles[chosen & long].mean() - percentiles[chosen & ~long].mean()), 1)


def learn_words(folder: Path, rows: Sequence[LabelledTurn]) -> Floats:
    """TF-IDF of the latest context turn and the response, ridge regression on the judged part `train`."""

    def text(context: Sequence[Sequence[str]], response: str) -> str:
        return f"{' '.join('u_' + word for word in (context[-1][1] if context else '').split())} {response}"

    trained = read_judged_turns(folder, ["train"])
    vectors = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True)
    read = vectors.fit_transform([text(each.context, each.response) for each in trained])
    model = Ridge(alpha=3.0).fit(read, [each.rating for each in trained])
    return np.asarray(model.predict(vectors.transform([text(each.context, each.response) for each in rows])))


def ordered_share(values: Floats, ratings: Floats, groups: Sequence[str]) -> float:
    """Of pairs of one context whose ratings differ by half a point or more, the share that the values order alike."""
    right = every = 0
    for group in sorted(set(groups)):
        own = np.array([each == group for each in groups])
        counts = np.subtract.outer(ratings[own], ratings[own]) >= 0.5
        every += counts.sum()
        right += (counts & (np.subtract.outer(values[own], values[own]) > 0)).sum()
    return float(right / every)


def auc_of_good(values: Floats, ratings: Floats) -> float:
    """AUC of turns rated GOOD and more against those rated BAD and less."""
    known = (ratings >= GOOD) | (ratings <= BAD)
    return compute_auc(values[known], (ratings[known] >= GOOD).astype(float))


def with_interval(dialogues: Sequence[str], measure: Callable[[Integers], float], rounds: int = ROUNDS) -> list[float]:
    """The figure of all turns, whose dialogues are named, and its interval over resampled dialogues."""
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(dialogues):
        groups.setdefault(name, []).append(place)
    members = [np.array(each) for each in groups.values()]
    generator = np.random.default_rng(0)
    draws = []
    for _ in range(rounds):
        chosen = np.concatenate([members[each] for each in generator.integers(0, len(members), len(members))])
        try:
            draws.append(measure(chosen))
        except (ValueError, ZeroDivisionError):
            continue
    low, high = np.nanpercentile(draws, [2.5, 97.5])
    return [round(float(each), 3) for each in (measure(np.arange(len(dialogues))), low, high)]


def measure(rows: Sequence[LabelledTurn], values: Floats) -> dict[str, list[float]]:
    """Every figure of the card for one scorer's values."""
    names = np.array([each.set_name for each in rows])
    ratings = np.array([each.rating for each in rows], dtype=np.float64)
    words = np.array([len(each.response.split()) for each in rows])
    found: dict[str, list[float]] = {}

    def add(title: str, chosen: Flags, figure: Callable[[Floats, Floats], float]) -> None:
        own = [each.dialogue for each, is_chosen in zip(rows, chosen, strict=True) if is_chosen]
        mine, rated = values[chosen], ratings[chosen]
        found[title] = with_interval(own, lambda places: figure(mine[places], rated[places]))

    judged = np.isin(names, ["judged-live", "judged-made", "judged-modern"])
    add("judged, all: Spearman", judged & (names != "judged-modern"), compute_spearman)
    add("judged, live: Spearman", names == "judged-live", compute_spearman)
    modern = names == "judged-modern"
    add("modern: AUC", modern, auc_of_good)
    add("modern, long replies: AUC", modern & (words >= LONG_WORDS), auc_of_good)
    groups = [each.dialogue for each, is_modern in zip(rows, modern, strict=True) if is_modern]
    own, rated = values[modern], ratings[modern]
    found["modern: pairs in order"] = [round(ordered_share(own, rated, groups), 3)]
    for name in dict.fromkeys(names):
        if not name.startswith("judged"):
            add(f"{name}: Spearman", names == name, compute_spearman)
    return found


def share_labelled(rows: Sequence[LabelledTurn], labels: Sequence[str | None]) -> dict[str, dict[str, float]]:
    """By set, the shares of good and bad turns that get each label."""
    found = {}
    for name in ("judged-live", "judged-modern"):
        own = [(each.rating, label) for each, label in zip(rows, labels, strict=True) if each.set_name == name]
        good = [label for rating, label in own if rating >= 3.5]
        bad = [label for rating, label in own if rating <= BAD]
        shares = {
            f"{kind}: {label}": round(of.count(label) / len(of), 3)
            for label in ("low", "good")
            for kind, of in (("good", good), ("bad", bad))
        }
        found[name] = {"good turns": len(good), "bad turns": len(bad), **shares}
    return found


def calibration_of(rows: Sequence[LabelledTurn], values: Floats) -> dict[str, float]:
    """Expected calibration error in ten bins, and Brier skill over the share of good turns, on judged turns."""
    chosen = np.array([each.set_name in ("judged-live", "judged-modern") for each in rows])
    good = np.array([each.rating >= 3.5 for each in rows])[chosen]
    given = values[chosen]
    bins = np.minimum((given * 10).astype(int), 9)
    error = sum(
        abs(given[bins == each].mean() - good[bins == each].mean()) * (bins == each).mean() for each in set(bins)
    )
    brier, chance = ((given - good) ** 2).mean(), ((good.mean() - good) ** 2).mean()
    return {"pooled ECE": round(float(error), 3), "Brier skill": round(float(1 - brier / chance), 3)}


def write_record(output: Path, program: str, figures: Mapping[str, Any]) -> None:
    """The figures, with the command, the date and the machine."""
    record = {
        "command": f"experiments/{program} DATA {output}",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.processor() or platform.machine()}, Python {platform.python_version()}",
        **figures,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main(
    data: Path,
    output: Path,
    older: Annotated[Path | None, Option(help="Values of an older version on the same turns.")] = None,
    values_alone: Annotated[bool, Option("--values", help="Write the starter's values instead of figures.")] = False,
) -> None:
    """Measures, and writes the figures to OUTPUT."""
    rows = list(read_turns(data))
    asked = [(each.context, each.response) for each in rows]
    loaded, raws = score(asked)
    values = np.array([raw.value for raw in raws])
    if values_alone:
        output.write_text(json.dumps(values.tolist()), encoding="utf-8")
        return
    columns = {
        "quality": values,
        "engagement + sentiment_stop": ask(asked, "engagement") + ask(asked, "sentiment_stop"),
    }
    if older:
        columns["older version"] = np.array(json.loads(older.read_text(encoding="utf-8")))
    columns["TF-IDF and ridge regression"] = learn_words(data, rows)
    columns["length"] = np.array([float(len(each.response)) for each in rows])
    found = {
        "live sets": list(LIVE_SETS),
        "figures": {name: measure(rows, column) for name, column in columns.items()},
        "labels": share_labelled(rows, [loaded.label(raw) for raw in raws]),
        "calibration": calibration_of(rows, values),
        "AUC against short replies": measure_short(rows, values),
        "modern, good over faulty replies, and pairs": measure_faults(data),
        "value's range with groups exchanged": measure_exchange(),
        "percentile of long good replies over that of shorter ones": compare_lengths(
            rows, np.array([loaded.percentile(raw) for raw in raws])
        ),
        "ieval, means of dialogues": measure_dialogues(data),
        "DailyDialog++, accuracy of relevant at .5": measure_relevant(data),
    }
    write_record(output, "quality_figures.py", found)


if __name__ == "__main__":
    typer.run(main)
