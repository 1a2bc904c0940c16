"""deploy/corpus: commands that the program takes, and a RayJob that KubeRay and Kubernetes take."""

import re
import shlex

import pytest
import typer
import yaml
from support.environments import pins
from support.files import ROOT
from turnscore_corpus.command import app

FOLDER = ROOT / "deploy" / "corpus"
JOB = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
CLUSTER = JOB["spec"]["rayClusterSpec"]
GROUPS = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
# Fields of ray.io/v1, as KubeRay's rayjob_types.go and raycluster_types.go name them: an API server drops others
# without a word.
API = "1.35"


def taken(words):
    """What the program reads of these words; nothing is run."""
    group = typer.main.get_command(app)
    command = group.commands[words[0]]
    return dict(command.make_context(words[0], list(words[1:])).params)


def words_of(script):
    """The program's words in a shell script, with what the script fills in."""
    [line] = re.findall(r'turnscore\}" corpus (score .*?)(?:;|$)', (FOLDER / script).read_text(), re.MULTILINE)
    line = line.replace('"$@"', "in.parquet out").replace('"${DEVICE:-cuda:0}"', "cuda:0")
    return shlex.split(re.sub(r"\$\(\(.*\)\)", "3", line))


def test_the_scripts_call_the_program_as_it_is():
    laptop, gpu = taken(words_of("laptop.sh")), taken(words_of("gpu.sh"))
    assert (laptop["inputs"], laptop["output"], laptop["workers"]) == (["in.parquet"], "out", 3)
    assert (gpu["device"], gpu["workers"]) == ("cuda:0", 1)
    with pytest.raises(Exception, match="No such option: --devise"):
        taken(["score", "in", "out", "--devise", "cuda:0"])


def test_the_job_calls_the_program_as_it_is_on_the_cluster_that_it_is_given():
    program, command, *words = shlex.split(JOB["spec"]["entrypoint"])
    assert [program, command] == ["turnscore", "corpus"]
    found = taken(words)
    assert (found["engine"], found["address"]) == ("ray", "auto")
    for place in (*found["inputs"], found["output"]):
        for group in GROUPS:
            mounts = [each["mountPath"] for each in group["template"]["spec"]["containers"][0]["volumeMounts"]]
            assert any(place.startswith(f"{each}/") for each in mounts)


def pods():
    for number, group in enumerate(GROUPS):
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod{number}"}, **group["template"]}


def test_every_pod_is_confined_bounded_and_has_the_volumes_that_it_mounts():
    for pod in pods():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["runAsUser"] > 0
        [container] = spec["containers"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in spec["volumes"]}
        assert not any("hostPath" in each for each in spec["volumes"])


def test_all_pods_run_one_image_whose_ray_is_the_pinned_one():
    images = {pod["spec"]["containers"][0]["image"] for pod in pods()}
    dockerfile = (FOLDER / "Dockerfile").read_text()
    [tag] = re.findall(r"--tag (\S+)", dockerfile)
    assert images == {tag}
    [version] = re.findall(r"rayproject/ray:([0-9.]+)-py311-cpu", dockerfile)
    assert version == CLUSTER["rayVersion"] == pins("environments.txt", "ray")["ray"]


def test_kubernetes_takes_the_pods():
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="`make deploy-tools` installs it")
    for pod in pods():
        kubernetes_validate.validate(pod, API, strict=True)
