"""Loading: a bundle becomes a scorer that has checked itself, or is refused with a sentence that says why."""

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import entry_points
from itertools import chain
from typing import cast

from turnscore_models.bundle import SCORER_ENTRY_POINTS, Bundle, private_copy
from turnscore_models.manifest import (
    GraphSpec,
    GraphVariant,
    JointSpec,
    MismatchedGraphError,
    SelfTestTurn,
    UnknownKindError,
)
from turnscore_wire import Label, Speaker, Turn

from turnscore_core.batches import BatchBudget, PackCollector
from turnscore_core.inference.concurrency import Concurrency, candidates, choose, take_sample
from turnscore_core.inference.cuda_backend import CudaBackend, CudaOptions
from turnscore_core.inference.devices import CPU, Device
from turnscore_core.inference.onnx_backend import Backend, OnnxBackend, Tensor, load_onnxruntime
from turnscore_core.scorers.scorer import PERCENTILE_SUFFIX, RawScore, Scorer, TurnToScore, count_chars, interpolate


def read_turn(each: SelfTestTurn) -> TurnToScore:
    """The turn as it is scored: by the bundle's default options."""
    return TurnToScore([Turn(speaker=speaker, text=text) for speaker, text in each.context], each.response)


def score_in_one_batch(scorer: Scorer, turns: Sequence[TurnToScore]) -> list[RawScore]:
    """The turns' scores, in order. Raises what the scorer does."""
    packs = scorer.encode(turns)
    scores, collector = iter(scorer.score(packs)), PackCollector(scorer)
    found = dict(chain.from_iterable(collector.take(pack, [next(scores) for _ in pack.answers]) for pack in packs))
    return [cast("RawScore", found[place]) for place in range(len(turns))]


def run_self_test(bundle: Bundle, variant: GraphVariant, scorer: Scorer) -> None:
    """Warms the runtime up and proves that this machine computes what the exporting machine did.

    Raises MismatchedGraphError where the graph does not run, or where the value or a detail of a turn is missing, is
    no number, or is off by more than the tolerance.
    """
    test = bundle.self_test()
    where = f"bundle {bundle.manifest.reference}: {bundle.manifest.graphs[variant].file}"
    try:
        scores = score_in_one_batch(scorer, [read_turn(each) for each in test.turns])
    except Exception as error:
        raise MismatchedGraphError(f"{where} does not run: {error}") from error
    own = test.tolerances.get(variant)
    tolerance = bundle.manifest.graphs[variant].parity_tolerance if own is None else own
    for place, (turn, score) in enumerate(zip(test.turns, scores, strict=True)):
        for name, expected, found in _figures(turn, None if own is None else variant, score):
            if expected is None or found is None or not abs(found - expected) <= tolerance:
                raise MismatchedGraphError(
                    f"{where} gives self-test turn {place} the {name} {_shorten(found)}, "
                    f"{'its checkpoint' if own is None else 'when it was exported'} {_shorten(expected)}; "
                    f"the tolerance is {tolerance:g}"
                )


def _figures(
    turn: SelfTestTurn, variant: GraphVariant | None, score: RawScore
) -> Iterator[tuple[str, float | None, float | None]]:
    """Name, expected and found, of everything that is compared; without a variant, the checkpoint's value alone."""
    if variant is None:
        yield "value", turn.value, score.value
        return
    expected = turn.graphs[variant]
    yield "value", expected.value, score.value
    for name, value in expected.details.items():
        yield name, value, score.details.get(name)


def _shorten(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.4f}"


_ROUNDS = 5  # of which the shortest time counts: another process can only make it longer
# Of the text whose time for a character is measured. Chosen: what the turn itself takes hardly counts in it.
_LONG_CHARS = 2000


@dataclass(frozen=True, slots=True)
class TokenizingPace:
    """Seconds for a turn, and for each character of what the scorer reads. Infinite without a measurement."""

    seconds_per_turn: float = math.inf
    seconds_per_char: float = 0.0

    def seconds(self, turns: int, chars: int) -> float:
        """Seconds that the turns, of so many characters together, take; more rather than less."""
        return turns * self.seconds_per_turn + chars * self.seconds_per_char


