"""`turnscore train criterion`: from judged rows to a bundle of kind `criterion`, or the reason why there is none.

The head that ships is the one that was measured: it learns from the dialogues of the part `train`, and agreement,
thresholds and learning curve come from the others.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from turnscore_assessment.data.dialogues import STATED, draw_turns, read_population
from turnscore_assessment.figures import Flags, Floats, Interval, jsonable
from turnscore_assessment.judging.rubric import read_rubric
from turnscore_assessment.rendering import Page, Section, Table, to_markdown
from turnscore_core.loaded_scorer import choose_variant
from turnscore_core.scorers.criterion import CriterionOptions, CriterionScorer
from turnscore_core.scorers.quality import HEADS, read_heads
from turnscore_models.bundle import Bundle, encoder_digest, known_kinds, sha256_of
from turnscore_models.manifest import (
    CRITERION,
    NAME_PATTERN,
    VERSION_PATTERN,
    GraphSpec,
    GraphVariant,
    HeadsSpec,
    Manifest,
    SharedFiles,
    Threshold,
)
from turnscore_models.store import resolve

from turnscore_exporters.bundles.self_test import check_empty, open_examined, write_self_test
from turnscore_exporters.bundles.writer import calibrate, fresh_folder, write_draft
from turnscore_exporters.calibration import recalibration
from turnscore_exporters.criterion.deep import DeepFeatures, read_deep, train_deep
from turnscore_exporters.criterion.judgements import (
    HELD_OUT,
    MARK,
    PEOPLE,
    TRAIN,
    FeatureReader,
    Features,
    Judgements,
    read_judgements,
)
from turnscore_exporters.criterion.learning import HeldOut, LearningCurve, RidgeHead, draw_curve, fit_head
from turnscore_exporters.errors import ExporterError, ParityError
from turnscore_exporters.json_files import write_json
from turnscore_exporters.options import CriterionTrainOptions
from turnscore_exporters.quality.bundle import GRAPH
from turnscore_exporters.training.loop import describe_run

HEAD_FILE, CARD_FILE, LENGTH = "criterion.npz", "card.md", "length"
GOOD_FROM, BAD_UP_TO = 0.625, 0.375  # Of a mark as 0 to 1, as quality's thresholds: 3.5 and 2.5 of 5.
# Fewest rows, dialogues, and rows with another mark than the commonest, of each part. Chosen: with fewer, the interval
# of an agreement is wider than what there is to find.
LEAST: Mapping[str, tuple[int, int, int]] = {TRAIN: (100, 10, 15), HELD_OUT: (50, 10, 10)}
PARTS = {TRAIN: "to train on", HELD_OUT: "held out"}


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A head and what was measured of it on the held-out turns; `baselines` are agreements of simpler scores."""

    head: RidgeHead
    held: HeldOut
    scores: Floats  # Of the held-out turns.
    lengths: Floats  # Theirs, turned round where shorter ones are better.
    agreement: Interval
    baselines: Mapping[str, Interval]
    over_length: Interval
    curve: LearningCurve
    slope: float  # Of the calibrated value: the sigmoid of what the head gives times it, plus `bias`.
    bias: float
    deep: DeepFeatures | None = None  # The head's features, where it is one of --deep.
    choice: str = ""  # How the heads with and without --deep compare.

    def describe(self) -> Iterator[str]:
        """A line for each finding."""
        yield f"agreement on held-out dialogues ({self.held.measure}): {self.agreement}"
        for name, each in self.baselines.items():
            yield f"  {name}: {each}{', higher than the criterion' if each.value > self.agreement.value else ''}"
        yield f"learning curve: {', '.join(f'{each.rows} rows {each.agreement}' for each in self.curve.points)}"
        yield str(self.curve)

    def refuse_chance(self, name: str) -> None:
        """Raises ExporterError where the head may be no better than chance, or than the response's length."""
        reason = ""
        if not (self.agreement.low > self.held.chance and self.slope > 0):
            reason = f"which may be chance ({self.held.chance:g})"
        elif not self.over_length.low > 0:
            reason = f"which may be no better than the response's length (higher by {self.over_length})"
        if reason:
            raise ExporterError(
                f"{name} is not learned from these rows: {self.held.measure} on held-out dialogues is "
                f"{self.agreement}, {reason}; {self.curve}"
            )


