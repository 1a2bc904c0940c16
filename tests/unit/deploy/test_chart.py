"""The chart and its plain manifests, by rules of our own and by Kubernetes' API schemas where the tools are there."""

import json
import math
import os
import re

import pytest
import yaml
from support.deployments import (
    CHART,
    CHOICES,
    COMMITTED,
    FOLDER,
    FULL,
    GPU,
    HELM,
    OBSERVED,
    ROOT,
    ROUTES,
    helm,
    objects_of,
    only,
    pod_of,
    rendered,
    set_flags,
)
from turnscore_service.settings.service import Settings, refusal_of_unknown

needs_helm = pytest.mark.skipif(HELM is None, reason="there is no helm; `make deploy-tools` fetches one")
API = "1.37"
CUSTOM_KINDS = ("HTTPRoute", "GRPCRoute", "ServiceMonitor", "PrometheusRule", "ScaledObject")


@pytest.fixture(
    scope="module",
    params=[*(path.name for path in COMMITTED), *(pytest.param(name, marks=needs_helm) for name in CHOICES)],
)
def objects(request):
    if request.param in CHOICES:
        return objects_of(rendered(CHOICES[request.param]))
    [file] = [path for path in COMMITTED if path.name == request.param]
    return objects_of(file.read_text())


def variables(objects):
    """The environment of the service's container; of a reference something that the field takes."""
    [container] = pod_of(objects)["containers"]
    assert len({each["name"] for each in container["env"]}) == len(container["env"])
    return {each["name"]: each.get("value", "2") for each in container["env"]}


def test_every_variable_is_a_setting_and_has_a_value_it_takes(objects, monkeypatch):
    given = variables(objects)
    assert refusal_of_unknown(Settings, given) == ""
    for name in [each for each in os.environ if each.startswith("TURNSCORE_")]:
        monkeypatch.delenv(name)
    references_to_files_and_secrets = ("_FILE", "TURNSCORE_CACHE__URL")
    for name, value in given.items():
        if not name.endswith(references_to_files_and_secrets):
            monkeypatch.setenv(name, value)
    assert Settings().runtime.threads == 1


