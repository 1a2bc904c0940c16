"""Holds a release against the policy of licences in pyproject.toml: licences.py FOLDER ENVIRONMENT.json

Writes a bill of materials (CycloneDX) next to each wheel in the folder, where syft has written those of images and of
the JavaScript client, and one table of everything. ENVIRONMENT.json is what `cyclonedx-py environment` says of the
interpreter that runs this. Licences are those that packages declare: a C library inside a package is not searched for.
"""

import hashlib
import json
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

POLICY: dict[str, Any] = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["tool"]["turnscore"][
    "licences"
]
Component = Mapping[str, Any]


def licences_of(component: Component) -> list[str]:
    """All that holds at once: licences or expressions of SPDX, or classifiers; empty where none is known."""
    by_hand = _found_by_hand(component)
    return _declared_by(component) if by_hand is None else [by_hand]


def _declared_by(component: Component) -> list[str]:
    found = [each.get("expression") or each["license"] for each in component.get("licenses", [])]
    texts = [each if isinstance(each, str) else each.get("id") or each.get("name", "") for each in found]
    return [text.removeprefix("License :: ").removeprefix("OSI Approved :: ") for text in texts if text]


def _found_by_hand(component: Component) -> str | None:
    """What a person found; None where nobody looked, or where it declares something else than it did then."""
    entry = POLICY["by_hand"].get(canonicalize_name(component["name"]))
    # A tool may read nothing of a declaration that another reads, so that nothing is no change.
    if entry is None or any(each != entry.get("declared") for each in _declared_by(component)):
        return None
    return str(entry["licence"])


def refusal_of(component: Component) -> str | None:
    """Why the policy refuses it; None where it does not."""
    licences = licences_of(component)
    if _found_by_hand(component) is not None or component.get("purl", "").startswith(tuple(POLICY["base"])):
        return None
    bad = [each for each in licences if not _is_allowed(each)]
    return "its licence is unknown" if not licences else f"{', '.join(bad)} is not allowed" if bad else None


def _is_allowed(licence: str) -> bool:
    known = {*POLICY["allowed"], *POLICY["listed"]}
    # Brackets may hold anything: then all terms count, those of both sides of an OR.
    choices = [licence.replace(" OR ", " AND ")] if "(" in licence else licence.split(" OR ")
    terms = [[term.strip("() ") for term in choice.split(" AND ")] for choice in choices]
    return licence in known or any(known.issuperset(each) for each in terms)


def needs_of(name: str) -> dict[str, set[str]]:
    """What each distribution needs by name, from this one on, with those of its extras that are installed here."""
    needed: dict[str, set[str]] = {}
    waiting = [(name, {"", *(distribution(name).metadata.get_all("Provides-Extra") or ())} - {"dev"})]
    seen: set[tuple[str, ...]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, *sorted(extras)) in seen:
            continue
        seen.add((name, *sorted(extras)))
        found = needed.setdefault(name, set())
        for each in _requirements_of(name) or ():
            wanted = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
            if wanted and _requirements_of(each.name) is not None:
                found.add(canonicalize_name(each.name))
                waiting.append((canonicalize_name(each.name), {"", *each.extras}))
    return needed


@cache
def _requirements_of(name: str) -> tuple[Requirement, ...] | None:
    """Those of the installed distribution; None where there is none."""
    try:
        return tuple(map(Requirement, distribution(name).requires or ()))
    except PackageNotFoundError:
        return None


@cache
def _bytes_of(name: str, version: str) -> int:
    """Of the installed distribution; 0 where there is none of that version."""
    if _requirements_of(name) is None or (found := distribution(name)).version != version:
        return 0
    return sum(file.size or 0 for file in found.files or [])


