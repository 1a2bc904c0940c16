"""The database: the same study in SQLite and in Postgres, kept from a changed plan, from others and from races."""

import asyncio
import os
import shutil
import stat
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import func, select, text
from support.studies import plan_fields, served_study
from turnscore_assessment.study.database import DatabaseError, dialogues, open_database, turns
from turnscore_assessment.study.plan import StudyPlan
from turnscore_assessment.study.recordings import export_ratings, read_recordings
from turnscore_assessment.study.workers import UnknownWorkerError, delete_worker
from turnscore_load.machine import free_port

RATINGS = {"fun": 70, "repetitive": 20}


def find_postgres():
    """The folder of Postgres' own programs."""
    folders = [Path(found).resolve().parent for name in ("initdb", "pg_ctl") if (found := shutil.which(name))]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def postgres():
    """The address of a Postgres server of our own; skips, with the reason, where there is none."""
    pytest.importorskip("pg8000", reason="pg8000 is not installed")
    programs = find_postgres()
    if programs is None:
        pytest.skip("there is no Postgres server: apt-get install postgresql")
    user = "nobody" if os.getuid() == 0 else None  # it does not run as root
    with TemporaryDirectory(prefix="postgres-") as path:  # pytest's own folders are closed to every other user
        folder, port = Path(path), free_port()
        if user:
            shutil.chown(folder, user)

        def run(program, *options):
            command = [programs / program, "-D", folder / "data", *map(str, options)]
            done = subprocess.run(command, user=user, cwd=folder, env={}, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

        run("initdb", "-U", "study", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-c fsync=off -c listen_addresses=127.0.0.1 -k {folder} -p {port}"
        run("pg_ctl", "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://study@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-m", "immediate", "stop")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    """Where the study is kept."""
    return str(tmp_path / "study.sqlite3") if request.param == "sqlite" else request.getfixturevalue("postgres")


def count(connection):
    """Dialogues and turns."""
    return tuple(connection.scalar(select(func.count()).select_from(table)) or 0 for table in (dialogues, turns))


async def test_a_study_runs_from_the_link_to_the_export(tmp_path, database):
    async with served_study(tmp_path, database=database) as served:
        [link, other] = served.invite(2)
        standing = await served.agree(link)
        for _ in range(2):
            dialogue = standing["dialogue"]["id"]
            await served.talk(link, dialogue)
            await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
            await served.post(link, "rating", dialogue=dialogue, ratings=RATINGS)
            standing = (await served.post(link, "begin")).json()
        assert standing["finished"]
        await served.agree(other)
        plan, study = served.study.plan, served.database.study_id
        ratings = served.database.run_here(export_ratings, study, plan, read_recordings(plan), with_texts=True)
        assert [dialogue.ratings for dialogue in ratings.dialogues] == [RATINGS, RATINGS]
        assert [len(dialogue.turns) for dialogue in ratings.dialogues] == [6, 6]
        assert served.database.run_here(count) == (4, 12)
        served.database.run_here(delete_worker, study, link.code, 1.0)
        with pytest.raises(UnknownWorkerError, match="no worker of this study has the code 'unknown'"):
            served.database.run_here(delete_worker, study, "unknown", 1.0)
        assert served.database.run_here(count) == (2, 0)
        served.database.run_here(delete_worker, study, other.code, 1.0)


async def test_what_comes_at_once_is_done_once(tmp_path, database):
    async def together(served, link, act, **fields):
        answers = await asyncio.gather(*(served.post(link, act, **fields) for _ in range(6)))
        return sorted(answer.status_code for answer in answers)

    async with served_study(
        tmp_path, database=database, limits={"open_dialogues": 1}, name=f"at once {tmp_path}"
    ) as served:
        [link, other] = served.invite(2)
        agreed = (await served.get(link)).json()["study"]["consent_hash"]
        before = served.database.run_here(count)[0]
        assert await together(served, link, "agreement", consent_hash=agreed) == [200] * 6
        await served.post(other, "agreement", consent_hash=agreed)
        assert served.database.run_here(count)[0] == before + 4
        both = await asyncio.gather(*(served.post(each, "begin") for each in (link, other) * 3))
        assert sorted(answer.status_code for answer in both) == [200, 200, 200, 503, 503, 503]
        open_ones = {each: (await served.get(each)).json()["dialogue"] for each in (link, other)}
        [link] = [each for each, dialogue in open_ones.items() if dialogue]
        dialogue = open_ones[link]["id"]
        said = await together(served, link, "message", dialogue=dialogue, number=0, text="hello")
        assert set(said) <= {200, 409}
        assert 200 in said
        for number in (1, 2):
            await served.post(link, "message", dialogue=dialogue, number=number, text="hello")
        assert len((await served.get(link)).json()["dialogue"]["turns"]) == 6
        assert await together(served, link, "rating", dialogue=dialogue, ratings=RATINGS) == [200] * 6


def test_a_study_whose_plan_changed_is_not_mixed_with_what_was_rated_before(tmp_path, database):
    fields = plan_fields(database=database, name=f"changing {tmp_path}")
    open_database(StudyPlan.model_validate(fields)).close()
    open_database(StudyPlan.model_validate({**fields, "consent": "Another text.", "title": "Another"})).close()
    systems = [fields["systems"][0], {**fields["systems"][1], "degraded": False}]
    with pytest.raises(DatabaseError, match="systems: differ from those with which study 'changing"):
        open_database(StudyPlan.model_validate({**fields, "systems": systems}))
    open_database(StudyPlan.model_validate({**fields, "systems": systems, "name": f"next {tmp_path}"})).close()


async def test_links_open_their_study_on_every_server_and_no_other_study(tmp_path, database):
    async with (
        served_study(tmp_path, database=database, name=f"one {tmp_path}") as one,
        served_study(tmp_path, database=database, name=f"two {tmp_path}") as two,
    ):
        [link] = one.invite()
        assert (await one.get(link)).status_code == 200
        assert (await two.get(link)).status_code == 401
        async with served_study(tmp_path, database=database, name=f"one {tmp_path}") as again:
            assert (await again.get(link)).json() == (await one.get(link)).json()


def test_a_sqlite_file_is_its_owner_s_alone_and_overwrites_what_is_deleted(tmp_path):
    path = tmp_path / "folder" / "study?.sqlite3"
    opened = open_database(StudyPlan.model_validate(plan_fields(database=str(path))))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert opened.run_here(lambda connection: connection.execute(text("pragma secure_delete")).scalar()) == 1
    opened.close()


WRONG_DATABASES = [
    ("mysql://root@host/x", "mysql is not supported"),
    ("postgresql://me:hush@127.0.0.1:1/x", "cannot be used"),
    ("://", "must be a file or postgresql"),
    ("/dev/null/study.sqlite3", "cannot be opened"),
    (__file__, "cannot be used: DatabaseError: file is not a database"),
]


@pytest.mark.parametrize(("database", "reason"), WRONG_DATABASES)
def test_a_database_that_cannot_be_used_is_named_without_its_password(database, reason):
    if database.startswith("postgresql"):
        pytest.importorskip("pg8000")
    with pytest.raises(DatabaseError, match=reason) as caught:
        open_database(StudyPlan.model_validate(plan_fields(database=database)))
    assert "hush" not in str(caught.value)
