"""`turnscore info` on a model store of its own: its commands in this process, and once as a user runs it."""

import errno
import gzip
import json
import os
import tarfile
import tempfile
import threading
from contextlib import contextmanager, suppress

import pytest
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.models import ModelStore
from support.bundles import make_bundle
from turnscore_models.bundle import starter_bundles, write_bundle
from turnscore_models.cli import app
from typer.testing import CliRunner

pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # BentoML's, of pathspec
STARTER = next(folder for folder in starter_bundles() if folder.name == "engagement")
STARTER_VERSION = json.loads((STARTER / "manifest.json").read_text())["version"]
STARTER_REFERENCE = f"engagement:{STARTER_VERSION}"


class Store:
    """Runs a command on the store in a folder; returns what it printed."""

    def __init__(self, home):
        (home / "models").mkdir(parents=True)
        self._models = ModelStore(home / "models")

    def __call__(self, *words, expect=0):
        BentoMLContainer.model_store.set(self._models)
        try:
            done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "200"}, prog_name="turnscore models")
        finally:
            BentoMLContainer.model_store.reset()
        assert done.exit_code == expect, (done.output, done.exc_info)
        return done.output


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "bentoml")


def test_bundles_are_imported_listed_shown_verified_and_exported(store, tmp_path):
    for version in ("1.9.0", "1.10.0"):
        store("import", make_bundle(tmp_path / version, version=version).folder)
    listed = store("list")
    assert "engagement:1.9.0" in listed
    assert "engagement:1.10.0" in listed
    assert json.loads(store("show", "engagement"))["version"] == "1.10.0"
    assert json.loads(store("show", "engagement:latest"))["version"] == "1.10.0"
    assert json.loads(store("show", "engagement:1.9.0"))["version"] == "1.9.0"
    assert "4 files" in store("verify", "engagement:1.9.0")

    archive = tmp_path / "engagement.tar.gz"
    store("export", "engagement:1.9.0", archive)
    assert "refused" in store("export", "engagement:1.9.0", archive, expect=1)
    elsewhere = Store(tmp_path / "elsewhere")
    elsewhere("import", archive)
    assert json.loads(elsewhere("show", "engagement:1.9.0"))["version"] == "1.9.0"


def test_what_cannot_be_trusted_is_refused_with_a_sentence(store, tmp_path):
    bundle = make_bundle(tmp_path / "bundle")
    store("import", bundle.folder)
    assert "stored engagement:1.0.0" in store("import", bundle.folder)

    bundle.path_of("graph.onnx").write_bytes(b"something else")
    assert "graph.onnx has SHA-256" in store("import", bundle.folder, expect=1)
    other = make_bundle(tmp_path / "other", version="1.0.0")
    other.path_of("graph.onnx").write_bytes(b"another graph")
    write_bundle(other.folder, other.manifest)
    assert "already holds another engagement:1.0.0" in store("import", other.folder, expect=1)
    assert "stored: engagement:1.0.0" in store("show", "engagement:2.0.0", expect=1)
    assert "no bundle mood" in store("verify", "mood", expect=1)

    climbing = tmp_path / "climbing.tar.gz"
    with tarfile.open(climbing, "w:gz") as archive:
        archive.add(bundle.path_of("graph.onnx"), arcname="../../escaped")
    assert "is not a bundle archive" in store("import", climbing, expect=1)
    assert "does not exist" in store("import", tmp_path / "nothing.tar.gz", expect=1)


def stored_file(tmp_path, version, name):
    return tmp_path / "bentoml" / "models" / "engagement" / version / name


def test_a_damaged_stored_bundle_is_refused_and_not_replaced_by_the_starter(store, tmp_path):
    assert str(STARTER) in store("verify", STARTER_REFERENCE)
    store("import", make_bundle(tmp_path / "bundle", version=STARTER_VERSION).folder)
    graph = stored_file(tmp_path, STARTER_VERSION, "graph.onnx")
    assert str(graph.parent) in store("verify", STARTER_REFERENCE)
    graph.write_bytes(b"something else")
    for reference in (STARTER_REFERENCE, "engagement", "engagement:latest"):
        assert "graph.onnx has SHA-256" in store("verify", reference, expect=1)


