"""Bundles: one version of one scorer with its checksums; read, checked, stored and found by name and version."""

from turnscore_models.bundle import (
    Bundle,
    copy_bundle,
    known_kinds,
    private_copy,
    read_bundle,
    read_document,
    read_manifest,
    write_bundle,
)
from turnscore_models.combination_calibration import CombinationCalibration
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
    GraphOutput,
    GraphSpec,
    GraphVariant,
    Manifest,
    Recall,
    SelfTest,
    SelfTestTurn,
    TensorSpec,
    Threshold,
)
from turnscore_models.starter import starter_bundles

__all__ = [
    "Bundle",
    "BundleError",
    "BundleExistsError",
    "BundleNotFoundError",
    "Calibration",
    "CombinationCalibration",
    "CorruptBundleError",
    "GraphOutput",
    "GraphSpec",
    "GraphVariant",
    "InvalidManifestError",
    "Manifest",
    "MismatchedGraphError",
    "MissingBundleFileError",
    "Recall",
    "SelfTest",
    "SelfTestTurn",
    "TensorSpec",
    "Threshold",
    "UnknownKindError",
    "copy_bundle",
    "known_kinds",
    "private_copy",
    "read_bundle",
    "read_document",
    "read_manifest",
    "starter_bundles",
    "write_bundle",
]