def measure_tokenizing(scorer: Scorer, turns: Sequence[TurnToScore]) -> TokenizingPace:
    """The pace for the shortest of these turns, and for a long one made of their responses.

    Their letters are turned round: a text of plain words takes a tenth of that, and callers may send any text.
    """
    shortest = min(turns, key=lambda turn: count_chars(scorer.inputs_of(turn)))
    text = " ".join(turn.response for turn in turns)[::-1]
    text = " ".join([text] * math.ceil(_LONG_CHARS / len(text)))
    long = TurnToScore([Turn(speaker="user", text=text)], text, options=shortest.options)
    shortest = shortest.trimmed(shortest.context, shortest.response[::-1], is_cut=False)
    return TokenizingPace(_seconds(scorer, shortest), _seconds(scorer, long) / count_chars(scorer.inputs_of(long)))


def _seconds(scorer: Scorer, turn: TurnToScore) -> float:
    took = []
    for _ in range(_ROUNDS):
        started_at = time.perf_counter()
        scorer.encode([turn])
        took.append(time.perf_counter() - started_at)
    return min(took)


MOST_REASONS, REASON_PERCENTILE = 2, 25.0

_PREFERENCE: dict[str, tuple[GraphVariant, ...]] = {"cpu": ("cpu-int8", "fp32"), "cuda": ("cuda-fp16", "fp32")}


@dataclass(frozen=True, kw_only=True)
class LoadedScorer:
    """A scorer, the bundle it came from and the graph it runs."""

    scorer: Scorer
    bundle: Bundle
    variant: GraphVariant
    percentiles: tuple[float, ...]
    concurrency: Concurrency = field(default_factory=Concurrency)
    # A turn that this scorer is known to score.
    sample: TurnToScore = field(default_factory=lambda: TurnToScore([], "ok"))
    tested: tuple[TurnToScore, ...] = ()  # the turns of its self-test
    device: Device = CPU
    budget: BatchBudget = field(default_factory=BatchBudget)
    tokenizing: TokenizingPace = field(default_factory=TokenizingPace)
    code_version: str = ""  # distribution and version of the code that scores, and of its runtime
    threshold: float | None = None  # below it a turn is called low
    good_threshold: float | None = None  # from it on a turn is called good; one below the other threshold is not
    alias: str = ""  # the name under which it works next to the served scorer of its kind; empty for that one

    @cached_property
    def kind(self) -> str:
        """The name callers ask for: the bundle's kind, or the name of a criterion."""
        return self.bundle.manifest.scorer

    @cached_property
    def name(self) -> str:
        """The name under which it works, of which a process has one alone: its alias, else its kind."""
        return self.alias or self.kind

    @cached_property
    def model(self) -> str:
        """The bundle, as `name:version`."""
        return self.bundle.manifest.reference

    @property
    def first_graph_digest(self) -> str:
        """Of the first graph and what the second takes of it; all else may differ."""
        spec, files = self.bundle.manifest.graphs[self.variant], self.bundle.manifest.files
        taken = sorted(each.name for each in spec.joint.inputs) if spec.joint else []
        return " ".join([digest for name, digest in files.items() if name.startswith(spec.file)] + taken)

    @cached_property
    def pass_key(self) -> str:
        """Equal for scorers that one pass over the same packs answers for (`Scorer.pass_key`)."""
        if not self.scorer.pass_key:
            return f"{self.name} {self.bundle.digest}"
        manifest = self.bundle.manifest
        files = (*manifest.graphs[self.variant].files, manifest.tokenizer)
        digests = (digest for name, digest in sorted(manifest.files.items()) if name.startswith(files))
        # One object for all: it is a key that is looked up once a score, and equal strings take long to compare.
        return sys.intern(" ".join((*digests, str(self.device), self.scorer.pass_key)))

    def percentile(self, raw: RawScore) -> float | None:
        """Share of the reference turns, 0 to 100, that score lower; linear between whole percentiles.

        None where no reference turn was scored as this one was.
        """
        if raw.percentile is not None or not raw.is_comparable:
            return raw.percentile
        return interpolate(raw.value, self.percentiles)

    def label(self, raw: RawScore) -> Label | None:
        """On which side of the thresholds the value is; None without any, and where none fits what was asked."""
        if self.threshold is None or not raw.is_comparable:
            return None
        if raw.value < self.threshold:
            return "low"
        return "fair" if self.good_threshold is None or raw.value < self.good_threshold else "good"

    def reasons(self, raw: RawScore, label: Label | None) -> list[str]:
        """The heads that pull the value down most, at most two; none for a turn that is good."""
        if label == "good":
            return []
        low = []
        for name in self.scorer.reason_heads:
            percentile = raw.details.get(f"{name}{PERCENTILE_SUFFIX}", 100.0)
            if percentile < REASON_PERCENTILE:
                low.append((percentile, name))
        return [name for _, name in sorted(low)[:MOST_REASONS]]

    @property
    def speaker(self) -> Speaker:
        """Whose turns it scores."""
        return self.scorer.speaker

    def signals(self, raw: RawScore) -> list[str]:
        """What the turn shows, the most probable first."""
        least, found = self.scorer.signal_thresholds, raw.details
        shown = [name for name, threshold in least.items() if found.get(name, 0.0) >= threshold]
        return sorted(shown, key=lambda name: -found[name])

    @property
    def threshold_percentile(self) -> float | None:
        """The percentile of a score that is the threshold; None without one."""
        return None if self.threshold is None else self.percentile(RawScore(self.threshold))

    def run_sample(self) -> None:
        """Scores one known turn; raises what fails."""
        self.scorer.score(self.scorer.encode([self.sample]))


