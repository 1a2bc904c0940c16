"""What the load tests may import, and that no test process is ever patched by Locust."""

import ast
from collections.abc import Iterator
from pathlib import Path

import turnscore_load

PACKAGE = Path(turnscore_load.__file__).parent
FILES = [*PACKAGE.rglob("*.py"), *PACKAGE.parent.glob("*.py")]
NEEDS_LOCUST = {"locustfile", *(f"turnscore_load.users.{each}" for each in ("users", "doors", "grpc_user_doors"))}


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_load_tests_know_the_wire_and_the_client_only():
    ours = {name.split(".")[0] for file in FILES for name in imports(file) if name.startswith("turnscore")}
    assert ours == {"turnscore_client", "turnscore_load", "turnscore_wire"}


def test_locust_and_gevent_stay_in_the_process_that_locust_runs():
    for file in FILES:
        named = set(imports(file))
        if name_of(file) not in NEEDS_LOCUST:
            assert not named & {"locust", "gevent", "geventhttpclient", "grpc.experimental.gevent"}, file
            assert not named & NEEDS_LOCUST, file
