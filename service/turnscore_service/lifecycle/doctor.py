"""`turnscore doctor`: reports what this machine has, what would run here and where, and what is wrong."""

import asyncio
import json
import platform
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from turnscore_core.inference.devices import AUTO, CPU, CudaDriverError, Device, Machine, choose_devices, usable_cpus
from turnscore_core.inference.onnx_backend import CUDA_PROVIDER, DeviceError
from turnscore_core.loaded_scorer import choose_graph, load_scorer
from turnscore_models.bundle import starter_bundles
from turnscore_models.manifest import BundleError, BundleNotFoundError, UnknownKindError
from turnscore_models.store import resolve

import turnscore_service
from turnscore_service._patches.bentoml_metrics import FullDiskError, refuse_full_disk
from turnscore_service.auth.access import UnusableKeysError, check_names, read_keys
from turnscore_service.cache.redis_client import cause_of, open_store
from turnscore_service.lifecycle.admin import UnusableFolderError, check_folder, unusable
from turnscore_service.lifecycle.loading import WrongSettingError, find_offer
from turnscore_service.lifecycle.process import why_not
from turnscore_service.settings.cache import CacheSettings
from turnscore_service.settings.service import Settings, read_settings

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
    except (BundleNotFoundError, UnknownKindError):
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


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """One device; `free_bytes` is None where the driver does not say."""

    name: str
    memory_bytes: int
    free_bytes: int | None
    compute: str


@dataclass(frozen=True, kw_only=True)
class RuntimeFacts:
    """The installed ONNX Runtime."""

    version: str
    packages: tuple[str, ...]
    providers: tuple[str, ...]
    built_for_cuda: str | None
    cuda_lacks: str | None  # the first library that the build's CUDA provider needs and this machine cannot load


@dataclass(frozen=True, kw_only=True)
class ScorerFacts:
    """What would run for one bundle, or why nothing would."""

    bundle: str
    graph: str | None = None
    device: str | None = None
    provider: str | None = None
    problem: str | None = None
    graph_bytes: int = 0


@dataclass(kw_only=True)
class Diagnosis:
    """Everything that was found."""

    turnscore: str
    python: str
    system: str
    cpus: int
    memory_bytes: int
    memory_available_bytes: int
    configured_device: str
    workers: int
    driver: str | None = None
    driver_cuda: str | None = None
    gpus: list[GpuFacts] = field(default_factory=list)
    runtime: RuntimeFacts | None = None
    extras: list[str] = field(default_factory=list)
    worker_devices: list[str] = field(default_factory=list)
    scorers: list[ScorerFacts] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def can_serve(self) -> bool:
        """Whether what is configured would run."""
        return not any(each.is_fatal for each in self.problems)


def diagnose(settings: Settings, machine: Machine, *, with_load: bool = False) -> Diagnosis:
    """Looks at everything; `with_load` also loads every graph and scores its self-test turns. Raises nothing."""
    memory = psutil.virtual_memory()
    found = Diagnosis(
        turnscore=version("turnscore"),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cpus=usable_cpus(),
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        configured_device=settings.runtime.device,
        workers=settings.workers,
    )
    _look_at_driver(found, machine)
    _look_at_runtime(found, machine)
    devices = _look_at_devices(found, settings, machine)
    if devices:
        served = list(settings.models) or [f"{folder}/" for folder in starter_bundles()]
        names = [*served, *(each.bundle for each in (*settings.shadow, *settings.split))]
        found.scorers = [_look_at_bundle(name, devices, with_load=with_load) for name in names]
    found.problems += [Problem(each.problem, is_fatal=True) for each in found.scorers if each.problem]
    found.problems += check_service(settings, sum(each.graph_bytes for each in found.scorers), Surroundings())
    return found


def _look_at_driver(found: Diagnosis, machine: Machine) -> None:
    found.driver = _driver_version()
    try:
        cuda = machine.cuda_devices()
    except CudaDriverError:
        return  # no problem on a machine without a GPU; where CUDA was asked for, the device's problem has the words
    found.driver_cuda = ".".join(map(str, cuda.cuda_version))
    found.gpus = [
        GpuFacts(
            name=gpu.name,
            memory_bytes=gpu.memory_bytes,
            free_bytes=_free_bytes(gpu.index, machine),
            compute=".".join(map(str, gpu.compute)),
        )
        for gpu in cuda.gpus
    ]


def _look_at_runtime(found: Diagnosis, machine: Machine) -> None:
    found.extras = ["export"] if all(map(find_spec, ("torch", "transformers", "onnx"))) else []
    try:
        build = machine.build
    except DeviceError:
        return  # reported with the device
    extras = {"onnxruntime": "cpu", "onnxruntime-gpu": "gpu"}
    found.extras += [extras[name] for name in build.packages if name in extras]
    found.runtime = RuntimeFacts(
        version=build.version,
        packages=build.packages,
        providers=build.providers,
        built_for_cuda=build.cuda_version and ".".join(map(str, build.cuda_version)),
        cuda_lacks=machine.missing_library() if build.has_cuda else None,
    )