def test_the_grace_covers_the_drain_the_work_in_flight_and_the_end(objects):
    given, pod = variables(objects), pod_of(objects)
    promised = float(given["TURNSCORE_DRAIN_SECONDS"]) + float(given["TURNSCORE_SHUTDOWN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= math.ceil(promised) + 10
    readiness = pod["containers"][0]["readinessProbe"]
    noticed = readiness["periodSeconds"] * readiness["failureThreshold"] + readiness["timeoutSeconds"]
    assert float(given["TURNSCORE_DRAIN_SECONDS"]) > noticed


def test_probes_ask_ports_and_paths_that_there_are_and_liveness_is_not_readiness(objects):
    [container] = pod_of(objects)["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"http": Settings.model_fields["http"].default_factory().port, "grpc": 50051}
    probes = {each: container[f"{each}Probe"]["httpGet"] for each in ("startup", "readiness", "liveness")}
    paths = {name: (each["path"], each["port"]) for name, each in probes.items()}
    live = ("/livez", "http")  # a refused bundle must not restart its pod
    assert paths == {"startup": live, "readiness": ("/readyz", "http"), "liveness": live}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120  # fed alone may take half a minute on one CPU


def test_services_reach_the_pod_s_ports_and_grpc_s_has_no_address(objects):
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
    protocol = "https" if "TURNSCORE_GRPC__TLS_CERT_FILE" in variables(objects) else "kubernetes.io/h2c"
    grpc = [port for spec in services.values() for port in spec["ports"] if port["name"] == "grpc"]
    assert [port["appProtocol"] for port in grpc] == [protocol, protocol]


def test_routes_lead_to_ports_of_a_service(objects):
    services = [each for each in objects if each["kind"] == "Service"]
    ports = {(each["metadata"]["name"], port["port"]) for each in services for port in each["spec"]["ports"]}
    names = {(each["metadata"]["name"], port["name"]) for each in services for port in each["spec"]["ports"]}
    for each in objects:
        for rule in each.get("spec", {}).get("rules", []):
            assert {(to["name"], to["port"]) for to in rule.get("backendRefs", [])} <= ports
            for path in rule.get("http", {}).get("paths", []):
                assert (path["backend"]["service"]["name"], path["backend"]["service"]["port"]["name"]) in names


def selectors(objects):
    for each in objects:
        spec = each.get("spec")
        if each["kind"] in ("Deployment", "PodDisruptionBudget"):
            yield spec["selector"]["matchLabels"]
        if each["kind"] == "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]
    for constraint in pod_of(objects)["topologySpreadConstraints"]:
        yield constraint["labelSelector"]["matchLabels"]


def test_everything_that_selects_pods_selects_ours(objects):
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    found = list(selectors(objects))
    assert len(found) >= 4
    assert all(each and each.items() <= labels.items() for each in found)


def test_the_pod_is_confined_and_writes_into_one_folder(objects):
    pod = pod_of(objects)
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"USER {pod['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text()
    assert not pod["automountServiceAccountToken"]
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert container["securityContext"] == confined
    volumes = {each["name"] for each in pod["volumes"]}
    mounts = pod["containers"][0]["volumeMounts"]
    assert {each["name"] for each in mounts} == volumes
    assert [each["mountPath"] for each in mounts if not each.get("readOnly")] == ["/tmp"]
    assert "cpu" not in pod["containers"][0]["resources"]["limits"]


def test_files_that_settings_name_are_mounted(objects):
    folders = [each["mountPath"] + "/" for each in pod_of(objects)["containers"][0]["volumeMounts"]]
    named = {name: value for name, value in variables(objects).items() if value.startswith("/")}
    for value in named.values():
        assert all(path.startswith(tuple(folders)) for path in value.split(","))


def test_what_scales_rules_alone_and_on_series_that_there_are(objects):
    deployment = only(objects, "Deployment")
    scalers = [each for each in objects if each["kind"] in ("HorizontalPodAutoscaler", "ScaledObject")]
    assert ("replicas" in deployment["spec"]) == (not scalers)
    for each in scalers:
        assert each["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    documented = (ROOT / "docs" / "metrics.md").read_text()
    triggers = [trigger["metadata"] for each in scalers for trigger in each["spec"].get("triggers", [])]
    series = {word for each in triggers for word in re.findall(r"turnscore_\w+", each.get("query", ""))}
    assert [each for each in series if f"`{each.removesuffix('_sum')}`" not in documented] == []


def test_objects_are_what_kubernetes_api_takes(objects):
    validator = pytest.importorskip("kubernetes_validate", reason="`make deploy-tools` installs it")
    for each in objects:
        if each["kind"] not in CUSTOM_KINDS:
            validator.validate(each, API, strict=True)


@needs_helm
def test_the_plain_manifests_are_what_the_chart_gives():
    assert [path.name for path in COMMITTED] == ["autoscaled.yaml", "fixed.yaml"]
    for path in COMMITTED:
        kind = "keda" if path.name == "autoscaled.yaml" else "none"
        assert path.read_text() == rendered({"autoscaling.kind": kind}), "`make generate WHAT=manifests` writes them"


@needs_helm
def test_a_packaged_chart_has_the_rules_and_dashboards_of_deploy_observability(tmp_path):
    helm("package", str(CHART), "--destination", str(tmp_path))
    [package] = tmp_path.iterdir()
    objects = objects_of(rendered(OBSERVED, chart=package))
    assert only(objects, "PrometheusRule")["spec"] == yaml.safe_load((FOLDER / "rules/turnscore.yml").read_text())
    dashboards = only(objects, "ConfigMap")
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    written = {f"turnscore-{path.name}": json.loads(path.read_text()) for path in FOLDER.glob("dashboards/*.json")}
    assert {name: json.loads(text) for name, text in dashboards["data"].items()} == written


@needs_helm
def test_releases_of_any_name_share_a_namespace():
    every = {**ROUTES, **OBSERVED, "serviceMonitor.enabled": "true"}
    releases = ["a" * 53, "a" * 52 + "b", "team.bot"]
    objects = {release: objects_of(rendered(every, release)) for release in releases}
    names = [(each["kind"], each["metadata"]["name"]) for release in releases for each in objects[release]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z][a-z0-9-]{0,62}", name) for kind, name in names if kind == "Service")
    chosen = [next(selectors(objects[release]))["app.kubernetes.io/instance"] for release in releases]
    assert chosen == releases
    assert "such as turnscore-1bot" in helm("template", "1bot", str(CHART)).stderr


@needs_helm
def test_a_gpu_has_its_image_its_device_and_nothing_of_the_cpu_s():
    gpu = objects_of(rendered({**GPU, "image.tag": "1.2-cuda"}))
    [container] = pod_of(gpu)["containers"]
    assert container["image"] == "turnscore:1.2-cuda"
    [untagged] = pod_of(objects_of(rendered(GPU)))["containers"]
    assert untagged["image"].endswith("-cuda")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert variables(gpu)["TURNSCORE_RUNTIME__DEVICE"] == "cuda"
    assert "TURNSCORE_RUNTIME__CONCURRENT_BATCHES" not in variables(gpu)
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod_of(gpu)["tolerations"]


@needs_helm
def test_settings_replace_the_chart_s_and_are_written_as_the_service_reads_them(tmp_path):
    given = {"TURNSCORE_CACHE__LOCAL_MAX_BYTES": 33554432, "TURNSCORE_LOG_REQUESTS": True}
    given |= {"TURNSCORE_THRESHOLDS": {"quality": 0.35}, "TURNSCORE_RUNTIME__THREADS": 2}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"settings": given}))
    done = helm("template", "turnscore", str(CHART), "--values", str(file))
    found = variables(objects_of(done.stdout))
    assert {name: json.loads(found[name]) for name in given} == given


@needs_helm
def test_pages_may_be_opened_by_the_host_of_a_route_that_leads_to_them():
    allowed = variables(objects_of(rendered(ROUTES)))["TURNSCORE_HTTP__ALLOWED_HOSTS"].split(",")
    assert {"score.example", "bot.example", "turnscore", "turnscore.default.svc"} <= set(allowed)
    for others in ({**ROUTES, "ingress.paths": "{/v1}"}, {**ROUTES, "ingress.hosts": "{*.example}"}):
        assert "TURNSCORE_HTTP__ALLOWED_HOSTS" not in variables(objects_of(rendered(others)))


@needs_helm
@pytest.mark.parametrize("name", [*(each for each in FULL if each != "serviceMonitor.enabled"), "drainSeconds"])
def test_a_changed_value_of_the_service_restarts_its_pods(name):
    assert pod_of(objects_of(rendered({name: FULL.get(name, "21")}))) != pod_of(objects_of(rendered({})))


@needs_helm
def test_only_those_that_are_named_may_call_through_the_network_policy():
    named = "networkPolicy.from[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name"
    policy = only(objects_of(rendered({named: "ingress"})), "NetworkPolicy")["spec"]
    [rule] = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]