def train_criterion(options: CriterionTrainOptions) -> Iterator[str]:
    """Writes the bundle into the empty or missing folder `output`, and says what was found as it goes.

    Raises ExporterError where the name is another scorer's, or the criterion cannot be learned; nothing is written.
    """
    output = options.output or Path("build") / f"{options.name}-{options.version}"
    _check_names(options)
    check_empty(output)
    mark = options.mark or options.name
    judged = read_judgements(options.files, mark, _read_scale(options.scale))
    description = _read_description(options, judged, mark)
    low, high = judged.scale
    yield (
        f"{len(judged.turns)} responses of {judged.dialogues} dialogues have marks of {mark}, {low:g} to {high:g}"
        + (" (a guess: the rows have no scales; --scale says it)" if judged.is_scale_guessed else "")
    )
    check_enough(judged, options.name)
    encoder = resolve(options.encoder)
    reader = FeatureReader(encoder, output.resolve().parent / "features")
    features = reader.read(judged.turns)
    learned = learn(judged, features, read_heads(reader.answer(features)))
    yield from learned.describe()
    if options.deep or options.keep_deep:
        yield "training the upper layers: a minute or more for 1,000 short responses"
        found = train_deep(reader.loaded, judged, features, output.resolve().parent / "features")
        learned = choose_deep(judged, learned, found, always=options.keep_deep)
        yield learned.choice
    learned.refuse_chance(options.name)
    reference, source = [], f"the judged responses themselves: {len(judged.turns)} of {judged.dialogues} dialogues"
    if options.data is not None:
        reference = draw_turns(read_population(options.data).turns, options.turns, seed=0)
        source = f"{STATED}: {len(reference)} of them"
    with fresh_folder(output, len(judged.turns), 1):
        draft = _write(options, output, encoder, judged, learned, description)
        scorer = CriterionScorer(draft, open_examined(draft, choose_variant(draft)))

        def score(rows: Features) -> Floats:
            return np.array([each.value for each in scorer.read_features([], rows)])

        deep = learned.deep
        values = score(features if deep is None else deep.features)
        thresholds = make_thresholds(values, judged, options.false_alarms)
        if reference:
            read = reader.read if deep is None else partial(read_deep, reader.loaded, deep)
            known = score(read(reference))
        else:
            # Of the responses that were trained on, the values by heads that did not see their dialogue; none of those
            # that the layers of --deep were trained on.
            is_known, unseen = np.ones(len(values), bool), values.copy()
            unseen[judged.part(TRAIN)] = 1 / (1 + np.exp(-(learned.head.crossed * learned.slope + learned.bias)))
            if learned.deep is not None:
                is_known[judged.part(TRAIN)] = learned.deep.is_left_out
            known = unseen[is_known]
            source = source if deep is None else f"the {len(known)} judged responses that --deep was not trained on"
        write_json(draft.path_of(draft.manifest.calibration), calibrate(known.tolist(), source))
        card = describe_card(options, judged, learned, thresholds, source, description)
        (output / CARD_FILE).write_text(to_markdown(card), encoding="utf-8")
        made = write_self_test(draft, draft.manifest.model_copy(update={**thresholds}), draft.self_test())
    yield describe_thresholds(thresholds, judged)
    yield f"{made.manifest.reference} written to {output}; {CARD_FILE} there says what it is worth"
    both = f"TURNSCORE_MODELS={options.encoder},"
    yield f"to serve it: {both}{output}/ turnscore serve"
    yield f"or from the store: turnscore models import {output} && {both}{options.name} turnscore serve"


def _check_names(options: CriterionTrainOptions) -> None:
    if not re.fullmatch(NAME_PATTERN, options.name):
        raise ExporterError(f"{options.name!r} is not a name: lower case letters, digits, _ and -, a letter first")
    if options.name in known_kinds():
        raise ExporterError(f"{options.name} is the name of another scorer; choose another --name, and give --mark")
    if not re.fullmatch(VERSION_PATTERN, options.version):
        raise ExporterError(f"{options.version!r} is not a version; give one such as 1.0.0")


def _read_scale(given: str | None) -> tuple[float, float] | None:
    if given is None:
        return None
    try:
        low, high = map(float, given.split(","))
    except ValueError:
        low = high = 0.0
    if not low < high:
        raise ExporterError(f"--scale is {given!r}; give the lowest and the highest mark, such as 1,5")
    return low, high


def _read_description(options: CriterionTrainOptions, judged: Judgements, mark: str) -> str:
    """The criterion in the rubric's words. Raises ExporterError for another rubric than the rows'."""
    if options.rubric is None:
        return ""
    rubric = read_rubric(options.rubric)
    name = mark.removeprefix(PEOPLE)
    if name not in rubric.criteria or judged.rubrics - {rubric.sha256}:
        raise ExporterError(f"{options.rubric}: not all rows were judged for {mark} by this rubric; leave --rubric out")
    return rubric.criteria[name].description


