from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import RedisServer, running_redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as server:
        yield server
