"""The model store: keeps bundles in BentoML's store, finds them by name and version. The only user of bentoml here."""

import shutil
import tarfile
import tempfile
from pathlib import Path

import bentoml
from bentoml.exceptions import BentoMLException

from turnscore_models.bundle import Bundle, read_bundle, read_manifest
from turnscore_models.errors import BundleExistsError, BundleNotFoundError, InvalidManifestError
from turnscore_models.manifest import MANIFEST_FILE, Manifest

LATEST = "latest"
_LABEL = "turnscore"
"""Marks our bundles among the models that others keep in the same store."""


def list_bundles() -> list[Manifest]:
    """The manifests of all stored bundles, by name, then oldest version first. Files are not checked."""
    found = [read_manifest(Path(model.path)) for model in bentoml.models.list() if _LABEL in model.info.labels]
    return sorted(found, key=lambda manifest: (manifest.name, version_order(manifest.version)))


def find_bundle(reference: str) -> Bundle:
    """The stored bundle `name`, `name:latest` (the highest version) or `name:version`, checked.

    Raises BundleNotFoundError, or what `read_bundle` raises.
    """
    name, _, version = reference.partition(":")
    stored = [manifest for manifest in list_bundles() if manifest.name == name]
    if version in ("", LATEST):
        chosen = stored[-1:]
    else:
        chosen = [manifest for manifest in stored if manifest.version == version]
    if not chosen:
        known = ", ".join(manifest.reference for manifest in stored) or "none of that name"
        raise BundleNotFoundError(f"no bundle {reference} in the model store; stored: {known}")
    return read_bundle(_stored_folder(chosen[0]))


def resolve(reference: str) -> Bundle:
    """The bundle a setting or a command names: a folder if there is a `/` in it, else one in the store."""
    if "/" in reference:
        folder = Path(reference).expanduser()
        if not folder.is_dir():
            raise BundleNotFoundError(f"there is no bundle folder {reference}")
        return read_bundle(folder)
    return find_bundle(reference)


def import_bundle(source: Path) -> Bundle:
    """Puts the bundle in `source`, a folder or a `.tar.gz` made by `export_bundle`, into the store, checked.

    Importing the same content again changes nothing. Raises BundleExistsError where that version has other
    content, or what `read_bundle` raises.
    """
    with tempfile.TemporaryDirectory(prefix="turnscore-import-") as scratch:
        folder = source if source.is_dir() else _unpack(source, Path(scratch))
        return _store(read_bundle(folder))


def export_bundle(bundle: Bundle, target: Path) -> Path:
    """Writes the bundle's files, and nothing else, as `target`, a gzipped tar. Never overwrites."""
    with tarfile.open(target, "x:gz") as archive:
        for name in [MANIFEST_FILE, *sorted(bundle.manifest.files)]:
            archive.add(bundle.path_of(name), arcname=name)
    return target


def version_order(version: str) -> tuple[int, ...]:
    """Sorts versions as numbers: 1.10.0 comes after 1.9.0."""
    return tuple(int(part) for part in version.split("."))


def _store(bundle: Bundle) -> Bundle:
    manifest = bundle.manifest
    if any(stored.reference == manifest.reference for stored in list_bundles()):
        if read_manifest(_stored_folder(manifest)) != manifest:
            raise BundleExistsError(
                f"the model store already holds another {manifest.reference}; give it a new version"
            )
        return read_bundle(_stored_folder(manifest))
    labels = {_LABEL: "bundle", "kind": manifest.kind}
    try:
        with bentoml.models.create(manifest.reference, labels=labels) as model:
            for name in [MANIFEST_FILE, *manifest.files]:
                target = Path(model.path) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.path_of(name), target)
    except BentoMLException as error:
        raise BundleExistsError(f"the model store refuses {manifest.reference}: {error}") from error
    return read_bundle(_stored_folder(manifest))


def _stored_folder(manifest: Manifest) -> Path:
    return Path(bentoml.models.get(manifest.reference).path)


def _unpack(archive: Path, scratch: Path) -> Path:
    if not archive.exists():
        raise BundleNotFoundError(f"{archive} does not exist")
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(scratch, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InvalidManifestError(f"{archive} is not a bundle archive: {error}") from error
    return scratch
