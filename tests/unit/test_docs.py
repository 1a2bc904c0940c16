"""The pages: links that lead somewhere, commands and options that exist, installations that work in a checkout."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import entry_points

import pytest
from support.files import ROOT

TRACKED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
).stdout.split("\n")
FILES = [ROOT / name for name in TRACKED if name and (ROOT / name).exists()]
PAGES = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in FILES if path.suffix == ".md"}
SOURCES = {
    path.relative_to(ROOT): path.read_text(encoding="utf-8")
    for path in FILES
    if path.suffix in (".py", ".yaml", ".yml", ".toml", ".txt") and "tests" not in path.parts
}
COMMANDS = {each.name: each for each in entry_points(group="console_scripts") if each.value.startswith("turnscore")}
# What can be installed in a checkout.
OWN = (".", *(f"./{path.parent.name}" for path in ROOT.glob("*/pyproject.toml")))


def anchors_of(text):
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).replace("`", "").lower() for each in headings]
    return {re.sub(r"[^\w -]", "", each).strip().replace(" ", "-") for each in plain}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page):
    broken = []
    for target, anchor in re.findall(r"\]\((?!https?://|#?<)([^)#\s]*)(?:#([^)]*))?\)", PAGES[page]):
        path = (ROOT / page.parent / target).resolve() if target else ROOT / page
        if not path.exists() or (anchor and anchor not in anchors_of(path.read_text(encoding="utf-8"))):
            broken.append(f"{target}#{anchor}")
    assert broken == []


def test_every_file_of_results_says_how_it_was_measured():
    for path in (ROOT / "results").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert all(found.get(name) for name in ("command", "machine", "date")), path.name


def commands_in(text):
    """The commands of ours in blocks of code."""
    fenced = re.findall(r"^```(?:sh|)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}\S.*(?:\n {4,}\S.*)*", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    found = []
    for line in "\n".join([*fenced, *indented]).replace("\\\n", " ").splitlines():
        with contextlib.suppress(ValueError):  # an apostrophe: not a command
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words and (name := words[0].rpartition("/")[2]).split("-")[0] == "turnscore":
                found.append((name, *words[1:]))
    return found


DOCUMENTED = sorted({words for text in PAGES.values() for words in commands_in(text)})


@cache
def help_of(*words):
    """What the program prints with --help."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", [*words, "--help"])
        patch.setenv("COLUMNS", "400")
        with contextlib.suppress(SystemExit):
            COMMANDS[words[0]].load()()
    return printed.getvalue()


def names_command(text, word):
    return re.search(rf"^[│|\s]*{re.escape(word)}\s", text, re.MULTILINE) is not None


@pytest.mark.parametrize("words", DOCUMENTED, ids=lambda words: shlex.join(words)[:100])
def test_a_documented_command_has_the_options_that_it_is_given(words):
    path = [words[0]]
    assert path[0] in COMMANDS
    for word in words[1:]:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", word) or not names_command(help_of(*path), word):
            break
        path.append(word)
    assert len(DOCUMENTED) >= 40
    text = help_of(*path)
    options = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
    assert [each for each in options if not re.search(rf"{each}(?![\w-])", text)] == [], shlex.join(path)


def refusal_of(requirement):
    """Why there is no such distribution or extra of ours; None where there is, or it is not ours."""
    path, _, extras = requirement.partition("[")
    if wheel := re.fullmatch(r"\./(turnscore\w*)-[0-9.]+-py3-none-any\.whl", path):
        path = wheel[1].replace("_", "-")
    if not path.startswith((".", "turnscore")):
        return None
    projects = {each: tomllib.loads((ROOT / each / "pyproject.toml").read_text())["project"] for each in OWN}
    projects |= {each["name"]: each for each in projects.values()}
    if path not in projects:
        return "is no distribution of ours"
    project = projects[path]
    unknown = {each for each in extras.rstrip("]").split(",") if each}
    unknown -= {*project["optional-dependencies"], "{extra}"}
    return f"has no extra {', '.join(sorted(unknown))}" if unknown else None


def asks_an_index(line):
    """Whether a command in it installs a distribution of ours, or npm's package, by name and not from a folder."""
    commands = re.findall(r"(?:pip install|uvx|pipx run|npm install)((?: +(?:'[^']+'|[^\s`'#(&]+))+)", line)
    # Behind --from or --spec, which say what is installed, a name is that of a command.
    commands = [re.sub(r"(--(?:from|spec) .*) turnscore [a-z]+", r"\1", each) for each in commands]
    ours = re.compile(r"[ ']turnscore(?:-[a-z]+)?(?:\[[a-z,]+\])?(?:[' ]|$)")
    return any(ours.search(each) for each in commands)


def test_nothing_is_installed_from_an_index_before_it_is_published():
    lines = [(str(name), line) for name, text in {**PAGES, **SOURCES}.items() for line in text.splitlines()]
    told = [(name, line) for name, line in lines if asks_an_index(line)]
    assert [each for each in told if "nce published" not in each[1]] == []


def test_what_pages_and_errors_tell_to_install_are_distributions_and_extras_of_ours():
    found = []
    for name, text in {**PAGES, **SOURCES}.items():
        text = text.replace(" in a checkout of turnscore", "")
        for line in re.findall(r"pip install\s+((?:--?[a-z-]+ )*(?:(?:'[^']+'|[./a-zA-Z][^\s`'\")#]*)[ ]?)+)", text):
            found += [(str(name), word.strip("'\"`,;")) for word in line.split()]
    assert [(name, word, reason) for name, word in found if (reason := refusal_of(word))] == []
    assert len(found) > 20
