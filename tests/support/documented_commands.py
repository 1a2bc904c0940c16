"""The commands that the pages have a reader type, as lists of words, and what the programs say against them."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from turnscore_assessment.agreement import command as agreement
from turnscore_assessment.agreement_table import command as agreement_table
from turnscore_assessment.commands import data
from turnscore_exporters.commands import calibrate, export, train

ROOT = Path(__file__).parents[2]
PROGRAMS: dict[str, typer.Typer] = {
    "turnscore-train": train.app,
    "turnscore-export": export.app,
    "turnscore-calibrate": calibrate.app,
    "turnscore-agreement": agreement.app,
    "turnscore-agreement-convert": agreement.convert_app,
    "turnscore-agreement-table": agreement_table.app,
    "turnscore-data": data.app,
}
"""Those of training, export, agreement and data."""
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)
_SPAN = re.compile(r"`([^`\n]+ --?[^`\n]+)`")


def read_blocks(page: str) -> list[list[str]]:
    """The commands of the page's blocks of code, in order, a list of words each."""
    text = "\n".join([*_BLOCK.findall(page), *_INDENTED.findall(_BLOCK.sub("", page))])
    return [words for line in text.replace("\\\n", " ").splitlines() if (words := _split(line))]


def read_spans(page: str) -> list[list[str]]:
    """The commands with options that the page names in its sentences, most of them without what else they need."""
    return [words for span in _SPAN.findall(_BLOCK.sub("", page)) if (words := _split(span))]


def _split(line: str) -> list[str]:
    """The words of a line that begins with one of the programs, wherever that lies; else none."""
    try:
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    except ValueError:  # an apostrophe: a sentence
        return []
    if words and (name := words[0].rpartition("/")[2]) in PROGRAMS:
        return [name, *words[1:]]
    return []


def refusal_of(words: Sequence[str], folder: Path) -> str | None:
    """What the program says against these words, or None; nothing is run.

    Files that must be there are made in the folder, empty: whether a reader has them is another question.
    """
    command: Any = typer.main.get_command(PROGRAMS[words[0]])
    for each in (command, *getattr(command, "commands", {}).values()):
        each.callback = lambda **_: None
    for _ in words:
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
            try:
                command.main(list(words[1:]), prog_name=words[0], standalone_mode=False)
            except Exception as error:  # typer's own copy of click has no public name for its errors
                said = error.format_message() if hasattr(error, "format_message") else repr(error)
            else:
                return None
        if not (missing := re.search(r"(file|path|dir) '(.+)' does not exist", said)):
            return said
        _make(folder / missing[2], is_folder=missing[1] == "dir")
    return said


def _make(path: Path, *, is_folder: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_folder:
        path.mkdir()
    else:
        path.touch()


def all_commands(read: Callable[[str], list[list[str]]]) -> list[tuple[Path, list[str]]]:
    """Of every page."""
    return [(page.relative_to(ROOT), words) for page in PAGES for words in read(page.read_text(encoding="utf-8"))]
