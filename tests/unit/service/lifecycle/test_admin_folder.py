"""The admin folder is private and can hold sockets, or the start and the doctor say why not and what to do."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from turnscore_models.admin import FOLDER_VARIABLE
from turnscore_service.lifecycle.admin import UnusableFolderError, check_folder, prepare_folder
from turnscore_service.lifecycle.service_checks import Surroundings, check_service
from turnscore_service.settings.service import Settings


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a") / "admin"


def open_to_others(folder: Path) -> Path:
    folder.mkdir(mode=0o755)
    return folder


def a_file(folder: Path) -> Path:
    folder.write_text("")
    return folder


FAULTS: list[tuple[Callable[[Path], Path], str]] = [
    (open_to_others, r"is open to others \(mode 755\): chmod 700"),
    (a_file, "is no folder: choose another path"),
    (lambda folder: folder / "below", "cannot be made, because .* is no folder: make that first"),
    (lambda folder: folder.parent / ("a" * 200), r"is too long for sockets in it \(2.. bytes, 107 at most\): choose a"),
]


@pytest.mark.parametrize(("make", "reason"), FAULTS)
def test_a_folder_that_cannot_hold_sockets_is_refused_and_the_doctor_says_so(
    make: Callable[[Path], Path], reason: str, folder: Path
) -> None:
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


def test_the_doctor_has_nothing_to_say_of_a_folder_that_is_or_can_be_made(folder: Path) -> None:
    check_folder(folder)
    assert not folder.exists()
    prepare_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    check_folder(folder)


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_folder(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(UnusableFolderError, match=r"belongs to user \d+, and this process is of 4000000: give it"):
        prepare_folder(folder)


def test_a_folder_in_which_nothing_can_be_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere but on what is mounted read-only
    with pytest.raises(
        UnusableFolderError, match=r"this user may not write in .*: make it, with this user as its owner"
    ):
        check_folder(folder)
    folder.mkdir(mode=0o700)
    with pytest.raises(UnusableFolderError, match=r"no file can be made in .* \(mode 700\): chmod 700, or mount it"):
        check_folder(folder)
