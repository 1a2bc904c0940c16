"""A process and its children, watched from outside: CPU seconds, and memory by what holds it. Starts nothing."""

from dataclasses import dataclass, field

import psutil

_TENTH = 0.1
_OBJECT_STORE = "/dev/shm/plasma"  # noqa: S108 where Ray maps it
_WORKER, _DAEMON = "ray::", "/site-packages/ray/"
"""How Ray's workers are called, and where its other programs lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the tree held at one moment; memory that processes share counts once."""

    cpu_seconds: float
    """Of all its processes since they began."""
    bytes_by_holder: dict[str, int]
    """`run`: the process itself and what it began; Ray's `workers`, its `daemons` and its `object store`."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return sum(self.bytes_by_holder.values())


@dataclass(slots=True)
class WatchedTree:
    """The looks at one process tree, in order."""

    pid: int
    looks: list[Look] = field(default_factory=list)
    _cpu_seconds: dict[tuple[int, float], float] = field(default_factory=dict)

    def look(self) -> None:
        """Notes each process's CPU seconds so far and its memory."""
        try:
            own = psutil.Process(self.pid)
            tree = [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        held: dict[str, int] = {}
        for each in tree:
            try:
                times = each.cpu_times()
                self._cpu_seconds[each.pid, each.create_time()] = times.user + times.system
                for holder, size in _memory_of(each).items():
                    held[holder] = held.get(holder, 0) + size
            except (psutil.NoSuchProcess, psutil.AccessDenied, AttributeError):
                continue
        self.looks.append(Look(cpu_seconds=self.cpu_seconds, bytes_by_holder=held))

    @property
    def cpu_seconds(self) -> float:
        """Of all processes that were seen."""
        return sum(self._cpu_seconds.values())

    @property
    def fullest(self) -> Look:
        """The look at which most was held."""
        return max(self.looks, key=lambda each: each.bytes)

    def most_bytes_in_tenth(self, tenth: int) -> int:
        """The most that was held in that tenth of the CPU seconds, from 0."""
        first, last = (self.cpu_seconds * _TENTH * each for each in (tenth, tenth + 1))
        return max((each.bytes for each in self.looks if first <= each.cpu_seconds <= last), default=0)


def _memory_of(process: psutil.Process) -> dict[str, int]:
    size = process.memory_full_info().pss
    command = process.cmdline()
    if command and command[0].startswith(_WORKER):
        return {"workers": size}
    if process.name() != "raylet":
        return {"daemons" if any(_DAEMON in word for word in command) else "run": size}
    store = sum(each.pss for each in process.memory_maps() if each.path.startswith(_OBJECT_STORE))
    return {"daemons": size - store, "object store": store}
