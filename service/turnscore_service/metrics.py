"""Metrics: every series turnscore exports, defined once. docs/metrics.md is compared with this file by a test."""

import os
from functools import partial
from pathlib import Path

import psutil
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from turnscore_core.kept_vectors import VectorCounts

from turnscore_service._patches import bentoml_metrics as metrics_folder
from turnscore_service._patches.prometheus_series import Counter, Gauge, Histogram, TallyCounter, buffer_files
from turnscore_service._patches.prometheus_series import write_out as write_out

metrics_folder.claim_folder()  # before the first series, which opens its file
buffer_files()

_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PERCENTILE_BOUNDS = tuple(range(10, 101, 10))
_SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75)
_LIVE = ["scorer", "model", "tenant"]
_SHADOWED = ["scorer", "model", "served"]
_sum_of_workers = partial(Gauge, multiprocess_mode="livesum")
_seconds = partial(Histogram, buckets=_SECONDS)

REQUESTS = Counter(
    "turnscore_requests_total",
    "Calls of the API. The code is `ok`, the error's code, or `departed` if the caller left.",
    ["transport", "call", "code"],
)
REQUEST_SECONDS = _seconds(
    "turnscore_request_seconds", "Time from the first byte read to the finished reply.", ["transport", "call"]
)
KEY_TURNS = Counter(
    "turnscore_key_turns_total",
    "Turns of callers with an API key, by the key's name and whether its rate `allowed` or `refused` them.",
    ["key", "outcome"],
)
KEY_LOCAL_REQUESTS = Counter(
    "turnscore_key_local_requests_total",
    "Requests of a key with a rate that one worker's share of it bounded, because the shared Redis did not answer.",
    ["key"],
)
KEY_FILE_ERRORS = Counter(
    "turnscore_key_file_errors_total",
    "Times that the changed file of API keys could not be read; the keys stayed as they were.",
)
ITEMS = Counter(
    "turnscore_items_total",
    "Turns by scorer, bundle and outcome: scored, failed, expired or departed.",
    ["scorer", "model", "outcome"],
)
WASTED_ITEMS = Counter(
    "turnscore_wasted_items_total",
    "Turns whose result was not used: while their batch ran, their caller left or their time ran out.",
    ["scorer"],
)
ADMITTED_ITEMS = Counter("turnscore_admitted_items_total", "Turns admitted.", ["scorer"])
REFUSED_ITEMS = Counter(
    "turnscore_refused_items_total",
    "Turns refused by reason: `full` (there was no room) or `deadline` (the queue was longer than the caller's time).",
    ["scorer", "reason"],
)
SHED = Counter(
    "turnscore_requests_shed_total",
    "Calls with code `overloaded` that were refused before they were decoded, because all calls "
    "before them had been refused.",
    ["transport", "call"],
)
ITEMS_IN_FLIGHT = _sum_of_workers("turnscore_items_in_flight", "Turns admitted and not yet answered.", ["scorer"])
TOKENS_IN_FLIGHT = _sum_of_workers("turnscore_tokens_in_flight", "Estimated tokens of the turns in flight.", ["scorer"])
QUEUED_ITEMS = _sum_of_workers("turnscore_queued_items", "Turns waiting for a place in a batch.", ["scorer"])
QUEUED_TOKENS = _sum_of_workers(
    "turnscore_queued_tokens", "Their tokens; on a CPU, six kept ones count as one.", ["scorer"]
)
RUNNING_BATCHES = _sum_of_workers("turnscore_running_batches", "Batches in the runtime.", ["scorer"])
CONCURRENT_BATCHES = _sum_of_workers("turnscore_concurrent_batches", "Batches that may run at once.", ["scorer"])
STAGE_DEATHS = Counter(
    "turnscore_stage_deaths_total", "Times a stage hung or broke, failed its callers and was replaced.", ["stage"]
)
OUT_OF_MEMORY = Counter(
    "turnscore_out_of_memory_batches_total",
    "Batches that found too little memory on their device; the service scores their halves.",
    ["scorer"],
)
TOKENIZE_SECONDS = _seconds(
    "turnscore_tokenize_seconds", "Time to turn the turns of one request into tokens.", ["scorer"]
)
QUEUE_SECONDS = _seconds("turnscore_queue_seconds", "Time that a turn waits for a place in a batch.", ["scorer"])
INFERENCE_SECONDS = _seconds("turnscore_inference_seconds", "Time of one batch in the runtime.", ["scorer"])
BATCH_ITEMS = Histogram("turnscore_batch_items", "Turns in one batch.", ["scorer"], buckets=_COUNTS)
BATCH_TOKENS = Histogram("turnscore_batch_tokens", "Tokens in one batch, with padding.", ["scorer"], buckets=_TOKENS)
BATCH_PADDING = Histogram(
    "turnscore_batch_padding_ratio", "Share of a batch that was padding.", ["scorer"], buckets=_SHARES
)
OPEN_CONVERSATIONS = _sum_of_workers("turnscore_open_conversations", "Live conversations open at this moment.")
CONVERSATION_TURNS = Counter(
    "turnscore_conversation_turns_total",
    "Messages of live conversations by outcome: acknowledged (no scorer is asked of it), scored, failed or refused.",
    ["outcome"],
)
CONVERSATION_TURN_SECONDS = _seconds("turnscore_conversation_turn_seconds", "Time from a turn's arrival to its scores.")
CACHE_HITS = Counter(
    "turnscore_cache_hits_total",
    "Turns whose whole score was in the cache, by the level that completed it: local or shared.",
    ["scorer", "level"],
)
CACHE_MISSES = TallyCounter(
    "turnscore_cache_misses_total",
    "Turns of which something had to be computed, by cause: absent, partial (some qualities "
    "were found), stale, unreadable, unavailable (the shared level gave no answer), or bypass and refresh as "
    "the request asked.",
    ["scorer", "cause"],
)
CACHE_JOINS = Counter(
    "turnscore_cache_joins_total", "Turns that waited for an equal turn that was being computed.", ["scorer"]
)
CACHE_ERRORS = Counter(
    "turnscore_cache_errors_total",
    "Failed round trips to the shared cache, and single writes that it refused, by operation "
    "(read, write, budget, and `probe_` with each) and cause: timeout, connection, garbage, full, read_only, "
    "failing_over, loading, forbidden, refused or other.",
    ["operation", "cause"],
)
CACHE_SECONDS = _seconds(
    "turnscore_cache_seconds", "Time of one round trip to the shared cache, for everything in it.", ["operation"]
)
CACHE_BREAKER = Gauge(
    "turnscore_cache_breaker_state",
    "Use of the shared cache: 0 closed (in use), 1 half open (being probed), 2 open (not in "
    "use); of the worker that is worst off.",
    ["operation"],
    multiprocess_mode="livemax",
)
CACHE_DROPPED_WRITES = Counter(
    "turnscore_cache_dropped_writes_total",
    "Scores that were not written to the shared cache: full (too many waited) or open (the cache was not in use).",
    ["cause"],
)
CACHE_LOCAL_BYTES = _sum_of_workers("turnscore_cache_local_bytes", "Memory of the cache in the process.")
KEPT_VECTOR_BYTES = _sum_of_workers(
    "turnscore_kept_vector_bytes", "Memory of what models computed of single texts and may use again."
)
KEPT_VECTOR_HITS = Counter(
    "turnscore_kept_vector_hits_total",
    "Texts whose vectors were kept and used again, by the role in which they were read: response, context or older.",
    ["role"],
)
KEPT_VECTOR_MISSES = Counter(
    "turnscore_kept_vector_misses_total", "Texts that were read by a model, by their role.", ["role"]
)
KEPT_VECTOR_EVICTIONS = Counter("turnscore_kept_vector_evictions_total", "Vectors evicted.")
SCORE_PERCENTILE = Histogram(
    "turnscore_score_percentile",
    "Percentiles of live turns among the bundle's reference turns; without those that have none.",
    _LIVE,
    buckets=PERCENTILE_BOUNDS,
)
LIVE_TURNS = TallyCounter(
    "turnscore_live_turns_total",
    "Live turns that were scored, by label: low, fair, good, or none (no threshold). Candidates of `rank` do not "
    "count.",
    [*_LIVE, "label"],
)
LIVE_DIALOGUES = TallyCounter(
    "turnscore_live_dialogues_total",
    "Dialogues: live turns that were scored and have no turn of the system before them.",
    _LIVE,
)
CUT_TURNS = TallyCounter(
    "turnscore_cut_turns_total", "Live turns of which the scorer did not read all that it would.", _LIVE
)
WARNED_TURNS = TallyCounter(
    "turnscore_warned_turns_total",
    "Live turns whose score carries a warning, by warning: those of the reply, such as `not_in_language`.",
    [*_LIVE, "warning"],
)
USER_SIGNALS = Counter(
    "turnscore_user_signals_total",
    "Live turns of users that show a signal, by signal: those of the reply, such as `frustrated`.",
    [*_LIVE, "signal"],
)
NOT_COMPUTABLE_TURNS = TallyCounter(
    "turnscore_not_computable_turns_total",
    "Live turns without a score because what the model gave is not a number.",
    _LIVE,
)
LIVE_TOKENS = TallyCounter(
    "turnscore_live_tokens_total",
    "Tokens that the scorer made of live turns and their contexts; not of scores from the cache, nor of more than "
    "16 turns.",
    _LIVE,
)
LIVE_CHARS = TallyCounter("turnscore_live_chars_total", "Characters that became those tokens.", _LIVE)
SHADOW_TURNS = Counter(
    "turnscore_shadow_turns_total",
    "Live turns that were drawn for a shadow, by outcome: compared, failed, or dropped because too many waited (full) "
    "or it waited too long (late).",
    [*_SHADOWED, "outcome"],
)
SHADOW_SHIFT = Histogram(
    "turnscore_shadow_percentile_shift",
    "How far a compared turn's percentile by the shadow is from the served one's, up or down.",
    _SHADOWED,
    buckets=(1, 2, 5, 10, 20, 50, 100),
)
SHADOW_PERCENTILES = Counter(
    "turnscore_shadow_percentiles_total",
    "Percentiles of compared turns, added up, by whose they are: served or shadow.",
    [*_SHADOWED, "by"],
)
SHADOW_LABELS = Counter(
    "turnscore_shadow_labels_total",
    "Compared turns by their label, low, fair, good or none, by the served version and by the shadow.",
    [*_SHADOWED, "served_label", "shadow_label"],
)
SHADOW_CORRELATION = Gauge(
    "turnscore_shadow_rank_correlation",
    "Spearman's correlation of both versions' percentiles over the latest 1,000 compared turns of a worker, from 30 "
    "on; of the worker where it is least.",
    _SHADOWED,
    multiprocess_mode="livemin",
)
SHADOW_SECONDS = Counter("turnscore_shadow_cpu_seconds_total", "CPU time that shadows took in their thread.", _SHADOWED)
MODEL_SWITCHES = Counter(
    "turnscore_model_switches_total",
    "Times that other versions of the models were asked for, by outcome: `switched`, `unchanged` (they are served "
    "already) or `refused` (nothing was changed; the log says why).",
    ["outcome"],
)
READY = Gauge("turnscore_ready", "1 while this process scores, else 0.", multiprocess_mode="livemin")


