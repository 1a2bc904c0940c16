"""Bundles: one version of one scorer with its checksums; read, checked, stored and found by name and version."""

from turnscore_models.bundle import Bundle, copy_bundle, known_kinds, read_bundle, read_manifest, write_bundle
from turnscore_models.errors import (
    BundleError,
    BundleExistsError,
    BundleNotFoundError,
    CorruptBundleError,
    InvalidManifestError,
    MismatchedGraphError,
    MissingBundleFileError,
    UnknownKindError,
)
from turnscore_models.manifest import (
    Calibration,
    GraphSpec,
    GraphVariant,
    Manifest,
    SelfTest,
    SelfTestTurn,
    TensorSpec,
)
from turnscore_models.starter import starter_bundles

__all__ = [
    "Bundle",
    "BundleError",
    "BundleExistsError",
    "BundleNotFoundError",
    "Calibration",
    "CorruptBundleError",
    "GraphSpec",
    "GraphVariant",
    "InvalidManifestError",
    "Manifest",
    "MismatchedGraphError",
    "MissingBundleFileError",
    "SelfTest",
    "SelfTestTurn",
    "TensorSpec",
    "UnknownKindError",
    "copy_bundle",
    "known_kinds",
    "read_bundle",
    "read_manifest",
    "starter_bundles",
    "write_bundle",
]
