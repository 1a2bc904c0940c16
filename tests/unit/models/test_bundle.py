import json
import re

import pytest
from support.bundles import make_bundle
from turnscore_models import manifest
from turnscore_models.bundle import MAX_DOCUMENT_BYTES, copy_bundle, read_bundle, starter_bundles, write_bundle


@pytest.fixture
def folder(tmp_path):
    return make_bundle(tmp_path / "bundle").folder


def change_manifest(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_written_bundle_reads_back(folder):
    bundle = read_bundle(folder)
    assert bundle.manifest.reference == "engagement:1.0.0"
    assert sorted(bundle.manifest.files) == ["calibration.json", "graph.onnx", "self_test.json", "tokenizer.json"]
    assert bundle.calibration().turns == 5
    assert bundle.self_test().turns[0].response == "ok"


@pytest.mark.parametrize("name", ["calibration.json", "graph.onnx", "self_test.json", "tokenizer.json"])
def test_a_changed_file_is_refused_by_its_name(folder, name):
    with (folder / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(manifest.CorruptBundleError, match=rf"engagement:1\.0\.0: {name} has SHA-256"):
        read_bundle(folder)


def test_a_missing_file_is_refused_by_its_name(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(manifest.MissingBundleFileError, match=r"lacks the file tokenizer\.json"):
        read_bundle(folder)


def test_an_unknown_kind_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(manifest.UnknownKindError, match=r"of kind 'mood'.*scorers for: .*engagement"):
        make_bundle(tmp_path / "bundle", kind="mood")


BROKEN_MANIFESTS = [
    ({"format_version": 2}, "format_version"),
    ({"version": "one"}, "version"),
    ({"name": "../x"}, "name"),
    ({"files": {"../../etc/passwd": "0" * 64}}, "inside the bundle"),
    ({"files": {}}, "no SHA-256 for calibration.json"),
    ({"graphs": {}}, "graphs"),
    ({"unheard": 1}, "unheard"),
    ({"version": "01.0.0"}, "version"),
    ({"version": "1.0.1234567890"}, "version"),
    ({"options": {"weights": [1.0, float("nan")]}}, r"options.*not JSON"),
    ({"training": {"loss": float("inf")}}, r"training.*not JSON"),
]


@pytest.mark.parametrize(("changes", "said"), BROKEN_MANIFESTS)
def test_a_broken_manifest_is_refused_by_the_field(folder, changes, said):
    change_manifest(folder, **changes)
    with pytest.raises(manifest.InvalidManifestError, match=said):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["weights.bin", "graphs/weights.bin", ".DS_Store", "graphs/model.yaml"])
def test_a_file_that_the_manifest_does_not_list_is_refused_by_its_name(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"weights that no checksum covers")
    with pytest.raises(manifest.InvalidManifestError, match=rf"gives no SHA-256 for {re.escape(name)}"):
        read_bundle(folder)


def test_a_linked_folder_is_refused_as_its_files_have_no_checksum(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (folder / "graphs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(manifest.InvalidManifestError, match="gives no SHA-256 for graphs"):
        read_bundle(folder)


@pytest.mark.parametrize("shipped", starter_bundles(), ids=lambda path: path.name)
def test_a_starter_bundle_can_be_read_and_copied(shipped, tmp_path):
    assert copy_bundle(read_bundle(shipped), tmp_path / "copy").digest == read_bundle(shipped).digest


def test_a_manifest_that_is_no_json_is_refused(folder):
    (folder / "manifest.json").write_text("{")
    with pytest.raises(manifest.InvalidManifestError, match=r"manifest\.json"):
        read_bundle(folder)


def test_a_falling_calibration_curve_is_refused(folder):
    curve = {"percentiles": [1.0] * 100 + [0.5], "turns": 5, "source": "made up"}
    (folder / "calibration.json").write_text(json.dumps(curve))
    with pytest.raises(manifest.BundleError):
        read_bundle(folder)
    bundle = make_bundle(folder.parent / "second")
    bundle.path_of("calibration.json").write_text(json.dumps(curve))
    with pytest.raises(manifest.InvalidManifestError, match="never decrease"):
        bundle.calibration()


def test_the_digest_changes_with_every_file_and_not_with_the_prose(tmp_path):
    digests = {make_bundle(tmp_path / "plain").digest}
    for name in ("calibration.json", "graph.onnx", "self_test.json", "tokenizer.json"):
        changed = make_bundle(tmp_path / name)
        with changed.path_of(name).open("ab") as file:
            file.write(b" ")
        digests.add(write_bundle(changed.folder, changed.manifest).digest)
    assert len(digests) == 5
    told_otherwise = make_bundle(tmp_path / "told")
    change_manifest(told_otherwise.folder, licence="MIT")
    assert read_bundle(told_otherwise.folder).digest in digests


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "sentiment_stop"}, {"tokenizer": "self_test.json"}, {"calibration": "self_test.json"},
        {"token_limit": 64}, {"options": {"join": "spaced"}},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_the_digest_changes_with_what_the_manifest_decides(folder, changes):
    plain = read_bundle(folder).digest
    change_manifest(folder, **changes)
    assert read_bundle(folder).digest != plain


@pytest.mark.parametrize("name", ["../x.npz", "/etc/passwd", "unlisted.bin", "manifest.json"])
def test_only_files_with_a_checksum_have_a_place(folder, name):
    with pytest.raises(manifest.InvalidManifestError, match="gives no SHA-256"):
        read_bundle(folder).path_of(name)


def test_the_model_stores_own_file_is_none_of_a_bundles(folder):
    (folder / "model.yaml").write_text("name: mine")
    files = json.loads((folder / "manifest.json").read_text())["files"]
    change_manifest(folder, files={**files, "model.yaml": "0" * 64})
    with pytest.raises(manifest.InvalidManifestError, match=r"lists model\.yaml"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["manifest.json", "calibration", "self_test"])
def test_a_document_that_is_too_large_is_refused_before_it_is_parsed(tmp_path, name, monkeypatch):
    bundle = make_bundle(tmp_path / "large")
    path = bundle.folder / (name if name == "manifest.json" else getattr(bundle.manifest, name))
    path.write_text(path.read_text() + " " * MAX_DOCUMENT_BYTES)
    read = {"manifest.json": lambda: read_bundle(bundle.folder), "calibration": bundle.calibration}
    monkeypatch.setattr(manifest.Manifest, "model_validate_json", lambda *_: pytest.fail("it was parsed"))
    with pytest.raises(manifest.InvalidManifestError, match=rf"{path.name} has more than {MAX_DOCUMENT_BYTES} bytes"):
        read.get(name, bundle.self_test)()


def test_a_manifest_of_too_many_files_or_too_deep_a_path_is_refused(tmp_path):
    bundle = make_bundle(tmp_path / "many")
    document = json.loads((bundle.folder / "manifest.json").read_text())
    checksum = "0" * 64
    for files, problem in (
        ({f"{number}.bin": checksum for number in range(manifest.MAX_FILES + 1)}, "at most 1000 items"),
        ({"/".join("a" * (manifest.MAX_DEPTH + 2)): checksum}, "at most 8 folders"),
    ):
        (bundle.folder / "manifest.json").write_text(json.dumps({**document, "files": files}))
        with pytest.raises(manifest.InvalidManifestError, match=problem):
            read_bundle(bundle.folder)


def test_a_folder_of_too_many_files_or_folders_in_each_other_is_refused(tmp_path):
    deep = make_bundle(tmp_path / "deep")
    place = deep.folder
    for _ in range(manifest.MAX_DEPTH + 1):
        place = place / "a"
        place.mkdir()
    with pytest.raises(manifest.InvalidManifestError, match="folders in each other"):
        read_bundle(deep.folder)
    many = make_bundle(tmp_path / "many")
    for number in range(manifest.MAX_FILES):
        (many.folder / f"{number}.bin").touch()
    with pytest.raises(manifest.InvalidManifestError, match="more than 1000 files"):
        read_bundle(many.folder)