def choose_graph(bundle: Bundle, devices: Sequence[Device]) -> tuple[GraphVariant, Device]:
    """The bundle's graph for the first of the devices, best first, that it has one for.

    Raises MismatchedGraphError where it has none for any of them.
    """
    for device in devices:
        for variant in _PREFERENCE[device.kind]:
            if variant in bundle.manifest.graphs:
                return variant, device
    wanted = " or ".join(dict.fromkeys(each for device in devices for each in _PREFERENCE[device.kind]))
    raise MismatchedGraphError(
        f"bundle {bundle.manifest.reference} has no graph for {' or '.join(map(str, devices))} ({wanted}); it has "
        f"{', '.join(bundle.manifest.graphs)}: export one with turnscore export --graph, or choose another device"
    )


def choose_variant(bundle: Bundle) -> GraphVariant:
    """The bundle's graph for a CPU. Raises MismatchedGraphError where it has none."""
    return choose_graph(bundle, [CPU])[0]


def load_scorer(
    bundle: Bundle,
    variant: GraphVariant,
    *,
    threads: int = 1,
    device: Device = CPU,
) -> LoadedScorer:
    """As `load_checked`, in one slot of so many threads, and measures how fast it tokenizes."""
    return measure_pace(load_checked(bundle, variant, concurrency=Concurrency(threads=threads), device=device))


# What has passed its self-test here would pass it again: the digest covers every file.
_PASSED: set[tuple[str, GraphVariant, Device, str, Concurrency]] = set()


def load_checked(
    bundle: Bundle,
    variant: GraphVariant,
    *,
    concurrency: Concurrency,
    running: list[None] | None = None,
    device: Device = CPU,
    cuda: CudaOptions | None = None,
    is_checked: bool = False,
) -> LoadedScorer:
    """Loads one graph of a checked bundle, compares it with the manifest and scores the self-test turns.

    All of it is read from a private copy that is hashed against the bundle's manifest in memory, so that what is served
    is what was checked, or checked, under that digest.
    Measures nothing, so that several may be loaded at once. One that `is_checked` has passed its self-test in another
    process of this machine, and is spared it, as is one that passed it here in as many slots and threads. Raises
    MismatchedGraphError where the graph does not load, its inputs or outputs differ from the manifest's, or it scores a
    self-test turn otherwise than when it was exported; UnknownKindError where no scorer reads the kind; DeviceError
    where the graph does not run on `device`.
    """
    with private_copy(bundle) as copied:
        scorer, code_version = _open(copied, variant, concurrency, running, device, cuda)
        tested = (bundle.digest, variant, device, code_version, concurrency)
        if not is_checked and tested not in _PASSED:
            run_self_test(copied, variant, scorer)
            _PASSED.add(tested)
        calibration, self_test = copied.calibration(), copied.self_test()
    return LoadedScorer(
        scorer=scorer,
        bundle=bundle,
        variant=variant,
        percentiles=tuple(calibration.percentiles),
        concurrency=concurrency,
        sample=read_turn(self_test.turns[0]),
        tested=tuple(read_turn(each) for each in self_test.turns),
        device=device,
        code_version=code_version,
        threshold=None if bundle.manifest.threshold is None else bundle.manifest.threshold.value,
        good_threshold=None if bundle.manifest.good_threshold is None else bundle.manifest.good_threshold.value,
    )


