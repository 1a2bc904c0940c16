"""Alert rules and Kubernetes objects, read for tests."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "observability"


RULES = {
    group["name"]: group["rules"]
    for group in yaml.safe_load((FOLDER / "rules" / "turnscore.yml").read_text())["groups"]
}


def run_promtool(folder, step, cases):
    """Holds the rules against the cases, a value of each series a step. Skips where there is no promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    file = folder / "tests.yml"
    described = {
        "rule_files": [str(FOLDER / "rules" / "turnscore.yml")], "evaluation_interval": step,
        "group_eval_order": list(RULES), "tests": [{**each, "interval": step} for each in cases],
    }  # fmt: skip
    file.write_text(json.dumps(described))
    ran = subprocess.run([promtool, "test", "rules", str(file)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr


ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "turnscore"
COMMITTED = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
HELM = shutil.which("helm", path=f"{ROOT / 'build' / 'tools'}{os.pathsep}{os.environ.get('PATH', '')}")

FULL = {
    "cache.secret": "redis", "cache.caSecret": "redis-ca", "keysSecret": "keys", "grpc.tlsSecret": "tls",
    "serviceMonitor.enabled": "true", "secretSettings": "more", "settings.TURNSCORE_LOG_LEVEL": "DEBUG",
}  # fmt: skip
ROUTES = {"ingress.enabled": "true", "ingress.hosts": "{score.example}", "ingress.paths": "{/}"}
ROUTES |= {"ingress.tlsSecret": "score-tls", "ingress.className": "public", "ingress.annotations.a": "b"}
ROUTES |= {"gateway.enabled": "true", "gateway.hosts": "{bot.example}", "gateway.grpcHosts": "{grpc.example}"}
ROUTES |= {"gateway.timeouts.request": "0s"}
ROUTES |= {"gateway.parentRefs[0].name": "public", "gateway.parentRefs[0].namespace": "gateways"}
OBSERVED = {"prometheusRule.enabled": "true", "prometheusRule.labels.release": "kube", "dashboards.enabled": "true"}
VOLUME = {"models.source": "volume", "models.claim": "bundles", "models.names": "{engagement,quality}"}
GPU = {**VOLUME, "gpu.enabled": "true"}
ARCHIVE = {"models.archive.url": "https://s3.example/bundles.tar.gz", "models.archive.sha256": "ab" * 32}
ARCHIVE |= {"models.archive.credentialsSecret": "bucket"}
# Values by a name for each; together they render every branch of the templates.
CHOICES = {
    "default": {},
    "keda": {"autoscaling.kind": "keda", **FULL, **OBSERVED},
    "fixed": {"autoscaling.kind": "none", "networkPolicy.enabled": "false", "models.names": "{quality}"},
    "volume": {**VOLUME, **ROUTES},
    "image": {"models.source": "image", "models.image": "bundles:1", "models.names": "{engagement}"},
    "archive": {"models.source": "archive", "models.names": "{engagement}", **ARCHIVE, **FULL, "gpu.enabled": "true"},
}


def helm(*words):
    assert HELM is not None
    return subprocess.run([HELM, *words], capture_output=True, text=True, check=False, timeout=120)


def set_flags(values):
    strings = ("settings.", "autoscaling.keda.")
    return [
        word
        for name, value in values.items()
        for word in ("--set-string" if name.startswith(strings) else "--set", f"{name}={value}")
    ]


def rendered(values, release="turnscore", chart=CHART):
    done = helm("template", release, str(chart), *set_flags(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects_of(text):
    return [each for each in yaml.safe_load_all(text) if each]


def only(objects, kind):
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def pod_of(objects):
    return dict(only(objects, "Deployment")["spec"]["template"]["spec"])
