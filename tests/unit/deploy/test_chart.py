"""The chart and its plain manifests, by rules of our own and by Kubernetes' API schemas where the tools are there."""

import math
import os
from collections.abc import Iterator
from typing import Any

import pytest
from support.deployments import (
    CHART,
    CHOICES,
    COMMITTED,
    HELM,
    ROOT,
    Objects,
    helm,
    objects_of,
    only,
    pod_of,
    rendered,
    set_flags,
)
from turnscore_service.settings.service import Settings, refusal_of_unknown

needs_helm = pytest.mark.skipif(HELM is None, reason="there is no helm; `make deploy-tools` fetches one")
API = "1.35"


@pytest.fixture(
    scope="module",
    params=[*(path.name for path in COMMITTED), *(pytest.param(name, marks=needs_helm) for name in CHOICES)],
)
def objects(request: pytest.FixtureRequest) -> Objects:
    if request.param in CHOICES:
        return objects_of(rendered(CHOICES[request.param]))
    [file] = [path for path in COMMITTED if path.name == request.param]
    return objects_of(file.read_text())


def variables(objects: Objects) -> dict[str, str]:
    """The environment of the service's container; of a reference something that the field takes."""
    [container] = pod_of(objects)["containers"]
    return {each["name"]: each.get("value", "2") for each in container["env"]}


def test_every_variable_is_a_setting_and_has_a_value_it_takes(objects: Objects, monkeypatch: pytest.MonkeyPatch):
    given = variables(objects)
    assert refusal_of_unknown(Settings, given) == ""
    for name in [each for each in os.environ if each.startswith("TURNSCORE_")]:
        monkeypatch.delenv(name)
    references_to_files_and_secrets = ("_FILE", "TURNSCORE_CACHE__URL")
    for name, value in given.items():
        if not name.endswith(references_to_files_and_secrets):
            monkeypatch.setenv(name, value)
    assert Settings().runtime.threads == 1


def test_the_grace_covers_the_drain_the_work_in_flight_and_the_end(objects: Objects):
    given, pod = variables(objects), pod_of(objects)
    promised = float(given["TURNSCORE_DRAIN_SECONDS"]) + float(given["TURNSCORE_SHUTDOWN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= math.ceil(promised) + 10
    readiness = pod["containers"][0]["readinessProbe"]
    noticed = readiness["periodSeconds"] * readiness["failureThreshold"] + readiness["timeoutSeconds"]
    assert float(given["TURNSCORE_DRAIN_SECONDS"]) > noticed


def test_probes_ask_ports_and_paths_that_there_are_and_liveness_is_not_readiness(objects: Objects):
    [container] = pod_of(objects)["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"http": Settings.model_fields["http"].default_factory().port, "grpc": 50051}  # type: ignore[call-arg, misc]
    probes = {each: container[f"{each}Probe"]["httpGet"] for each in ("startup", "readiness", "liveness")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startup": "/readyz",
        "readiness": "/readyz",
        "liveness": "/livez",
    }
    assert {each["port"] for each in probes.values()} == {"http"}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120  # fed alone may take half a minute on one CPU


def test_services_reach_the_pod_s_ports_and_grpc_s_has_no_address(objects: Objects):
    deployment = only(objects, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    [container] = pod_of(objects)["containers"]
    names = {each["name"] for each in container["ports"]}
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    for spec in services.values():
        assert spec["selector"].items() <= labels.items()
        assert {each["targetPort"] for each in spec["ports"]} <= names
    headless = services["turnscore-grpc"]
    assert headless["clusterIP"] == "None"
    assert headless["ports"][0]["port"] == 50051  # clients dial the pods, so that it must be the pod's own


def selectors(objects: Objects) -> Iterator[dict[str, str]]:
    for each in objects:
        spec = each["spec"]
        if each["kind"] in ("Deployment", "PodDisruptionBudget"):
            yield spec["selector"]["matchLabels"]
        if each["kind"] == "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]
    for constraint in pod_of(objects)["topologySpreadConstraints"]:
        yield constraint["labelSelector"]["matchLabels"]


def test_everything_that_selects_pods_selects_ours(objects: Objects):
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    found = list(selectors(objects))
    assert len(found) >= 4
    assert all(each and each.items() <= labels.items() for each in found)


def test_the_pod_is_confined_and_writes_into_one_folder(objects: Objects):
    pod = pod_of(objects)
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"USER {pod['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text()
    assert not pod["automountServiceAccountToken"]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    volumes = {each["name"] for each in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    assert {each["name"] for each in mounts} == volumes
    assert [each["mountPath"] for each in mounts if not each.get("readOnly")] == ["/tmp"]
    assert "cpu" not in pod["containers"][0]["resources"]["limits"]


def test_files_that_settings_name_are_mounted(objects: Objects):
    folders = [each["mountPath"] + "/" for each in pod_of(objects)["containers"][0]["volumeMounts"]]
    named = {name: value for name, value in variables(objects).items() if value.startswith("/")}
    for value in named.values():
        assert all(path.startswith(tuple(folders)) for path in value.split(","))


def test_what_scales_rules_alone_and_on_series_that_there_are(objects: Objects):
    deployment = only(objects, "Deployment")
    scalers = [each for each in objects if each["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")]
    assert ("replicas" in deployment["spec"]) == (not scalers)
    for each in scalers:
        assert each["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    documented = (ROOT / "docs" / "metrics.md").read_text()
    queries = [
        trigger["metadata"]["query"]
        for each in scalers
        for trigger in each["spec"].get("triggers", [])
        if trigger["type"] == "prometheus"
    ]
    for query in queries:
        for word in query.replace("(", " ").replace("{", " ").split():
            if word.startswith("turnscore_"):
                assert f"`{word.removesuffix('_sum')}`" in documented


def test_objects_are_what_kubernetes_api_takes(objects: Objects):
    validator: Any = pytest.importorskip("kubernetes_validate", reason="`make deploy-tools` installs it")
    for each in objects:
        if each["apiVersion"].split("/")[0] not in ("keda.sh", "monitoring.coreos.com"):
            validator.validate(each, API, strict=True)


@needs_helm
def test_the_plain_manifests_are_what_the_chart_gives():
    assert [path.name for path in COMMITTED] == ["autoscaled.yaml", "fixed.yaml"]
    for path in COMMITTED:
        kind = "keda" if path.name == "autoscaled.yaml" else "none"
        assert path.read_text() == rendered({"autoscaling.kind": kind}), "`make generate WHAT=manifests` writes them"


@needs_helm
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"settings.LOG_LEVEL": "INFO"}, "LOG_LEVEL"),
        ({"replica": "3"}, "replica"),
        ({"resources.requests.cpu": "500m"}, "cpu"),
        ({"models.source": "volume", "models.names": "{a}"}, "models.claim is empty"),
        ({"models.source": "image", "models.image": "a"}, "models.names must name"),
        ({"models.source": "archive", "models.names": "{../a}"}, "models"),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(values: dict[str, str], sentence: str):
    done = helm("template", "turnscore", str(CHART), *set_flags(values))
    assert done.returncode != 0
    assert sentence in done.stderr
