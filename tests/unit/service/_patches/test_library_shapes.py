"""What the patches rely on in each library: a test fails where a new version of it has another shape."""

import os
import signal
import subprocess
import sys

import pytest
from circus.sighandler import SysHandler
from turnscore_service._patches.circus_hangup import handle_hangup


def test_the_supervisor_calls_the_handler_of_a_hangup_by_its_name(monkeypatch):
    monkeypatch.setattr(SysHandler, "handle_hup", SysHandler.handle_hup)
    monkeypatch.setattr(SysHandler, "_register", lambda _: None)  # it would take over this process's signals
    handled = []
    handle_hangup(lambda: handled.append("hangup"))
    SysHandler(controller=None).signal(signal.SIGHUP)
    assert handled == ["hangup"]


ASK = "from bentoml._internal.utils.analytics.usage_stats import do_not_track; print(not do_not_track())"
SERVE = f"""if True:
    import os
    from turnscore_service import serving
    execute = os.execv
    serving.os.execv = lambda path, words: execute(path, [path, "-c", {ASK!r}])
    serving.serve()
"""


STORE = f"from turnscore_models.store import list_bundles; list_bundles(); {ASK}"


@pytest.mark.parametrize(
    ("code", "given", "sent"),
    [(SERVE, {}, False), (STORE, {}, False), (STORE, {"BENTOML_DO_NOT_TRACK": "False"}, True)],
)
def test_bentoml_sends_usage_reports_only_where_told_to(code, given, sent, tmp_path):
    """The supervisor that `turnscore serve` becomes with several workers, and whatever stores a bundle."""
    environment = {name: value for name, value in os.environ.items() if name != "BENTOML_DO_NOT_TRACK"}
    environment |= {"TURNSCORE_WORKERS": "2", "BENTOML_HOME": str(tmp_path), **given}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.split()[-1] == str(sent)
