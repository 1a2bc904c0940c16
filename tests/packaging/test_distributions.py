"""The distributions: what their wheels hold, what they declare, and that their versions are one."""

import ast
import re
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = {
    ".": ("service/turnscore_service",), "core": ("core/turnscore_core", "model_store/turnscore_models"),
    "clients": ("clients/turnscore_wire", "clients/turnscore_client"),
    "assessment": ("assessment/turnscore_assessment",), "exporters": ("exporters/turnscore_exporters",),
    "corpora": ("corpora/turnscore_corpus",),
}  # fmt: skip
DATA = {
    ".": {"turnscore_service/api/page/static/turnscore/client.js"},
    "core": {"turnscore_models/starter/engagement/manifest.json"},
    "clients": {"turnscore_wire/v1/turnscore.proto"},
    "assessment": {"turnscore_assessment/data/dialogue_sets.json"},
    "exporters": {"turnscore_exporters/fed/qualities.json"},
    "corpora": set(),
}
# What another one brings, of the version that goes with it: ONNX Runtime by the extras `cpu` and `gpu`.
BROUGHT = {
    "kantoku": "bentoml", "markupsafe": "jinja2", "onnxruntime": "turnscore-core",
    "phoenix": "arize-phoenix-client", "pydantic-core": "pydantic", "uvicorn": "bentoml",
    "livekit": "livekit-agents", "pipecat": "pipecat-ai",
}  # fmt: skip
HOSTS = {"open_webui", "rasa"}  # What imports us, and is imported only where it does.


def project_of(folder):
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


def declared(folder):
    """By name: what the distribution asks for, extras included."""
    project = project_of(folder)
    extras = project.get("optional-dependencies", {})
    words = [*project["dependencies"], *(each for extra in extras if extra != "dev" for each in extras[extra])]
    return {canonicalize_name(each.name): each for each in map(Requirement, words)}


def imported(folder):
    """The top-level packages that its modules import, with the module."""
    for package in PACKAGES[folder]:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    yield node.module.partition(".")[0], str(file.relative_to(ROOT))
                elif isinstance(node, ast.Import):
                    yield from ((each.name.partition(".")[0], str(file.relative_to(ROOT))) for each in node.names)


@pytest.mark.packaging
@pytest.mark.parametrize("folder", PACKAGES)
def test_a_wheel_holds_its_packages_and_no_other(folder, wheels):
    name = project_of(folder)["name"].replace("-", "_")
    [wheel] = wheels.glob(f"{name}-[0-9]*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    own = {Path(package).name for package in PACKAGES[folder]}
    assert {each.split("/")[0] for each in names if ".dist-info/" not in each} == own
    assert {f"{package}/py.typed" for package in own} | DATA[folder] <= set(names)
    assert any(each.endswith("/licenses/LICENSE") for each in names)


@pytest.mark.parametrize("folder", PACKAGES)
def test_what_a_distribution_imports_it_asks_for(folder):
    """By itself, so that it does not run only where another one has brought what it needs."""
    home = {Path(package).name: each for each in PACKAGES for package in PACKAGES[each]}
    found_in = packages_distributions() | {package: [project_of(each)["name"]] for package, each in home.items()}
    asked = {project_of(folder)["name"], *declared(folder)}
    missing = {}
    for package, file in imported(folder):
        names = {str(canonicalize_name(each)) for each in found_in.get(package, [package])}
        names |= {BROUGHT[name] for name in names if name in BROUGHT}
        if package not in sys.stdlib_module_names | HOSTS and not names & asked:
            missing[package] = file
    assert missing == {}


def test_the_versions_are_one_and_each_asks_for_the_others_of_it():
    projects = {folder: project_of(folder) for folder in PACKAGES}
    [version] = {each["version"] for each in projects.values()}
    ours = {each["name"] for each in projects.values()}
    for folder in PACKAGES:
        pins = {name: str(each.specifier) for name, each in declared(folder).items() if name in ours}
        assert set(pins.values()) <= {f"=={version}"}, folder


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/corpus/Dockerfile"])
def test_an_image_is_given_the_wheels_that_its_wheels_need(file):
    projects = {each["name"]: each for each in map(project_of, PACKAGES)}
    given = {each.replace("_", "-") for each in re.findall(r"(turnscore\w*)-\*\.whl", (ROOT / file).read_text())}
    assert given >= {"turnscore"}
    needed = {Requirement(word).name for name in given for word in projects[name]["dependencies"]}
    assert needed & projects.keys() <= given


def test_the_service_asks_for_no_trainer_and_no_tables():
    trainers = {"torch", "transformers", "onnx", "scikit-learn", "scipy", "turnscore-exporters"}
    assert not declared(".").keys() & {*trainers, "pyarrow"}
