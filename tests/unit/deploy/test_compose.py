"""deploy/compose: its settings, files, times and balancer, by our rules, haproxy, and docker where it is there."""

import ipaddress
import re
import shutil
import subprocess

import pytest
import yaml
from support.files import ROOT
from turnscore_service.settings.service import Settings, refusal_of_unknown

FOLDER = ROOT / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICE = COMPOSE["services"]["turnscore"]


def seconds(text):
    return int(text.removesuffix("s"))


def has_docker_compose():
    asked = ["docker", "compose", "version"]
    return bool(shutil.which("docker")) and subprocess.run(asked, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_docker_compose(), reason="there is no docker compose on this machine")
def test_docker_takes_the_file():
    subprocess.run(["docker", "compose", "-f", FOLDER / "compose.yaml", "config", "--quiet"], check=True)


def test_every_variable_is_a_setting_with_a_value_it_takes(monkeypatch):
    assert refusal_of_unknown(Settings, SERVICE["environment"]) == ""
    for name, value in SERVICE["environment"].items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.runtime.threads == 1  # replicas that start at once cannot measure which number is best
    assert seconds(SERVICE["stop_grace_period"]) >= settings.drain_seconds + settings.shutdown_seconds + 10
    [network] = COMPOSE["networks"]["inside"]["ipam"]["config"]
    assert ipaddress.ip_network(network["subnet"]) in settings.auth.trusted_proxies
    assert settings.cache.url.get_secret_value().split("//")[1].split(":")[0] in COMPOSE["services"]


def test_files_that_are_mounted_are_there_and_networks_and_services_are_known():
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            assert (FOLDER / volume.split(":")[0]).exists()
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert set(service.get("depends_on", [])) <= set(COMPOSE["services"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_the_image_is_this_version_s_and_confined_as_in_a_cluster():
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{SERVICE["image"].partition(":")[2]}"' in pyproject
    assert f" AS {SERVICE['build']['target']}\n" in (ROOT / "Dockerfile").read_text()
    assert (SERVICE["read_only"], SERVICE["tmpfs"], SERVICE["cap_drop"]) == (True, ["/tmp"], ["ALL"])
    assert SERVICE["deploy"]["replicas"] >= 2
    assert SERVICE["deploy"]["mode"] == "replicated"  # without it podman-compose starts one


def test_who_has_no_capabilities_is_not_root_at_the_start_and_may_write_where_it_works():
    for name, service in COMPOSE["services"].items():
        if "cap_drop" in service and "build" not in service:  # our own image names its user and folder
            assert service["user"] not in ("root", "0"), f"{name} could not change its user"
            assert service["working_dir"] in service["tmpfs"]


def test_balancer_and_prometheus_ask_the_service_by_its_name_and_ports():
    balancer = (FOLDER / "haproxy.cfg").read_text()
    assert set(re.findall(r"turnscore:(\d+)", balancer)) == {"3000", "50051"}
    assert "parse-resolv-conf" in balancer  # docker's name server has another address than podman's
    assert balancer.count("balance leastconn") == balancer.count("option httpchk GET /readyz") == 2
    noticed = int(re.findall(r"inter (\d+)ms fall 1", balancer)[0]) / 1000
    assert float(SERVICE["environment"]["TURNSCORE_DRAIN_SECONDS"]) > 2 * noticed
    [job] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    [found] = job["dns_sd_configs"]
    assert (found["names"], found["port"]) == (["turnscore"], 3000)


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="there is no haproxy on this machine")
def test_haproxy_takes_the_balancer_s_configuration():
    done = subprocess.run(["haproxy", "-c", "-f", FOLDER / "haproxy.cfg"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not re.findall(r"ALERT|WARNING", done.stderr)