class KeptVectorReport:
    """What happened in a process's store of kept vectors, as its series."""

    def __init__(self) -> None:
        self._reported = VectorCounts()

    def update(self, counts: VectorCounts) -> None:
        """Adds what happened since the last call; called by one thread."""
        before, self._reported = self._reported, counts
        KEPT_VECTOR_BYTES.set(counts.bytes)
        KEPT_VECTOR_EVICTIONS.inc(counts.evictions - before.evictions)
        for role in counts.hits:
            KEPT_VECTOR_HITS.labels(role).inc(counts.hits[role] - before.hits.get(role, 0))
            KEPT_VECTOR_MISSES.labels(role).inc(counts.misses[role] - before.misses.get(role, 0))


MOST_MODELS = 64  # different models whose series a process tells apart: a series stays for as long as its process
_models: set[str] = set()


def model_label(reference: str) -> str:
    """The value of the label `model` for that one: its reference, or `other` beyond the first 64 of a process."""
    if reference not in _models:
        if len(_models) >= MOST_MODELS:
            return "other"
        _models.add(reference)
    return reference


def registry() -> CollectorRegistry:
    """Where to read the series from: all worker processes' files where the server keeps them, else this process."""
    write_out()
    folder = os.environ.get(metrics_folder.VARIABLE, "")
    if not Path(folder or "-").is_dir():
        return REGISTRY
    for pid in {int(path.stem.rpartition("_")[2]) for path in Path(folder).glob("gauge_live*_*.db")}:
        if not psutil.pid_exists(pid):  # a worker that was killed could not take its gauges with it
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
    shared = CollectorRegistry()
    MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
    return shared
