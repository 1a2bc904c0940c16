"""The admin socket: who may give orders, what is no order, and how one command reaches every worker."""

import asyncio
import os
import socket
from contextlib import asynccontextmanager

import pytest
from support.conditions import until
from support.fakes import FakeScorer, loaded_fake
from support.versions import FakeLoader, second_version, switchable
from turnscore_models.admin import FOLDER_VARIABLE, AdminError, AdminOrder, AdminReport, ask_workers
from turnscore_models.cli import app
from turnscore_models.manifest import BundleError
from turnscore_service.lifecycle import admin
from turnscore_service.lifecycle.admin import AdminSocket, UnusableFolderError, check_folder, prepare_folder
from turnscore_service.lifecycle.doctor import Surroundings, check_service
from turnscore_service.settings.service import Settings
from typer.testing import CliRunner

SERVE = AdminOrder(action="serve", reference="fake:1.1.0")


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("a") / "admin"


@asynccontextmanager
async def worker(folder, number=0, error=None):
    """A worker that serves fake:1.0.0 and knows fake:1.1.0, which fails its proof with the error."""
    loader = FakeLoader(loaded_fake(FakeScorer()))
    loader.add(second_version(), error)
    async with switchable(loader) as (runtime, switch):
        admin = AdminSocket(folder, number, switch)
        await admin.start()
        try:
            yield runtime
        finally:
            await admin.stop()


async def order(folder, wanted):
    return await asyncio.to_thread(lambda: list(ask_workers(folder, wanted)))


async def run_command(*arguments):
    result = await asyncio.to_thread(CliRunner().invoke, app, list(arguments))
    return result.exit_code, result.output


def model_of(runtime):
    return runtime.pipeline().model_set.scorers["fake"].bundle.manifest.reference


async def test_the_command_has_every_worker_switch_and_says_what_each_did(folder):
    async with worker(folder, 0) as first, worker(folder, 1) as second:
        sockets = sorted(folder.iterdir())
        assert [each.stat().st_mode & 0o777 for each in (folder, *sockets)] == [0o700, 0o600, 0o600]
        code, said = await run_command("serve", "fake:1.1.0", "--folder", str(folder))
        assert (code, model_of(first), model_of(second)) == (0, "fake:1.1.0", "fake:1.1.0")
        lines = said.splitlines()
        for number, line in enumerate(lines):
            assert line.startswith(
                f"worker {number} (process {os.getpid()}): switched: fake:1.1.0 instead of fake:1.0.0"
            )
            assert "MiB before" in line
            assert "a restart would serve what TURNSCORE_MODELS names" in line
        assert len(lines) == 2
        code, said = await run_command("serving", "--folder", str(folder))
        assert (code, said.count("serving: serves fake:1.1.0")) == (0, 2)
        code, said = await run_command("reload", "--folder", str(folder))
        assert (code, said.count("switched: fake:1.0.0 instead of fake:1.1.0")) == (0, 2)
    assert not list(folder.iterdir())


async def test_after_a_refusal_no_other_worker_is_asked(folder):
    async with worker(folder, 0, BundleError("it scores otherwise")) as first, worker(folder, 1) as second:
        code, said = await run_command("serve", "fake:1.1.0", "--folder", str(folder))
        assert (code, model_of(first), model_of(second)) == (1, "fake:1.0.0", "fake:1.0.0")
        assert "worker 0" in said
        assert "refused: it scores otherwise; still serves fake:1.0.0" in said
        assert "worker 1" not in said


async def test_a_switch_goes_on_when_whoever_asked_for_it_leaves(folder):
    async with worker(folder) as runtime:
        [path] = folder.iterdir()
        with socket.socket(socket.AF_UNIX) as connection:
            await asyncio.to_thread(connection.connect, str(path))
            connection.sendall(SERVE.model_dump_json().encode() + b"\n")
        await until(lambda: model_of(runtime) == "fake:1.1.0")


NO_ORDERS = [
    (b'{"action": "stop"}\n', "order.action: input should be 'serve', 'reload' or 'status'"),
    (b'{"action": "serve"}\n', "serve, and nothing else, needs a reference"),
    (b'{"action": "serve", "reference": "%s"}\n' % ("\U0001f600" * 4096).encode(), "no bundle"),
    (b"GET / HTTP/1.1\r\n\r\n", "order: invalid JSON"),
    (b"a" * 100_000 + b"\n", "one line of at most 65536 bytes"),
]