def measure_pace(loaded: LoadedScorer) -> LoadedScorer:
    """The scorer with what it takes to tokenize, measured on its self-test turns: nothing else should run meanwhile."""
    return replace(loaded, tokenizing=measure_tokenizing(loaded.scorer, loaded.tested))


def measure_concurrency(checked: LoadedScorer, cpus: int) -> Concurrency:
    """The concurrency that serves this graph best on that many CPUs, on one of which it was checked.

    Takes under a second a candidate. Measured on the self-test turn of median length. Raises as `load_checked`.
    """
    if cpus == 1:
        return Concurrency()
    packs = checked.scorer.encode(checked.tested)
    typical = sorted(packs, key=lambda pack: pack.real_tokens)[len(packs) // 2]
    samples = {}
    for threads in candidates(cpus):
        scorer = checked.scorer
        if threads != checked.concurrency.threads:
            with private_copy(checked.bundle) as copied:
                scorer, _ = _open(copied, checked.variant, Concurrency(threads=threads))
        samples[threads] = take_sample(partial(scorer.score, [typical]), max(1, cpus // threads))
    return choose(samples, cpus)


def _open(
    bundle: Bundle,
    variant: GraphVariant,
    concurrency: Concurrency,
    running: list[None] | None = None,
    device: Device = CPU,
    cuda: CudaOptions | None = None,
) -> tuple[Scorer, str]:
    """The scorer, which has scored nothing yet, and which code it is."""
    spec = bundle.manifest.graphs[variant]
    try:
        graph, joint = bundle.path_of(spec.file), None if spec.joint is None else bundle.path_of(spec.joint.file)
        threads, wide_threads = concurrency.threads, concurrency.wide_threads
        backend: Backend = (
            OnnxBackend(graph, threads=threads, wide_threads=wide_threads, running=running, joint=joint)
            if device == CPU
            else CudaBackend(graph, device, cuda or CudaOptions(), joint=joint)
        )
        scorer_class, code_version = find_scorer(bundle.manifest.kind)
        scorer = scorer_class(bundle, backend)
    except RuntimeError as error:
        raise MismatchedGraphError(f"bundle {bundle.manifest.reference}: {error}") from error
    _compare_tensors(bundle, spec, backend)
    if spec.joint is not None and backend.joint is not None:
        _compare_tensors(bundle, spec.joint, backend.joint)
    return scorer, code_version


def find_scorer(kind: str) -> tuple[type[Scorer], str]:
    """The scorer of that kind, and which code it is. Raises UnknownKindError."""
    for entry in entry_points(group=SCORER_ENTRY_POINTS, name=kind):
        code = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        return cast("type[Scorer]", entry.load()), f"{code}, onnxruntime {load_onnxruntime().__version__}"
    raise UnknownKindError(f"no installed scorer reads bundles of kind {kind!r}")


def _compare_tensors(bundle: Bundle, spec: GraphSpec | JointSpec, backend: Backend) -> None:
    for role, promised, found in (("input", spec.inputs, backend.inputs), ("output", spec.outputs, backend.outputs)):
        wanted = sorted((each.name, each.dtype, len(each.shape)) for each in promised)
        got = sorted((each.name, each.dtype, len(each.shape)) for each in found)
        if wanted != got:
            raise MismatchedGraphError(
                f"bundle {bundle.manifest.reference}: {spec.file} has the {role}s {_names(found)}, "
                f"the manifest promises {', '.join(each.name for each in promised)} of other types or ranks"
            )


def _names(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{each.name} {each.dtype}" for each in tensors)
