"""The model store: finds bundles by name and version, in BentoML's store, then among the starter bundles.

A bundle that cannot be read is refused when it is asked for, and stops no other. Without BentoML, which the extra
`store` installs, nothing is stored, and folders and starter bundles are found all the same.
"""

import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from turnscore_models.archive import UNPACKING_ERRORS, unpack
from turnscore_models.bundle import Bundle, read_bundle, read_manifest
from turnscore_models.errors import BundleError, BundleExistsError, BundleNotFoundError, InvalidManifestError
from turnscore_models.manifest import MANIFEST_FILE, Manifest
from turnscore_models.starter import starter_bundles

LATEST = "latest"
_LABEL = "turnscore"
"""Marks our bundles among the models that others keep in the same store."""
_PINNED = re.compile(r"[a-z][a-z0-9_-]{0,62}:[0-9]+\.[0-9]+\.[0-9]+")
"""A reference that BentoML takes as it is; it changes others, such as those with capitals."""


@dataclass(frozen=True)
class KnownBundle:
    """A bundle that has a place; nothing in it was read yet."""

    name: str
    version: str
    folder: Path

    @property
    def reference(self) -> str:
        """`name:version`."""
        return f"{self.name}:{self.version}"

    def read(self) -> Bundle:
        """The bundle, checked. Raises what `read_bundle` raises, also if the manifest has another name."""
        bundle = read_bundle(self.folder)
        if bundle.manifest.reference != self.reference:
            raise InvalidManifestError(f"{self.reference} calls itself {bundle.manifest.reference} (in {self.folder})")
        return bundle


def list_bundles(name: str | None = None) -> list[KnownBundle]:
    """All stored bundles, or those of a name, by name, then oldest version first. Nothing in them is read."""
    if (bentoml := _import_bentoml()) is None:
        return []
    try:
        models = bentoml.models.list(name)
    except bentoml.exceptions.NotFound:
        return []
    except bentoml.exceptions.BentoMLException as error:
        raise BundleError(f"the model store cannot be read: {error}") from error
    found = [_known(model) for model in models if _LABEL in model.info.labels]
    return sorted(found, key=lambda each: (each.name, version_order(each.version)))


def resolve(reference: str) -> Bundle:
    """The bundle a setting or a command names, checked; a folder if there is a `/` in it.

    `name:version` is the stored bundle, else the starter bundle of that version. `name` and `name:latest` are the
    highest stored version, else the starter bundle. Raises BundleNotFoundError, or what `read_bundle` raises: a bundle
    that is there and broken is refused, never replaced by another.
    """
    if "/" in reference:
        return read_bundle(_folder_of(reference))
    name, _, version = reference.partition(":")
    if version in ("", LATEST):
        known = list_bundles(name)[-1:] if _PINNED.fullmatch(f"{name}:0.0.0") else []
    else:
        stored = _find_stored(reference)
        known = [] if stored is None else [stored]
    known += [each for each in _list_starters() if each.name == name and version in ("", LATEST, each.version)]
    if not known:
        raise BundleNotFoundError(
            f"no bundle {reference}; stored: {_names_stored()}; starter bundles: {_names(_list_starters())}"
        )
    return known[0].read()


def import_bundle(source: Path) -> Bundle:
    """Puts the bundle in `source`, a folder or a `.tar.gz` made by `export_bundle`, into the store, checked.

    Importing the same content again changes nothing; a stored version that is broken is replaced. Raises
    BundleExistsError where that version has other content, or what `read_bundle` raises; nothing then stays behind.
    """
    with tempfile.TemporaryDirectory(prefix="turnscore-import-") as scratch:
        folder = source if source.is_dir() else _unpack(source, Path(scratch))
        return _store(read_bundle(folder))


def export_bundle(bundle: Bundle, target: Path) -> Path:
    """Writes the bundle's files, and nothing else, as `target`, a gzipped tar. Never overwrites."""
    with tarfile.open(target, "x:gz") as archive:
        for name in [MANIFEST_FILE, *sorted(bundle.manifest.files)]:
            archive.add(bundle.folder / name, arcname=name)
    return target