@pytest.mark.parametrize(("sent", "reason"), NO_ORDERS, ids=range(len(NO_ORDERS)))
async def test_what_is_no_order_is_refused_with_the_reason(folder, sent, reason):
    async with worker(folder) as runtime:
        [path] = folder.iterdir()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        writer.write_eof()
        report = AdminReport.model_validate_json(await reader.readline())
        writer.close()
        assert report.outcome == "refused"
        assert reason in report.reason
        assert report.models == {"fake": "fake:1.0.0"}
        assert model_of(runtime) == "fake:1.0.0"


async def test_another_users_order_is_refused(folder, monkeypatch):
    async with worker(folder) as runtime:
        monkeypatch.setattr(admin, "_user_of", lambda _: 4_000_000)
        [report] = await order(folder, SERVE)
        assert report.outcome == "refused"
        assert report.reason == "only the service's own user and root may give orders"
        assert model_of(runtime) == "fake:1.0.0"


async def test_the_kernel_says_who_asks(folder, monkeypatch):
    async with worker(folder):
        asked = []
        user_of = admin._user_of
        monkeypatch.setattr(admin, "_user_of", lambda writer: asked.append(user_of(writer)) or asked[-1])
        await order(folder, AdminOrder(action="status"))
        assert asked == [os.geteuid()]


async def test_no_other_worker_can_take_a_socket_that_is_being_opened_for_a_dead_one(folder, monkeypatch):
    seen = []
    listen = socket.socket.listen

    def look_and_listen(self, *backlog):
        seen.append([each for each in folder.glob("*.sock") if each.name.startswith("worker-1-")])
        listen(self, *backlog)

    async with worker(folder, 0):
        monkeypatch.setattr(socket.socket, "listen", look_and_listen)
        async with worker(folder, 1):
            assert seen[0] == []
            assert len(list(folder.iterdir())) == 2


async def test_sockets_of_killed_workers_are_passed_over_and_removed_by_the_next(folder):
    prepare_folder(folder)
    dead = folder / "worker-0-1.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    with pytest.raises(AdminError, match="no service listens in"):
        await order(folder, SERVE)
    code, said = await run_command("serve", "fake:1.1.0", "--folder", str(folder))
    assert (code, "TURNSCORE_ADMIN__FOLDER" in said) == (1, True)
    async with worker(folder, 1), worker(folder, 2):
        assert not dead.exists()
        assert len(list(folder.iterdir())) == 2  # the second left the first, which lives, where it was


def a_file(folder):
    folder.write_text("")
    return folder


FAULTS = [
    (lambda folder: folder.mkdir(mode=0o755) or folder, r"is open to other users \(mode 755\): chmod 700"),
    (a_file, "is not a directory: choose another path"),
    (lambda folder: folder / "below", "cannot create .*: .* is not a directory; create it first"),
    (lambda folder: folder.parent / ("a" * 200), r"is too long for the path of a socket \(2.. bytes, 107 at most\)"),
]


@pytest.mark.parametrize(("make", "reason"), FAULTS)
def test_a_folder_that_cannot_hold_sockets_is_refused_and_the_doctor_says_so(make, reason, folder):
    made = make(folder)
    before = made.exists()
    with pytest.raises(UnusableFolderError, match=reason):
        prepare_folder(made)
    around = Surroundings(refuse_port=lambda *_: None, memory_bytes=1 << 40, descriptors=-1)
    settings = Settings.model_validate({"admin": {"folder": str(made)}})
    [problem] = [each for each in check_service(settings, 0, around) if FOLDER_VARIABLE in each.text]
    with pytest.raises(UnusableFolderError) as refused:
        check_folder(made)
    assert problem.text == f"{FOLDER_VARIABLE}: {refused.value}"
    assert problem.is_fatal
    assert made.exists() is before  # looking makes nothing


def test_a_folder_of_another_user_is_refused(folder, monkeypatch):
    prepare_folder(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(
        UnusableFolderError, match=r"belongs to user \d+, and this process runs as user 4000000: change"
    ):
        prepare_folder(folder)


def test_a_folder_in_which_nothing_can_be_written_is_refused(folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere but on what is mounted read-only
    with pytest.raises(
        UnusableFolderError, match=r"this user cannot write in .*; create it with this user as its owner"
    ):
        check_folder(folder)
    folder.mkdir(mode=0o700)
    with pytest.raises(UnusableFolderError, match=r"cannot create files in .* \(mode 700\): chmod 700, or mount it"):
        check_folder(folder)