def _look_at_devices(found: Diagnosis, settings: Settings, machine: Machine) -> tuple[Device, ...]:
    """The devices of the first worker; none where what is configured cannot be used."""
    asked = settings.runtime.device
    try:
        choices = [choose_devices(asked, machine, worker=worker) for worker in range(settings.workers)]
    except DeviceError as error:
        found.problems.append(Problem(str(error), is_fatal=True))
        return ()
    found.worker_devices = [str(choice) for choice in choices]
    if asked == AUTO and choices[0].devices == (CPU,) and found.gpus:
        found.problems.append(Problem(f"there is a GPU, but the CPU would be used: {choices[0].note}"))
    return choices[0].devices


def _look_at_bundle(name: str, devices: Sequence[Device], *, with_load: bool) -> ScorerFacts:
    try:
        bundle = resolve(name)
        variant, device = choose_graph(bundle, devices)
        if with_load:
            load_scorer(bundle, variant, device=device)
    except (BundleError, DeviceError) as error:
        return ScorerFacts(bundle=name, problem=str(error))
    provider = CUDA_PROVIDER if device.kind == "cuda" else "CPUExecutionProvider"
    return ScorerFacts(
        bundle=bundle.manifest.reference,
        graph=variant,
        device=str(device),
        provider=provider,
        graph_bytes=sum(bundle.path_of(each).stat().st_size for each in bundle.manifest.graphs[variant].files),
    )


def _driver_version() -> str | None:
    """The version in the kernel module's first line; None without the module."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return None
    return next((word for word in words if word[0].isdecimal() and "." in word), None)


def _free_bytes(index: int, machine: Machine) -> int | None:
    try:
        return machine.free_bytes(index)
    except CudaDriverError:
        return None


def doctor(
    device: Annotated[str, typer.Option(help="Device to check; default: TURNSCORE_RUNTIME__DEVICE.")] = "",
    load: Annotated[bool, typer.Option("--load", help="Also load every graph and score its self-test.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report what this machine has, which graph of each scorer would run where, and what is wrong."""
    settings = read_settings({"runtime": {"device": device}} if device else {})
    found = diagnose(settings, Machine(), with_load=load)
    if as_json:
        typer.echo(json.dumps({**asdict(found), "can_serve": found.can_serve}, indent=2))
    else:
        print_diagnosis(found, Console(highlight=False))
    raise typer.Exit(0 if found.can_serve else 1)


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """Three short tables and the problems."""
    console.print(_machine_table(found))
    if found.scorers:
        table = Table("bundle", "graph", "device", "provider")
        for each in found.scorers:
            table.add_row(*(escape(text or "-") for text in (each.bundle, each.graph, each.device, each.provider)))
        if not console.is_terminal:
            table.box = None
        console.print(table)
    for problem in found.problems:
        mark = "[bold red]problem[/]" if problem.is_fatal else "[bold yellow]warning[/]"
        console.print(f"{mark} {escape(problem.text)}", soft_wrap=True)
    verdict = "[bold green]ready to serve[/]" if found.can_serve else "[bold red]the service would not be ready[/]"
    console.print(verdict)


def _machine_table(found: Diagnosis) -> Table:
    table = Table("what", "found", show_header=False, box=None, pad_edge=False)
    runtime = found.runtime
    rows = [
        ("turnscore", f"{found.turnscore}, Python {found.python}, {found.system}"),
        ("extras", ", ".join(found.extras) or "none"),
        ("CPUs usable", str(found.cpus)),
        ("memory", f"{_gigabytes(found.memory_available_bytes)} of {_gigabytes(found.memory_bytes)} available"),
        ("NVIDIA driver", _describe_driver(found)),
        *((f"cuda:{index}", _describe_gpu(gpu)) for index, gpu in enumerate(found.gpus)),
        ("ONNX Runtime", f"{runtime.version} ({', '.join(runtime.packages)})" if runtime else "none"),
    ]
    if runtime:
        rows += [("  built for CUDA", runtime.built_for_cuda or "no"), ("  providers", ", ".join(runtime.providers))]
        rows += [("  cuda lacks", runtime.cuda_lacks)] if runtime.cuda_lacks else []
    rows.append(("device asked for", found.configured_device))
    rows += [(f"  worker {number}", device) for number, device in enumerate(found.worker_devices, start=1)]
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _describe_driver(found: Diagnosis) -> str:
    if found.driver_cuda is None:
        return found.driver or "none"
    return f"{found.driver or 'of unknown version'}, CUDA up to {found.driver_cuda}"


def _describe_gpu(gpu: GpuFacts) -> str:
    free = "" if gpu.free_bytes is None else f"{_gigabytes(gpu.free_bytes)} free of "
    return f"{gpu.name}, {free}{_gigabytes(gpu.memory_bytes)}, compute capability {gpu.compute}"


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