def check_enough(judged: Judgements, name: str) -> None:
    """Raises ExporterError where a part has too few rows, dialogues or rare marks, and says how many are needed."""
    for split, (rows, dialogues, rare) in LEAST.items():
        turns = [turn for turn in judged.turns if turn.split == split]
        _, counts = np.unique([turn.labels[MARK] for turn in turns], return_counts=True)
        others = len(turns) - int(counts.max(initial=0))
        for found, least, what in (
            (len(turns), rows, "judged responses"),
            (len({turn.dialogue for turn in turns}), dialogues, "dialogues"),
            (others, rare, "responses with another mark than the commonest"),
        ):
            if found < least:
                more = f"; {len(judged.turns) * least // found + 1} rows like these would have them" if found else ""
                raise ExporterError(
                    f"{name} cannot be learned: {found} {what} {PARTS[split]}, and at least {least} are needed{more}"
                )


def learn(judged: Judgements, features: Features, heads: Floats) -> Learned:
    """The head of the part that is trained on, and its agreement with the held-out marks next to simpler scores.

    `heads` [turns, heads] are what quality says of the turns.
    """
    train, held = judged.part(TRAIN), judged.part(HELD_OUT)
    wanted, dialogue_of = judged.wanted, judged.dialogue_of
    unseen, simple = HeldOut(wanted[held], dialogue_of[held]), score_baselines(judged, heads)
    made = _learn_head(judged, features, unseen, simple[LENGTH][held])
    own, numbered = features[train].astype(np.float64), np.unique(dialogue_of[train], return_inverse=True)[1]
    return Learned(
        **made,
        held=unseen,
        lengths=simple[LENGTH][held],
        baselines={name: unseen.compare(each[held]) for name, each in simple.items()},
        curve=draw_curve(own, wanted[train], numbered, unseen, features[held], made["head"]),
    )


def _learn_head(
    judged: Judgements,
    features: Features,
    held: HeldOut,
    lengths: Floats,
    calibrated_on: Flags | slice = slice(None),
) -> dict[str, Any]:
    """A head on these features, calibrated on those turns of the part that is trained on, and what it is worth."""
    train = judged.part(TRAIN)
    wanted = judged.wanted[train]
    head = fit_head(features[train].astype(np.float64), wanted, judged.dialogue_of[train])
    scores = head.predict(features[judged.part(HELD_OUT)])
    slope, bias = recalibration.fit_probability(head.crossed[calibrated_on], wanted[calibrated_on])
    return {
        "head": head,
        "scores": scores,
        "agreement": held.compare(scores),
        "over_length": held.compare(scores, lengths),
        "slope": round(slope, 4),
        "bias": round(bias, 4),
    }


def choose_deep(judged: Judgements, learned: Learned, found: DeepFeatures, *, always: bool) -> Learned:
    """The head of --deep where that is better on the held-out dialogues, or wanted `always`; `choice` says why."""
    # Calibrated on the dialogues that the layers were not trained on.
    own = _learn_head(judged, found.features, learned.held, learned.lengths, found.is_left_out)
    made = replace(learned, **own, baselines={"without --deep": learned.agreement, **learned.baselines}, deep=found)
    gain = made.held.compare(made.scores, learned.scores)
    said = f"--deep: {made.held.measure} {made.agreement}, without it {learned.agreement}, higher by {gain}"
    if gain.low > 0 or always:
        doubt = "" if gain.low > 0 else ", which may be none"
        return replace(made, choice=f"{said}{doubt}; it is kept, and takes a pass of its own for each turn")
    return replace(learned, choice=f"{said}, which may be none; what is kept is without it (--keep-deep keeps it)")


def score_baselines(judged: Judgements, heads: Floats) -> dict[str, Floats]:
    """Simpler scores of every turn: words and the nearest head fitted to the part that is trained on.

    Of length the direction is the one that agrees with the held-out marks.
    """
    train, held, wanted = judged.part(TRAIN), judged.part(HELD_OUT), judged.wanted
    responses = [turn.response for turn in judged.turns]

    def turn_round(scores: Floats, part: Flags) -> tuple[float, Floats]:
        own = HeldOut(wanted[part], judged.dialogue_of[part], rounds=0)
        above = own.agree(scores[part]) - own.chance
        return abs(above), scores if above >= 0 else -scores

    columns = {name: turn_round(heads[:, place], train) for place, name in enumerate(HEADS)}
    nearest = max(columns, key=lambda name: columns[name][0])
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    words.fit([each for each, is_trained in zip(responses, train, strict=True) if is_trained])
    read = words.transform(responses)
    model = recalibration.fit_logistic(read[np.flatnonzero(train)], wanted[train], strength=3.0)
    return {
        LENGTH: turn_round(np.array([float(len(each.split())) for each in responses]), held)[1],
        "TF-IDF and logistic regression": model.decision_function(read),
        f"quality's nearest head, {nearest}": columns[nearest][1],
    }


