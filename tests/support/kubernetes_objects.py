"""Kubernetes objects of the chart: rendered by a real helm, or as they are committed, and what their pod is made of."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "turnscore"
COMMITTED = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
HELM = shutil.which("helm", path=f"{ROOT / 'build' / 'tools'}{os.pathsep}{os.environ.get('PATH', '')}")

FULL = {
    "cache.secret": "redis",
    "cache.caSecret": "redis-ca",
    "keysSecret": "keys",
    "grpc.tlsSecret": "tls",
    "gpu.enabled": "true",
    "serviceMonitor.enabled": "true",
    "secretSettings": "more",
    "settings.TURNSCORE_LOG_LEVEL": "DEBUG",
}
ARCHIVE = {"models.archive.url": "https://s3.example/bundles.tar.gz", "models.archive.sha256": "ab" * 32}
ARCHIVE |= {"models.archive.credentialsSecret": "bucket"}
CHOICES: dict[str, dict[str, str]] = {
    "default": {},
    "keda": {"autoscaling.kind": "keda", **FULL},
    "fixed": {"autoscaling.kind": "none", "networkPolicy.enabled": "false"},
    "volume": {"models.source": "volume", "models.claim": "bundles", "models.names": "{engagement,quality}"},
    "image": {"models.source": "image", "models.image": "bundles:1", "models.names": "{engagement}"},
    "archive": {"models.source": "archive", "models.names": "{engagement}", **ARCHIVE, **FULL},
}
"""Values by a name for each; together they render every branch of the templates."""

Objects = list[dict[str, Any]]


def helm(*words: str) -> "subprocess.CompletedProcess[str]":
    assert HELM is not None
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False, timeout=120)


def set_flags(values: dict[str, str]) -> Sequence[str]:
    strings = ("settings.", "autoscaling.keda.")
    return [
        word
        for name, value in values.items()
        for word in ("--set-string" if name.startswith(strings) else "--set", f"{name}={value}")
    ]


def rendered(values: dict[str, str]) -> str:
    done = helm("template", "turnscore", str(CHART), *set_flags(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects_of(text: str) -> Objects:
    return [each for each in yaml.safe_load_all(text) if each]


def only(objects: Objects, kind: str) -> dict[str, Any]:
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def pod_of(objects: Objects) -> dict[str, Any]:
    return dict(only(objects, "Deployment")["spec"]["template"]["spec"])
