"""Checks what a service needs besides its models and devices. Each finding says what to do. Changes nothing."""

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from turnscore_models.manifest import BundleNotFoundError

import turnscore_service
from turnscore_service._patches.bentoml_metrics import FullDiskError, refuse_full_disk
from turnscore_service.auth.access import UnusableKeysError, check_names, read_keys
from turnscore_service.cache.redis_client import cause_of, open_store
from turnscore_service.lifecycle.admin import UnusableFolderError, check_folder, unusable
from turnscore_service.lifecycle.loading import WrongSettingError, find_offer
from turnscore_service.lifecycle.process import why_not
from turnscore_service.settings.cache import CacheSettings
from turnscore_service.settings.service import Settings

_SPARE_DESCRIPTORS = 256  # in addition to a socket for each conversation: other requests, libraries, models, metrics
_PROBE_SECONDS = 5.0  # chosen: a first connection may have to look up a name
_COARSE_SECONDS = 0.001  # of a clock that times batches of some milliseconds; chosen
_PROBE_KEY = "turnscore:doctor"
_CGROUP = Path("/sys/fs/cgroup")
_CACHE_REMEDIES = {
    "forbidden": "check TURNSCORE_CACHE__USERNAME, TURNSCORE_CACHE__PASSWORD and what the user may do",
    "loading": "it is loading its data: wait",
    "garbage": "something else listens there: check TURNSCORE_CACHE__URL",
    "failing_over": "its master is changing, or is unknown to the Sentinels: check their service name",
}
_CACHE_REMEDY = "check TURNSCORE_CACHE__URL, the network, and whether the Redis is running"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, with its fix; `is_fatal` where what was configured cannot run."""

    text: str
    is_fatal: bool = False


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the process finds around it."""

    # Files and sockets that a process may have open; -1 without a bound.
    descriptors: int = field(default_factory=lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    memory_bytes: int = field(default_factory=lambda: free_memory())
    now: float = field(default_factory=time.time)
    installed_at: float = field(default_factory=lambda: Path(turnscore_service.__file__).stat().st_mtime)
    clock_step: float = field(default_factory=lambda: time.get_clock_info("monotonic").resolution)
    refuse_port: Callable[[str, int], str | None] = lambda host, port: why_not(host, port, is_shared=False)


def check_service(settings: Settings, graph_bytes: int, around: Surroundings) -> list[Problem]:
    """Everything that is wrong; `graph_bytes` are those of the graphs that one worker loads."""
    return [
        *_check_ports(settings, around),
        *_check_memory(settings, graph_bytes, around),
        *_check_descriptors(settings, around),
        *_check_limits(settings),
        *_check_clock(around),
        *_check_files(settings),
        *_check_names(settings),
        *_check_cache(settings.cache),
    ]


def free_memory(folder: Path = _CGROUP) -> int:
    """Bytes that may still be used: of the machine, or of this container where it has less."""
    available = int(psutil.virtual_memory().available)
    try:
        most, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no cgroup of version 2, or "max"
        return available
    return min(available, max(0, most - used))


def _check_ports(settings: Settings, around: Surroundings) -> Iterator[Problem]:
    transports = [("HTTP", str(settings.http.host), settings.http.port)]
    if settings.grpc.enabled and settings.grpc.port:
        transports.append(("GRPC", settings.grpc.host, settings.grpc.port))
    for transport, host, port in transports:
        if reason := around.refuse_port(host, port):
            is_taken = "in use" in reason
            remedy = (
                f"the service is already running, or set TURNSCORE_{transport}__PORT to another port"
                if is_taken
                else f"check TURNSCORE_{transport}__HOST and TURNSCORE_{transport}__PORT"
            )
            yield Problem(f"{transport} cannot listen on {host} port {port} ({reason}): {remedy}", not is_taken)


def _check_memory(settings: Settings, graph_bytes: int, around: Surroundings) -> Iterator[Problem]:
    """Only the graphs and the cache: the memory of batches comes on top."""
    needed = settings.workers * (graph_bytes + settings.cache.local_max_bytes)
    if needed > around.memory_bytes:
        yield Problem(
            f"{settings.workers} workers need more than {needed:,} bytes for graphs and cache, and "
            f"{around.memory_bytes:,} are free: lower TURNSCORE_WORKERS, load fewer TURNSCORE_MODELS, or add memory"
        )


def _check_descriptors(settings: Settings, around: Surroundings) -> Iterator[Problem]:
    needed = settings.conversations.max_open + _SPARE_DESCRIPTORS
    if 0 <= around.descriptors < needed:
        yield Problem(
            f"a process may open {around.descriptors:,} files, and TURNSCORE_CONVERSATIONS__MAX_OPEN needs {needed:,}: "
            f"raise `ulimit -n` (systemd: LimitNOFILE=), or lower the setting"
        )


def _check_limits(settings: Settings) -> Iterator[Problem]:
    limits = settings.limits
    pairs = [
        ("LIMITS__MAX_BODY_BYTES", limits.max_body_bytes, "LIMITS__MAX_TEXT_CHARS", limits.max_text_chars),
        ("CONVERSATIONS__MAX_BYTES", settings.conversations.max_bytes, "LIMITS__MAX_TEXT_CHARS", limits.max_text_chars),
        ("ADMISSION__MAX_ITEMS", settings.admission.max_items, "LIMITS__MAX_ITEMS", limits.max_items),
        ("ADMISSION__MAX_ITEMS", settings.admission.max_items, "LIMITS__MAX_CANDIDATES", limits.max_candidates),
    ]
    for name, value, least_name, least in pairs:
        if value < least:
            yield Problem(
                f"TURNSCORE_{name} is {value:,}, so what TURNSCORE_{least_name} allows ({least:,}) can never be "
                "accepted: raise the first or lower the second"
            )


def _check_clock(around: Surroundings) -> Iterator[Problem]:
    if around.now < around.installed_at:
        yield Problem(
            "the clock is earlier than the installation of turnscore, so certificates and cache lifetimes "
            "are misjudged: set it, or run NTP"
        )
    if around.clock_step > _COARSE_SECONDS:
        yield Problem(
            f"the clock moves in steps of {1000 * around.clock_step:g} ms, so timings and deadlines are that coarse: "
            "select another kernel clock source"
        )


def _check_files(settings: Settings) -> Iterator[Problem]:
    try:
        refuse_full_disk()
    except FullDiskError as error:
        yield Problem(f"{error}: free some space, or set BENTOML_HOME to another disk", is_fatal=True)
    if settings.admin.folder is not None:
        try:
            check_folder(settings.admin.folder)
        except UnusableFolderError as error:
            yield Problem(unusable(error), is_fatal=True)


def _check_names(settings: Settings) -> Iterator[Problem]:
    offer = None
    try:
        offer = find_offer(settings)
    except BundleNotFoundError:
        pass  # reported with the bundles
    except WrongSettingError as error:
        yield Problem(str(error), is_fatal=True)
    file = settings.auth.keys_file
    try:
        entries = {**settings.auth.keys, **(read_keys(file) if file else {})}
        if offer is not None:
            check_names(entries, offer)
    except UnusableKeysError as error:
        yield Problem(f"the API keys cannot be used: {error}: `turnscore keys` makes entries", is_fatal=True)


def _check_cache(settings: CacheSettings) -> Iterator[Problem]:
    """Asks the shared cache for one key. Without it the service runs, and computes what it would have found."""
    if settings.address() is None:
        return
    try:
        took = asyncio.run(_ask_cache(settings))
    except Exception as error:
        cause = cause_of(error)
        remedy = _CACHE_REMEDIES.get(cause, _CACHE_REMEDY)
        yield Problem(f"the shared cache cannot be used ({cause}): {remedy}")
        return
    if took > settings.timeout_ms / 1000:
        yield Problem(
            f"the shared cache answered in {1000 * took:.0f} ms, and TURNSCORE_CACHE__TIMEOUT_MS is "
            f"{settings.timeout_ms}: move it closer, or raise the setting"
        )


async def _ask_cache(settings: CacheSettings) -> float:
    """Seconds for one round trip, after the first, which connects."""
    address = settings.address()
    assert address is not None
    store = open_store(address, settings.model_copy(update={"timeout_ms": int(1000 * _PROBE_SECONDS)}))
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            await store.read([_PROBE_KEY])
            started_at = time.perf_counter()
            await store.read([_PROBE_KEY])
            return time.perf_counter() - started_at
    finally:
        await store.close()