def _write(
    options: CriterionTrainOptions,
    output: Path,
    encoder: Bundle,
    judged: Judgements,
    learned: Learned,
    description: str,
) -> Bundle:
    """The bundle without thresholds, with a self-test and percentiles that say nothing yet."""
    older, head = encoder.manifest, learned.head
    weights = head.weights.astype(np.float32)
    path = output / HEAD_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, weights=weights, bias=np.float32(head.bias))
    graphs, encoders = older.graphs, older.heads[older.kind].encoders
    shared = [file for graph in graphs.values() for file in graph.files]
    if learned.deep is not None:
        graphs, encoders, shared = _write_joint_graph(output, older, learned)
    spec = HeadsSpec(
        file=HEAD_FILE,
        sha256=sha256_of(path),
        encoders=encoders,
        outputs=["value"],
        parity_measured={"max_abs": float(np.abs(weights - head.weights).max())},
    )
    described = CriterionOptions.model_validate(
        {
            "layout": older.options["layout"],
            "calibrated": {"slope": learned.slope, "bias": learned.bias},
            "scale": judged.scale,
            "description": description,
            "language": older.options.get("language", "en"),
        }
    )
    report = {
        "measure": learned.held.measure,
        "agreement": learned.agreement,
        "baselines": learned.baselines,
        "over_length": learned.over_length,
        "curve": learned.curve,
    }
    lender = older.name if older.shared is None else older.shared.bundle
    manifest = Manifest(
        name=options.name,
        version=options.version,
        kind=CRITERION,
        files=older.files,
        graphs=graphs,
        heads={CRITERION: spec},
        shared=SharedFiles(bundle=lender, files=[*shared, older.tokenizer]),
        tokenizer=older.tokenizer,
        calibration=older.calibration,
        self_test=older.self_test,
        token_limit=older.token_limit,
        options=described.model_dump(mode="json"),
        training=describe_run(
            _command_of(options),
            encoder=older.reference,
            data=[path.name for path in options.files],
            rubric=", ".join(sorted(judged.rubrics)),
            judges=sorted(judged.judges),
            rows={split: int(judged.part(split).sum()) for split in PARTS},
            penalty=head.penalty,
            deep=None if learned.deep is None else learned.deep.recipe,
        ),
        agreement={"report": jsonable(report)},
        licence=options.licence,
    )
    return write_draft(output, manifest, encoder.lenders or [encoder.folder])


def _write_joint_graph(
    output: Path, older: Manifest, learned: Learned
) -> tuple[dict[GraphVariant, GraphSpec], list[str], list[str]]:
    """The bundle's own second graph: the graphs, the encoders that its head is for, and which graphs are shared.

    Raises ParityError where int8 moves a value by more than the encoder's own graph may.
    """
    assert learned.deep is not None
    spec = older.graphs[GRAPH]
    assert spec.joint is not None
    measured = learned.deep.measure_parity(learned.head, learned.slope, learned.bias)
    if not measured["max_abs"] <= spec.parity_tolerance:
        raise ParityError(f"int8 moves a value of --deep by {measured['max_abs']:.3f}, above {spec.parity_tolerance:g}")
    own = output / spec.joint.file
    own.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(learned.deep.joint_file, own)
    graphs: dict[GraphVariant, GraphSpec] = {GRAPH: spec.model_copy(update={"parity_measured": measured})}
    return graphs, [encoder_digest(older.files[spec.file], sha256_of(own))], [spec.file]


def _command_of(options: CriterionTrainOptions) -> str:
    given = {"mark": options.mark, "scale": options.scale, "encoder": options.encoder, "data": options.data and "DATA"}
    named = " ".join(f"--{name} {value}" for name, value in given.items() if value not in (None, "quality"))
    named += " --keep-deep" if options.keep_deep else " --deep" if options.deep else ""
    files = " ".join(path.name for path in options.files)
    return f"turnscore train criterion {files} --name {options.name} --version {options.version} {named}".strip()