def version_order(version: str) -> tuple[int, ...]:
    """Sorts versions as numbers: 1.10.0 comes after 1.9.0; what is no version comes before all."""
    return tuple(int(part) for part in version.split(".")) if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) else ()


def _store(bundle: Bundle) -> Bundle:
    if (bentoml := _import_bentoml()) is None:
        raise BundleError("storing bundles takes BentoML: install turnscore-core[store]")
    manifest = bundle.manifest
    stored = _find_stored(manifest.reference)
    if stored is not None and (whole := _read_whole(stored)) is not None:
        if whole.manifest != manifest:
            raise BundleExistsError(
                f"the model store already holds another {manifest.reference}; give it a new version"
            )
        return whole
    labels = {_LABEL: "bundle", "kind": manifest.kind}
    try:
        if stored is not None:
            bentoml.models.delete(manifest.reference)
        with bentoml.models.create(manifest.reference, labels=labels) as model:
            for name in [MANIFEST_FILE, *manifest.files]:
                target = Path(model.path) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.folder / name, target)
            read_bundle(Path(model.path))  # what is refused here was never stored
    except OSError as error:
        reason = error.strerror or error
        raise BundleError(f"{manifest.reference} cannot be put into the model store: {reason}") from error
    except bentoml.exceptions.BentoMLException as error:
        raise BundleExistsError(f"the model store refuses {manifest.reference}: {error}") from error
    return _known(bentoml.models.get(manifest.reference)).read()


def _read_whole(stored: KnownBundle) -> Bundle | None:
    """The stored bundle; None where it is broken, and so holds the place of nothing that can be used."""
    try:
        return stored.read()
    except BundleError:
        return None


def _find_stored(reference: str) -> KnownBundle | None:
    """The stored bundle `name:version`; no other is touched."""
    if not _PINNED.fullmatch(reference) or (bentoml := _import_bentoml()) is None:
        return None
    try:
        model = bentoml.models.get(reference)
    except bentoml.exceptions.NotFound:
        return None
    except bentoml.exceptions.BentoMLException as error:
        raise InvalidManifestError(f"the model store cannot read {reference}: {error}") from error
    return _known(model) if _LABEL in model.info.labels else None


def _import_bentoml() -> ModuleType | None:
    """Imported when it is needed, as that takes a second; None where it is not installed."""
    try:
        import bentoml
        import bentoml.exceptions
    except ModuleNotFoundError:
        return None
    return bentoml


def _known(model: Any) -> KnownBundle:
    return KnownBundle(model.tag.name, model.tag.version or "", Path(model.path))


def _list_starters() -> list[KnownBundle]:
    """The starter bundles that can be read."""
    known = []
    for folder in starter_bundles():
        try:
            manifest: Manifest = read_manifest(folder)
        except InvalidManifestError:
            continue  # it has no name to be found by; serving without settings still refuses it
        known.append(KnownBundle(manifest.name, manifest.version, folder))
    return known


def _names(known: list[KnownBundle]) -> str:
    return ", ".join(each.reference for each in known) or "none"


def _names_stored() -> str:
    installed = "" if _import_bentoml() else " (turnscore-core[store] is not installed)"
    return _names(list_bundles()) + installed


def _folder_of(reference: str) -> Path:
    try:
        folder = Path(reference).expanduser()
    except RuntimeError as error:  # `~name` of nobody
        raise BundleNotFoundError(f"there is no bundle folder {reference}: {error}") from None
    if not folder.is_dir():
        raise BundleNotFoundError(f"there is no bundle folder {reference}")
    return folder


def _unpack(archive: Path, scratch: Path) -> Path:
    if not archive.exists():
        raise BundleNotFoundError(f"{archive} does not exist")
    try:
        with archive.open("rb") as packed:
            unpack(packed, scratch)
    except UNPACKING_ERRORS as error:
        raise InvalidManifestError(f"{archive} is not a bundle archive: {error}") from error
    return scratch
