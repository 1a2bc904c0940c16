"""What the pages and the errors have a reader type: commands that exist, and installations that work in a checkout."""

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
OWN = ("clients", "core", "assessment", "exporters", "corpora")
"""Folders of distributions beside the service's."""
NOT_SERVED = ("turnscore_exporters", "turnscore_assessment", "turnscore_corpus")
"""Packages that the serving environment does not hold."""
PAGES = [
    *(ROOT / folder / "README.md" for folder in OWN),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "requirements/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [
    path
    for folder in (*OWN, "service", "model_store", "benchmarks", "loadtests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
COMMANDS = {
    each.name: each.value for each in entry_points(group="console_scripts") if each.value.startswith("turnscore")
}
DISTRIBUTIONS = {".": ROOT, **{f"./{folder}": ROOT / folder for folder in OWN}}
IN_A_CHECKOUT = " in a checkout of turnscore"
OTHER_NAMES = {"turnscore-client", "turnscore-core", "turnscore-assessment", "turnscore-exporters"}
"""What looks like a command and is the name of a distribution."""


def named_commands(text: str) -> set[str]:
    """Those at the start of a code span, of a line of code, or behind a folder."""
    found = re.findall(r"(?:^ *|`|\$ |/bin/|&& )(turnscore(?:-[a-z]+)*)(?= [a-zA-Z-]|`)", text, re.MULTILINE)
    return set(found) - OTHER_NAMES


def run_commands(text: str) -> set[str]:
    """Those in blocks of code, which a reader copies."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    fenced = [block for language, block in blocks if language in ("", "sh")]
    indented = re.findall(r"^    .*$", text, re.MULTILINE)
    return named_commands("\n".join([*fenced, *indented])) & set(COMMANDS)


def installed_words(text: str) -> list[str]:
    """Every requirement behind a `pip install`, which may go on in the next line of a docstring."""
    text = text.replace(IN_A_CHECKOUT, "")
    lines = re.findall(r"pip install\s+((?:--?[a-z-]+ )*(?:(?:'[^']+'|[./a-zA-Z][^\s`'\")#]*)[ ]?)+)", text)
    return [word.strip("'\"`,;") for line in lines for word in line.split()]


def misfit_of(requirement: str) -> str | None:
    """Why the requirement cannot be installed in a checkout; None where it can, or is not ours."""
    if requirement.startswith("turnscore"):
        return "is on no index"
    path, _, extras = requirement.partition("[")
    if not path.startswith("."):
        return None
    if path not in DISTRIBUTIONS:
        return "is no distribution of ours"
    project = tomllib.loads((DISTRIBUTIONS[path] / "pyproject.toml").read_text())["project"]
    unknown = {each for each in extras.rstrip("]").split(",") if each}
    unknown -= {*project["optional-dependencies"], "{extra}"}  # whose values a test of their own has
    return f"has no extra {', '.join(sorted(unknown))}" if unknown else None


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_command_a_page_names_is_one():
    wrong = {name_of(page): named_commands(page.read_text()) - set(COMMANDS) for page in PAGES}
    assert {page: names for page, names in wrong.items() if names} == {}


def is_place_missing(page: Path) -> bool:
    """Whether the page has commands and does not say where they lie."""
    text = page.read_text()
    commands = run_commands(text)
    if any(COMMANDS[each].startswith(NOT_SERVED) for each in commands):
        return ".venv-dev/bin" not in text
    return bool(commands) and page.name != "README.md" and ".venv/bin" not in text and ".venv-dev/bin" not in text


def test_a_page_with_commands_says_where_they_lie():
    assert [name_of(page) for page in PAGES if is_place_missing(page)] == []


def test_everything_to_be_installed_is_installable_in_a_checkout():
    found = [(name_of(path), word) for path in (*PAGES, *SOURCES) for word in installed_words(path.read_text())]
    assert [(path, word, reason) for path, word in found if (reason := misfit_of(word))] == []
    assert len(found) > 20


def test_every_extra_that_an_error_names_exists():
    text = "".join(path.read_text() for path in SOURCES if "turnscore_client" in path.parts)
    asked = set(re.findall(r'needs_extra\("(\w+)"', text))
    assert asked >= {"grpc", "websocket"}
    assert {misfit_of(f"./clients[{extra}]") for extra in asked} == {None}
    assert misfit_of(".[cpu]") is None


def test_wrong_lines_are_found():
    assert named_commands("run `turnscore-modles list`") == {"turnscore-modles"}
    assert installed_words("(pip install ./clients '.[cpu,dev]')") == ["./clients", ".[cpu,dev]"]
    assert misfit_of("./clients[grpcs]") == "has no extra grpcs"
    assert misfit_of("./client") == "is no distribution of ours"
    assert misfit_of("turnscore-client") == "is on no index"
    assert misfit_of(".[cpu,dev]") is None
    assert run_commands("```\nturnscore-models list\n```") == {"turnscore-models"}