def make_thresholds(values: Floats, judged: Judgements, rate: float) -> dict[str, Threshold]:
    """Both thresholds, from the held-out turns, with the promise that these allow; none where they allow none."""
    held, (good, bad) = judged.part(HELD_OUT), _split_held_out(judged)
    known = good | bad
    dialogues = len(np.unique(judged.dialogue_of[held]))
    source = f"held-out responses of {dialogues} dialogues: {good.sum()} good and {bad.sum()} bad ones"
    try:
        rates = [recalibration.choose_rate(int(called.sum()), rate) for called in (good, bad)]
    except ExporterError:
        return {}
    low = recalibration.make_threshold(values[known].tolist(), good[known].tolist(), rates[0], source)
    high = recalibration.make_good_threshold(values[known].tolist(), good[known].tolist(), rates[1], source)
    if high.value < low.value:  # No value may be both low and good; the promise holds all the more.
        high = high.model_copy(
            update={"value": low.value, "recall": recalibration.measure_share(values[good] >= low.value)}
        )
    return {"threshold": low, "good_threshold": high}


def _split_held_out(judged: Judgements) -> tuple[Flags, Flags]:
    """Which turns are held out and good, and which held out and bad."""
    held = judged.part(HELD_OUT)
    return held & (judged.wanted >= GOOD_FROM), held & (judged.wanted <= BAD_UP_TO)


def describe_thresholds(thresholds: Mapping[str, Threshold], judged: Judgements) -> str:
    """What the labels promise, or how many held-out turns they lack."""
    if not thresholds:
        good, bad = (int(called.sum()) for called in _split_held_out(judged))
        return f"no label: {good} good and {bad} bad responses are held out. {recalibration.describe_promises()}"
    low, high = thresholds["threshold"], thresholds["good_threshold"]
    called = np.logical_or(*_split_held_out(judged))
    sharing = int(called.sum()) - len(np.unique(judged.dialogue_of[called]))
    warning = f". {recalibration.describe_sharing(sharing)}" if sharing else ""
    found = [each.recall for each in (low, high)]
    shares = ["?" if each is None else f"{each.share:.0%} [{each.low:.0%}, {each.high:.0%}]" for each in found]
    return (
        f"low below {low.value:.3f}, which at most {low.false_alarm_rate:.0%} of good responses are "
        f"({recalibration.CONFIDENCE:.0%} confidence) and {shares[0]} of bad ones; good from {high.value:.3f}, which "
        f"at most {high.false_alarm_rate:.0%} of bad ones are and {shares[1]} of good ones{warning}"
    )


def describe_card(
    options: CriterionTrainOptions, judged: Judgements, learned: Learned, thresholds: Mapping[str, Threshold],
    source: str, description: str,
) -> Page:  # fmt: skip
    """The bundle's card."""
    low, high = judged.scale
    rows = {name: int(judged.part(split).sum()) for split, name in PARTS.items()}
    measure = learned.held.measure
    agreements = [[options.name, learned.agreement], *learned.baselines.items()]
    curve = [[each.rows, each.draws, each.agreement] for each in learned.curve.points]
    gain = str(learned.curve)
    return Page(
        title=f"Criterion {options.name}, version {options.version}",
        summary=[
            description or "The rubric was not given (--rubric).",
            f"`value` from 0 to 1 is where its judges would put a response on their scale from {low:g} to {high:g}. "
            f"It is worth what the judges are: {', '.join(sorted(judged.judges)) or 'not named in the rows'}.",
        ],
        sections=[
            Section(
                "Agreement with the judges",
                [
                    f"{' and '.join(f'{count} responses {name}' for name, count in rows.items())}, by dialogue.",
                    *([f"{learned.choice}."] if learned.choice else []),
                ],
                [
                    Table(
                        f"{measure} on held-out dialogues, 95 % interval ({learned.held.chance:g} is chance)",
                        ["score", measure],
                        agreements,
                    )
                ],
            ),
            Section(
                "Would more judgements help?",
                [f"{gain[:1].upper()}{gain[1:]}."],
                [Table("Heads (without --deep) learned from fewer rows", ["rows", "draws", measure], curve)],
            ),
            Section("Labels", [f"{describe_thresholds(thresholds, judged).rstrip('.')}."]),
            Section(
                "Limits",
                [
                    f"Percentiles are among {source}.",
                    "The encoder reads the latest three turns of the context, and of a long response the beginning and "
                    "the end; it knows no facts. Other users, topics or languages than those of the rows are "
                    "unmeasured: judge some of them, and train again.",
                ],
            ),
        ],
        command=_command_of(options),
    )
