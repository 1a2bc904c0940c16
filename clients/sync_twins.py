"""Makes turnscore_client/_sync.py of turnscore_client/_async.py, word by word; `--check` compares instead.

unasync, the library for this, renames names alone: what docstrings and messages say ("inside its `async with`") would
stay wrong. What this table leaves over is refused, so that nothing of asyncio ends up in the code for threads.
"""

import difflib
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "turnscore_client/_async.py"
TARGET = FORMATTED_AS = SOURCE.with_name("_sync.py")

WORDS = (
    (r"\bfor asyncio\b", "for threads"),
    (r"\bTasks may share it\b", "Threads may share it"),
    (r"\bshared within one event loop\b", "shared between threads"),
    (r"\bFrom the running event loop\b", "From the calling thread"),
    (r"\bAwaitable, ", ""),
    (r"\bAsyncBaseTransport\b", "BaseTransport"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basync (with|for|def)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\bsleep_async\b", "sleep"),
    (r"\bopen_async_stream\b", "open_stream"),
    (r"\bgrpc\.aio\b", "grpc"),
    (r"\b_async\b", "_sync"),
    (r"\bimport asyncio\b", "import threading"),
    (r"\basyncio\.Lock\b", "threading.Lock"),
    (r"\bAsync(?=[A-Z])", ""),
)
LEFT_OVER = re.compile(r".*(async|await|\baio\b|event loop|\btasks?\b).*", re.IGNORECASE)


class LeftOverError(Exception):
    """A line of the world of asyncio that the table does not know."""


def make_sync(source: str) -> str:
    """The module for threads, formatted. Raises LeftOverError for what the table does not know."""
    text = source
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    if found := LEFT_OVER.search(text):
        raise LeftOverError(f"_async.py: nothing in {Path(__file__).name} says what becomes of: {found[0].strip()}")
    text = f"# `make generate WHAT=client` made this of _async.py: change that file.\n{text}"
    for step in (["check", "--select=I001", "--fix-only", "--quiet"], ["format", "--quiet"]):
        command = [
            sys.executable,
            "-m",
            "ruff",
            *step,
            "--stdin-filename",
            str(Path(__file__).with_name("turnscore_client") / "_sync.py"),
            "-",
        ]
        text = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    return text


def main(arguments: list[str]) -> int:
    """The exit code: 1 where `--check` finds a difference, or a line has no twin."""
    try:
        made = make_sync(SOURCE.read_text())
    except LeftOverError as error:
        print(error)
        return 1
    if arguments == ["--check"]:
        lines = difflib.unified_diff(TARGET.read_text().splitlines(True), made.splitlines(True), str(TARGET), "made")
        different = "".join(lines)
        print(
            different + "`make generate WHAT=client` writes it anew"
            if different
            else "_sync.py is what _async.py gives"
        )
        return 1 if different else 0
    TARGET.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
