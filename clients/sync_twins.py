"""Sync twins: makes turnscore_client/_sync of turnscore_client/_async, word by word; `--check` compares instead.

unasync, the library for this, renames names alone: what docstrings and messages say ("inside its `async with`") would
stay wrong. What this table leaves over is refused, so that nothing of asyncio ends up in the code for threads.
"""

import difflib
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "turnscore_client"

WORDS = (
    (r"\bfor asyncio\b", "for threads"),
    (r"\bTasks may share it\b", "Threads may share it"),
    (r"\bshared within one event loop\b", "shared between threads"),
    (r"\bFrom the running event loop\b", "From the calling thread"),
    (r"\bAwaitable, ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basync (with|for|def)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\bsleep_async\b", "sleep"),
    (r"\bopen_async_line\b", "open_line"),
    (r"\bgrpc\.aio\b", "grpc"),
    (r"\basync_door\b", "sync_door"),
    (r"\b_async\b", "_sync"),
    (r"\bimport asyncio\b", "import threading"),
    (r"\basyncio\.Lock\b", "threading.Lock"),
    (r"\bAsync(?=[A-Z])", ""),
)
LEFT_OVER = re.compile(r".*(async|await|\baio\b|event loop|\btasks?\b).*", re.IGNORECASE)


class LeftOverError(Exception):
    """A line of the world of asyncio that the table does not know."""


def sync_twin(source: str, name: str) -> str:
    """The file for threads, formatted. Raises LeftOverError for what the table does not know."""
    text = source
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    if found := LEFT_OVER.search(text):
        raise LeftOverError(f"_async/{name}: nothing in {Path(__file__).name} says what becomes of: {found[0].strip()}")
    text = f"# `make sync-client` made this of _async/{name}: change that file.\n{text}"
    for step in (["check", "--select=I001", "--fix-only", "--quiet"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *step, "--stdin-filename", str(PACKAGE / "_async" / name), "-"]
        text = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return text


def twins(package: Path) -> dict[Path, str]:
    """What belongs into the package's `_sync`, by its path."""
    sources = sorted((package / "_async").glob("*.py"))
    return {package / "_sync" / source.name: sync_twin(source.read_text(), source.name) for source in sources}


def differences(package: Path) -> str:
    """How the files in `_sync` differ from what `_async` gives; nothing where they do not."""
    made = twins(package)
    found = {path: path.read_text() for path in (package / "_sync").glob("*.py")}
    lines = (
        difflib.unified_diff(
            found.get(path, "").splitlines(True), made.get(path, "").splitlines(True), str(path), "made"
        )
        for path in sorted(found.keys() | made.keys())
    )
    return "".join(line for each in lines for line in each)


def main(arguments: list[str], package: Path = PACKAGE) -> int:
    """The exit code: 1 where `--check` finds a difference, or a line has no twin."""
    try:
        if arguments == ["--check"]:
            different = differences(package)
            print(different + "`make sync-client` writes them anew" if different else "_sync is what _async gives")
            return 1 if different else 0
        made = twins(package)
        for path in (package / "_sync").glob("*.py"):
            path.unlink()
        for path, text in made.items():
            path.write_text(text)
    except LeftOverError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