def bill_of(wheel: Path, environment: Mapping[str, Any]) -> dict[str, Any]:
    """The wheel, all that it needs as installed here, and the bundles inside it."""
    known: dict[str, Component] = {canonicalize_name(each["name"]): each for each in environment["components"]}
    name = canonicalize_name(wheel.name.split("-")[0])
    needs = needs_of(name)
    digest = {"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    return {
        **{field: environment[field] for field in ("$schema", "bomFormat", "specVersion")},
        "version": 1,
        "metadata": {"component": {**known[name], "hashes": [digest]}},
        "components": [*(known[each] for each in sorted(needs.keys() - {name})), *bundles_in(wheel)],
        "dependencies": [
            {"ref": known[each]["bom-ref"], "dependsOn": sorted(known[other]["bom-ref"] for other in needs[each])}
            for each in sorted(needs)
        ],
    }


def bundles_in(wheel: Path) -> Iterator[Component]:
    """With all that their manifests say about licences: what is in brackets may forbid more than what is before."""
    with zipfile.ZipFile(wheel) as opened:
        for file in opened.namelist():
            if file.endswith("/manifest.json"):
                manifest = json.loads(opened.read(file))
                yield {
                    "type": "machine-learning-model",
                    "bom-ref": f"bundle:{manifest['name']}",
                    "name": f"bundle:{manifest['name']}",
                    "version": manifest["version"],
                    "licenses": [{"license": {"name": manifest["licence"]}}],
                }


def _components_of(bill: Mapping[str, Any], environment: Mapping[str, Any]) -> list[Component]:
    """All but the operating system; those of the environment as it has them, since syft reads fewer licences."""

    def key(each: Component) -> tuple[str, str]:
        return canonicalize_name(each["name"]), each.get("version", "")

    known = {key(each): each for each in environment["components"]}
    return [known.get(key(each), each) for each in bill["components"] if each["type"] != "operating-system"]


def table_of(files: Iterable[Path], bills: Mapping[str, Iterable[Component]]) -> str:
    """The files of the release, and what the bills name, as Markdown."""
    lines = ["# Sizes and licences", "", "| file | MB |", "|---|---|"]
    lines += [f"| {file.name} | {file.stat().st_size / 1e6:.2f} |" for file in files]
    where: dict[tuple[str, ...], list[str]] = {}
    for name, bill in bills.items():
        for each in bill:
            licence = ", ".join(licences_of(each)) or "unknown"
            mark = " *" * any(listed in licence for listed in POLICY["listed"])
            size = _bytes_of(each["name"], each.get("version", ""))
            row = (each["name"], each.get("version", ""), licence + mark, f"{size / 1e6:.2f}" if size else "")
            where.setdefault(row, []).append(name)
    lines += ["", "\\*: copyleft for the component's own files. MB are those installed from a wheel.", ""]
    lines += ["| component | version | licence | MB | in |", "|---|---|---|---|---|"]
    lines += [
        f"| {' | '.join(row)} | {', '.join(where[row])} |" for row in sorted(where, key=lambda row: row[0].lower())
    ]
    return "\n".join([*lines, ""])


def main(folder: Path, environment: Path) -> int:
    """Writes the bills and the table; 1 where the policy refuses a component."""
    described = json.loads(environment.read_text())
    for wheel in folder.glob("*.whl"):
        Path(f"{wheel}.cdx.json").write_text(json.dumps(bill_of(wheel, described), indent=1) + "\n")
    bills = {
        re.sub(r"-\d.*", "", file.name): _components_of(json.loads(file.read_text()), described)
        for file in sorted(folder.glob("*.cdx.json"))
    }
    files = sorted(file for file in folder.iterdir() if not file.name.endswith(".cdx.json"))
    (folder / "LICENCES.md").write_text(table_of(files, bills))
    refused = {
        f"{each['name']} {each.get('version', '')} in {name}: {reason}"
        for name, bill in bills.items()
        for each in bill
        if (reason := refusal_of(each)) is not None
    }
    sys.stderr.writelines(
        f"no release: {each}; see [tool.turnscore.licences] in pyproject.toml\n" for each in sorted(refused)
    )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