def test_one_broken_manifest_leaves_the_other_bundles_usable(store, tmp_path):
    for version in ("1.9.0", "1.10.0", "1.11.0"):
        store("import", make_bundle(tmp_path / version, version=version).folder)
    stored_file(tmp_path, "1.9.0", "manifest.json").write_text("{")
    assert "4 files" in store("verify", "engagement:1.10.0")
    assert "engagement:1.11.0" in store("verify", "engagement")
    listed = store("list")
    assert "engagement:1.11.0" in listed
    assert "broken" in listed
    assert "manifest.json" in listed
    store("import", make_bundle(tmp_path / "2.0.0", version="2.0.0").folder)

    stored_file(tmp_path, "2.0.0", "manifest.json").write_text("{")
    assert "manifest.json" in store("verify", "engagement:latest", expect=1)
    assert "manifest.json" in store("verify", "engagement:1.9.0", expect=1)


def test_a_stored_bundle_that_calls_itself_another_is_refused(store, tmp_path):
    for version in ("1.9.0", "1.10.0"):
        store("import", make_bundle(tmp_path / version, version=version).folder)
    stored_file(tmp_path, "1.9.0", "manifest.json").write_bytes(
        stored_file(tmp_path, "1.10.0", "manifest.json").read_bytes()
    )
    assert "calls itself engagement:1.10.0" in store("verify", "engagement:1.9.0", expect=1)


@pytest.mark.parametrize(
    "reference", ["~nouser/x", "no/such/folder", "a b", "Engagement", "engagement:1", ":1.0.0", ""]
)
def test_a_reference_to_nothing_is_refused_with_a_sentence(store, reference):
    assert store("verify", reference, expect=1).startswith("refused: ")


@contextmanager
def most_bytes_in(folder):
    """The most that lay in the folder at any moment of the block, looked at all the time."""
    sizes, ended = [0], threading.Event()

    def look():
        while not ended.wait(0.005):
            with suppress(FileNotFoundError):
                sizes.append(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield lambda: max(sizes)
    finally:
        ended.set()
        watcher.join()


def write_bomb(path, size, kind=tarfile.REGTYPE):
    """An archive of zeros, a thousandth of what it unpacks to: as a file, or as a header that is read at once."""
    member = tarfile.TarInfo("graph.onnx")
    member.size, member.type = size, kind
    with gzip.open(path, "wb", compresslevel=9) as packed:
        packed.write(member.tobuf())
        for _ in range(size // 2**20):
            packed.write(bytes(2**20))
    return path


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE])
def test_an_archive_bomb_is_refused_before_it_is_unpacked(store, tmp_path, kind):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    bomb = write_bomb(tmp_path / "bomb.tar.gz", 2**27, kind)
    with most_bytes_in(scratch) as most, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        said = store("import", bomb, expect=1)
    assert "unpacks to far more than a bundle of its size" in said
    assert most() < 100 * 2**20
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([f"file{number}" for number in range(1001)], "more than 1000 files"),
        (["/".join("a" * 2000)], "more than 8 folders in each other"),
    ],
)
def test_an_archive_of_many_files_or_folders_is_refused_and_leaves_nothing(store, tmp_path, names, said):
    crowd, scratch = tmp_path / "crowd.tar.gz", tmp_path / "scratch"
    scratch.mkdir()
    with tarfile.open(crowd, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(scratch))
        assert said in store("import", crowd, expect=1)
    assert list(scratch.iterdir()) == []


def test_a_full_store_refuses_a_bundle_and_keeps_nothing_of_it(store, tmp_path):
    bundle = make_bundle(tmp_path / "bundle")

    def fill(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnscore_models.store.shutil.copyfile", fill)
        said = store("import", bundle.folder, expect=1)
    assert "engagement:1.0.0 cannot be put into the model store: No space left on device" in said
    assert "engagement:1.0.0" not in store("list")
    assert "stored engagement:1.0.0" in store("import", bundle.folder)
