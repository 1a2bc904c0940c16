"""Archives of bundles: fetched, checked, unpacked; the signature is AWS's own example."""

import hashlib
import io
import tarfile
from datetime import UTC, datetime

import pytest
from support.plain_http import plain_server_in_a_thread
from turnscore_models.cli import app
from turnscore_models.manifest import FetchError
from turnscore_models.store import fetch_archive, sign
from typer.testing import CliRunner


def packed(name):
    """An archive of one small file."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    return output.getvalue()


GOOD, LEADING_OUT, NONE = packed("engagement/manifest.json"), packed("../outside.json"), b"no archive"
FILES = {"/b/good.tar.gz": GOOD, "/b/leading-out.tar.gz": LEADING_OUT, "/b/none.tar.gz": NONE}


async def answer(path, _body):
    if path == "/b/moved.tar.gz":
        return 302, {"location": "/b/good.tar.gz"}, b""
    return (200, {}, FILES[path]) if path in FILES else (403, {}, b"")


def test_an_archive_is_unpacked_and_the_command_names_the_bundles(tmp_path):
    with plain_server_in_a_thread(answer) as port:
        words = ["fetch", f"http://127.0.0.1:{port}/b/good.tar.gz", "--folder", str(tmp_path)]
        done = CliRunner().invoke(app, [*words, "--sha256", hashlib.sha256(GOOD).hexdigest().upper()])
        wrong = CliRunner().invoke(app, [*words, "--sha256", "0" * 64])
    assert (done.exit_code, done.output) == (0, f"unpacked into {tmp_path}: engagement\n")
    assert (wrong.exit_code, "refused: the archive's SHA-256 is" in wrong.output) == (1, True)
    assert (tmp_path / "engagement" / "manifest.json").read_text() == "{}"


WRONG_ARCHIVES = [
    ("/b/leading-out.tar.gz", LEADING_OUT, "cannot be unpacked"),
    ("/b/none.tar.gz", NONE, "cannot be unpacked"),
    ("/b/good.tar.gz", NONE, "SHA-256"),
    ("/b/other.tar.gz", GOOD, "403"),
    ("/b/moved.tar.gz", GOOD, "302"),
]


@pytest.mark.parametrize(("path", "content", "sentence"), WRONG_ARCHIVES)
def test_what_cannot_be_had_or_is_another_leaves_the_folder_empty(tmp_path, path, content, sentence):
    with plain_server_in_a_thread(answer) as port, pytest.raises(FetchError, match=sentence):
        fetch_archive(f"http://127.0.0.1:{port}{path}", hashlib.sha256(content).hexdigest(), tmp_path, {})
    assert [*tmp_path.iterdir(), *tmp_path.parent.glob("outside.json")] == []


def test_only_http_is_fetched(tmp_path):
    with pytest.raises(FetchError, match="must begin with http"):
        fetch_archive("file:///etc/passwd", "0" * 64, tmp_path, {})


def test_the_signature_is_that_of_aws_s_own_example():
    keys = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"}
    keys["AWS_SECRET_ACCESS_KEY"] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    headers = sign("https://examplebucket.s3.amazonaws.com/?lifecycle=", keys, datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    )
