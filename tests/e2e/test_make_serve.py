"""`make serve`: what its variables become, and that the service so started speaks TLS at both doors."""

import os
import shlex
import ssl
import subprocess
from pathlib import Path

import pytest
from support.certificates import certificate, private_key
from support.processes import running_service
from turnscore_client import ConnectionFailedError, Tls, TurnScoreClient, TurnScoreError, TurnScoreGrpcClient

ROOT = Path(__file__).parents[2]
FILES = {
    "TLS_CERT": certificate("server"),
    "TLS_KEY": private_key("server"),
    "TLS_CLIENT_CA": certificate("authority"),
}
OWN = {"cert_file": certificate("caller"), "key_file": private_key("caller")}


def command_of(*variables: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the options that `make serve` would start the service with."""
    outside = {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "-n", "--no-print-directory", "serve", *variables]
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True)
    words = shlex.split(done.stdout[done.stdout.index("TURNSCORE_GRPC__HOST") :].replace("\\\n", " "))
    start = words.index("serve") - 1
    return dict(word.split("=", 1) for word in words[:start]), words[words.index("--port") + 2 :]


def test_without_certificates_everything_is_plain():
    environment, options = command_of("HOST=127.0.0.2")
    assert environment == {"TURNSCORE_GRPC__HOST": "127.0.0.2", "TURNSCORE_GRPC__PORT": "50051"}
    assert options == []


@pytest.mark.e2e
def test_make_serve_takes_certificates_for_both_doors(tmp_path: Path):
    environment, options = command_of(*(f"{name}={path}" for name, path in FILES.items()))
    del environment["TURNSCORE_GRPC__PORT"]
    context = ssl.create_default_context(cafile=certificate("authority"))
    context.load_cert_chain(*OWN.values())
    trusted = Tls(ca_file=certificate("authority"), **OWN)
    with running_service(
        tmp_path, environment={**environment, "TURNSCORE_MODELS": "engagement"}, options=options, tls=context
    ) as service:
        with TurnScoreClient(service.url, tls=trusted, timeout_seconds=60) as client:
            assert client.score(response="ok").scores
            with client.conversation() as conversation:
                assert conversation.say("system", "ok").scores
        with TurnScoreGrpcClient(service.grpc_target, tls=trusted, timeout_seconds=60) as client:
            assert client.score(response="ok").scores
        nobody = Tls(ca_file=certificate("authority"))
        with TurnScoreClient(service.url, tls=nobody, max_retries=0) as client, pytest.raises(ConnectionFailedError):
            client.models()
        with (
            TurnScoreGrpcClient(service.grpc_target, tls=nobody, max_retries=0) as client,
            pytest.raises(TurnScoreError),
        ):
            client.models()