TOLD_IN_NOTES = [
    ({}, ["port-forward service/turnscore 3000:80", "dns:///turnscore-grpc.default.svc:50051", "2 to 10 pods"]),
    (ROUTES, ["https://score.example/", "GRPCRoute: grpc.example", "No API keys", "TRUSTED_PROXIES"]),
    ({**ROUTES, "grpc.tlsSecret": "a", "gateway.enabled": "false"}, ["gateway has hosts, but is off"]),
    ({**ROUTES, "grpc.tlsSecret": "a"}, ["BackendTLSPolicy"]),
    ({"autoscaling.kind": "keda", "autoscaling.min": "1"}, ["serviceMonitor.enabled", "One pod"]),
    (GPU, ["1 nvidia.com/gpu each", "one more GPU", "keda reads its batches"]),
    ({"serviceMonitor.enabled": "true", "networkPolicy.from[0].podSelector.a": "b"}, ["namespaces of Prometheus"]),
    ({"serviceMonitor.labels.a": "b", "prometheusRule.labels.a": "b"}, ["Monitor has labels", "Rule has labels"]),
    ({"settings.TURNSCORE_TELEMETRY__ENDPOINT": "http://collector:4318"}, ["networkPolicy.egress"]),
]


@needs_helm
@pytest.mark.parametrize(("values", "sentences"), TOLD_IN_NOTES)
def test_the_notes_say_how_to_reach_it_and_what_is_missing(values, sentences):
    done = helm("install", "turnscore", str(CHART), "--dry-run=client", *set_flags(values))
    notes = done.stdout.partition("NOTES:")[2]
    assert [each for each in sentences if each not in notes] == []
    assert ("!" in notes) == bool(values)


SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def described(schema, path=""):
    """The path and description of each value; not of names that the schema knows to refuse them with a hint."""
    for name, each in schema.get("properties", {}).items():
        if "const" not in each:
            yield path + name, each["description"]
            assert "properties" not in each or name in ("requests", "limits") or each["additionalProperties"] is False
            yield from described(each, f"{path}{name}.")


def test_the_schema_describes_every_value_as_its_comment_does():
    found, parents = {}, [""]
    for line in (CHART / "values.yaml").read_text().splitlines():
        if match := re.fullmatch(r"( *)(\w+):.*?  # (.+)", line):
            parents[len(match[1]) // 2 :] = [match[2]]
            found[".".join(parents)] = match[3]
    assert dict(described(SCHEMA)) == {**found, "global": "Helm's; not read."}
    assert len(found) == len(re.findall(r"^ *\w+:", (CHART / "values.yaml").read_text(), re.MULTILINE))


SENSELESS_VALUES = [
    ({"settings.LOG_LEVEL": "INFO"}, "LOG_LEVEL"),
    ({"replica": "3"}, "replica"),
    ({"replicaCount": "3"}, "set as replicas"),
    ({"autoscaling.enabled": "true"}, "set as autoscaling.kind"),
    ({"replicas": "5"}, "set autoscaling.min and autoscaling.max, or autoscaling.kind=none"),
    ({"autoscaling.kind": "none", "autoscaling.max": "20"}, "set replicas"),
    ({"autoscaling.kind": "none", "autoscaling.cpuPercent": "50"}, "set replicas"),
    ({"autoscaling.min": "11"}, "autoscaling.min=11 is more than autoscaling.max=10"),
    ({"resources.requests.cpu": "500m"}, "must be whole CPUs"),
    ({"podDisruptionBudget.maxUnavailable": "0"}, "want 1"),
    ({"models.source": "volume", "models.names": "{a}"}, "models.claim is empty"),
    ({"models.source": "image", "models.image": "a"}, "models.names must name"),
    ({"models.source": "archive", "models.names": "{../a}"}, "models"),
    ({"models.claim": "a"}, "set models.source=volume"),
    ({"models.archive.credentialsSecret": "a"}, "set models.source=archive"),
    ({"gpu.enabled": "true"}, "turnscore export KIND --graph cuda-fp16"),
    ({**GPU, "settings.TURNSCORE_RUNTIME__DEVICE": "auto"}, "leave the setting out"),
    ({**GPU, "gpu.count": "2"}, "settings.TURNSCORE_WORKERS=2"),
    ({"settings.TURNSCORE_RUNTIME__DEVICE": "cuda:0"}, "needs gpu.enabled=true"),
    ({"resources.limits.nvidia\\.com/gpu": "1"}, "set gpu.enabled=true"),
    ({"settings.TURNSCORE_DRAIN_SECONDS": "5"}, "but as drainSeconds"),
    ({"settings.TURNSCORE_HTTP__PORT": "80"}, "Services and probes"),
    ({"ingress.enabled": "true"}, "ingress.hosts is empty"),
    ({**ROUTES, "gateway.parentRefs": "null"}, "gateway.parentRefs is empty"),
    ({**ROUTES, "gateway.grpcHosts": "{bot.example}"}, "in hosts and grpcHosts"),
    ({"gateway.enabled": "true", "gateway.parentRefs[0].name": "a"}, "set gateway.hosts"),
]


@needs_helm
@pytest.mark.parametrize(("values", "sentence"), SENSELESS_VALUES)
def test_values_that_make_no_sense_are_refused_by_name(values, sentence):
    done = helm("template", "turnscore", str(CHART), *set_flags(values))
    assert done.returncode != 0
    assert sentence in done.stderr
