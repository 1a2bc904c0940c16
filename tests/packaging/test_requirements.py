"""The pinned dependencies of the CPU's and the GPU's service, who takes them, and their licences."""

import json
import runpy
import zipfile
from importlib.metadata import metadata
from types import SimpleNamespace

import pytest
from support.environments import pins, unhashed
from support.files import ROOT

licences = SimpleNamespace(**runpy.run_path(str(ROOT / "deploy" / "licences.py")))
OURS = (
    "turnscore", "turnscore-core", "turnscore-client", "turnscore-assessment", "turnscore-exporters",
    "turnscore-corpus",
)  # fmt: skip


def test_what_the_tests_run_with_is_what_is_served():
    served, tested = pins("serve.txt"), pins("dev.txt")
    assert {name: tested.get(name) for name in served} == served


def test_on_a_gpu_only_the_runtime_and_its_cuda_wheels_are_others():
    cpu, gpu = pins("serve.txt"), pins("serve-gpu.txt")
    assert cpu.keys() - gpu.keys() == {"onnxruntime"}
    added = gpu.keys() - cpu.keys()
    assert {name for name in added if not name.startswith("nvidia-")} == {"onnxruntime-gpu"}
    assert gpu["onnxruntime-gpu"] == cpu["onnxruntime"]
    assert {name: version for name, version in gpu.items() if name not in added} == {
        name: version for name, version in cpu.items() if name != "onnxruntime"
    }


@pytest.mark.parametrize(("image", "served"), [("image-cpu.txt", "serve.txt"), ("image-cuda.txt", "serve-gpu.txt")])
def test_an_image_installs_what_is_served_each_file_by_its_hash(image, served):
    installed, wanted = pins(image), pins(served)
    # redis needs async-timeout before Python 3.11.3; hf-xet, 11 MB, downloads files of a hub, which no image asks
    others = {("async-timeout", installed["async-timeout"]), ("hf-xet", wanted["hf-xet"])}
    assert installed.items() ^ wanted.items() == others
    assert unhashed(image) == []
    assert f"!requirements/{image}" in (ROOT / ".dockerignore").read_text().splitlines()
    assert (ROOT / "Dockerfile").read_text().count(f"COPY requirements/{image} ") == 1


def test_every_image_that_installs_checks_the_hashes():
    installs = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if "--requirement" in line]
    assert ['"--require-hashes"' in line for line in installs] == [True, True]


def described(name):
    """The installed distribution, with the licence that it declares."""
    found = metadata(name)
    classifiers = [each for each in found.get_all("Classifier") or () if each.startswith("License ::")]
    names = [found[field] for field in ("License-Expression",) if found[field]] or classifiers or [found["License"]]
    return {"name": found["Name"], "licenses": [{"license": {"name": each}} for each in names if each]}


def test_every_distribution_that_ours_need_has_a_licence_within_the_policy():
    needed = {each for name in OURS for each in licences.needs_of(name)}
    assert {"onnxruntime", "torch", "pyarrow", "rich"} <= needed
    assert not needed & {"pytest", "locust", "ray"}  # the extra `dev`, and what is not installed
    refused = {name: licences.refusal_of(described(name)) for name in needed}
    assert {name: why for name, why in refused.items() if why} == {}
    elsewhere = pins("serve-gpu.txt").keys() - pins("dev.txt").keys()  # not installed here, so a person looked them up
    assert elsewhere - licences.POLICY["by_hand"].keys() == {"onnxruntime-gpu"}


OUTSIDE_THE_POLICY = [
    ("MIT", None),
    ("GPL-3.0-only OR MIT", None),
    ("MIT AND AGPL-3.0-or-later", "MIT AND AGPL-3.0-or-later is not allowed"),
    ("(MIT OR GPL-2.0-only) AND ISC", "(MIT OR GPL-2.0-only) AND ISC is not allowed"),
    ("", "its licence is unknown"),
]


@pytest.mark.parametrize(("licence", "reason"), OUTSIDE_THE_POLICY)
def test_a_component_outside_the_policy_or_unknown_is_refused(licence, reason):
    component = {"name": "made-up", "licenses": [{"license": {"name": licence}}] if licence else []}
    assert licences.refusal_of(component) == reason
    if reason != "its licence is unknown":
        assert licences.refusal_of({**component, "name": "protobuf"}) == reason  # by hand for another declaration
    assert licences.refusal_of({**component, "purl": "pkg:deb/debian/bash@5"}) is None


@pytest.mark.parametrize("declared", [[], [{"license": {"name": "3-Clause BSD License"}}]])
def test_what_a_person_found_holds_while_a_component_declares_what_it_did_or_nothing(declared):
    component = {"name": "protobuf", "licenses": declared}
    assert (licences.refusal_of(component), licences.licences_of(component)) == (None, ["BSD-3-Clause"])
    component["licenses"] = [*declared, {"license": {"id": "AGPL-3.0-only"}}]
    assert "AGPL-3.0-only is not allowed" in licences.refusal_of(component)
    assert "BSD-3-Clause" not in licences.licences_of(component)


def test_bundles_are_judged_and_listed_by_the_whole_licence_of_their_manifests(tmp_path):
    wheel = tmp_path / "made_up-1-py3-none-any.whl"
    made_up = {"name": "made-up", "version": "1", "licence": "MIT (trained on X, CC BY-NC 4.0)"}
    with zipfile.ZipFile(wheel, "w") as opened:
        opened.writestr("made_up/manifest.json", json.dumps(made_up))
        for file in (ROOT / "model_store/starter").glob("*/manifest.json"):
            opened.write(file, f"{file.parent.name}/manifest.json")
    bundles = {each["name"]: each for each in licences.bundles_in(wheel)}
    assert licences.refusal_of(bundles.pop("bundle:made-up")) == f"{made_up['licence']} is not allowed"
    assert {name: licences.refusal_of(each) for name, each in bundles.items()} == dict.fromkeys(bundles)
    rows = licences.table_of([], {"core": bundles.values()}).splitlines()
    marked = {row.split(" | ")[0].removeprefix("| ") for row in rows if "CC-BY-SA-4.0" in row and " * |" in row}
    assert marked == {"bundle:engagement", "bundle:fed", "bundle:quality", "bundle:reaction", "bundle:sentiment_stop"}


def test_a_refused_component_stops_the_release_and_the_table_names_all(tmp_path):
    component = {
        "type": "library", "name": "made-up", "version": "1", "licenses": [{"license": {"id": "GPL-3.0-only"}}],
    }  # fmt: skip
    bill = tmp_path / "turnscore-image-cpu-0.1.0.cdx.json"
    (environment := tmp_path / "environment.json").write_text('{"components": []}')
    bill.write_text(json.dumps({"components": [component]}))
    assert licences.main(tmp_path, environment) == 1
    assert "| made-up | 1 | GPL-3.0-only |  | turnscore-image-cpu |" in (tmp_path / "LICENCES.md").read_text()
    bill.write_text(json.dumps({"components": [{**component, "licenses": [{"license": {"id": "LGPL-3.0-only"}}]}]}))
    assert licences.main(tmp_path, environment) == 0
    assert "| made-up | 1 | LGPL-3.0-only * |" in (tmp_path / "LICENCES.md").read_text()
