"""Callers: who is let in, by which key and address, and what a key may spend."""

import asyncio
import hashlib
import logging

import pytest
from support.conditions import until
from support.fakes import ManualClock, sample
from turnscore_core.errors import OverloadedError, UnauthenticatedError
from turnscore_service.auth.access import Access, Offer, TurnBudget, UnusableKeysError, network_of
from turnscore_service.settings.api import AuthSettings, KeyEntry
from turnscore_service.settings.service import read_settings


def digest(key):
    return hashlib.sha256(key.encode()).hexdigest()


def entry(key, **limits):
    return f'sha256 = "{digest(key)}"\n' + "".join(f"{name} = {value}\n" for name, value in limits.items())


def write(file, keys):
    file.write_text("".join(f"[{name}]\n{text}" for name, text in keys.items()))


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "keys.toml"
    write(file, {"chatbot": entry("secret-1"), "lab": entry("secret-2")})
    return file


def access_to(file, **settings):
    return Access(AuthSettings.model_validate({"keys_file": file, **settings}))


def refused(access, key):
    with pytest.raises(UnauthenticatedError) as error:
        access.admit(key)
    return error.value.message


def test_each_key_is_let_in_by_its_name(file):
    access = access_to(file, keys={"operator": KeyEntry(sha256=digest("secret-3"))})
    assert [access.admit(f"secret-{n}").key_name for n in (1, 2, 3)] == ["chatbot", "lab", "operator"]


@pytest.mark.parametrize(
    "key", ["secret-4", "secret", "secret-11", " secret-1", "ſecret-1", "\udcff", digest("secret-1")]
)
def test_anything_else_is_turned_away(file, key):
    assert refused(access_to(file), key) == "the API key is unknown"


async def test_a_reading_that_fails_for_an_unforeseen_reason_does_not_end_the_watch(file, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "turnscore.access")
    access = access_to(file)
    monkeypatch.setattr("turnscore_service.auth.access._LOOK_SECONDS", 0.001)
    with monkeypatch.context() as context:
        context.setattr("turnscore_service.auth.access.read_keys", lambda _: 1 / 0)
        watching = asyncio.create_task(access.watch())
        write(file, {"lab": entry("secret-2")})
        await until(lambda: "keeping the previous API keys" in caplog.text)
    assert access.admit("secret-1").key_name == "chatbot"
    write(file, {"late": entry("secret-5")})
    await until(lambda: "API keys read" in caplog.text)
    assert access.admit("secret-5").key_name == "late"
    refused(access, "secret-1")
    watching.cancel()


@pytest.mark.parametrize("broken", ["not toml at all", '[chatbot]\nsha256 = "short"\n', "gone"])
def test_a_broken_file_changes_nothing_and_is_told_once(file, broken, caplog):
    access = access_to(file)
    file.unlink() if broken == "gone" else file.write_text(broken)
    before = sample("key_file_errors_total")
    for _ in range(3):
        access.read_if_changed()
        assert access.admit("secret-1").key_name == "chatbot"
    assert sample("key_file_errors_total") == before + 1
    errors = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].startswith(f"keeping the previous API keys: {file}")
    write(file, {"late": entry("secret-5")})
    access.read_if_changed()
    assert access.admit("secret-5").key_name == "late"


WRONG_KEYS = [
    '{"a": {"sha256": "my-key"}}', '{"my-key"', f'{{"a": {{"sha256": "{"A" * 64}"}}}}',
    f'{{"a": {{"sha256": "{"0" * 64}", "rate": 1}}}}',
    f'{{"a": {{"sha256": "{"0" * 64}", "turns_per_second": Infinity}}}}',
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG_KEYS)
def test_wrong_keys_in_the_environment_end_the_start_and_are_not_repeated(value, monkeypatch):
    monkeypatch.setenv("TURNSCORE_AUTH__KEYS", value)
    with pytest.raises(SystemExit, match="TURNSCORE_AUTH__KEYS") as ended:
        read_settings()
    assert "my-key" not in str(ended.value)


def test_two_keys_of_a_name_are_one_caller_and_a_rotation_gives_no_new_budget(file):
    write(file, {"team": entry("secret-1", turns_per_second=0.001, burst=5)})
    access = access_to(file)
    access.admit("secret-1").charge(5)
    rotated = entry("secret-2", turns_per_second=0.001, burst=5)
    write(file, {"team": f'{rotated}previous_sha256 = "{digest("secret-1")}"\n'})
    access.read_if_changed()
    assert [access.admit(key).key_name for key in ("secret-1", "secret-2")] == ["team", "team"]
    with pytest.raises(OverloadedError):
        access.admit("secret-2").require_budget(1)
    write(file, {"team": rotated})
    access.read_if_changed()
    refused(access, "secret-1")


OFFER = Offer(
    scorers={"quality", "fed"}, defaults={"quality"}, models={"quality:1.0.0": "quality", "quality:1.1.0": "quality"}
)


WRONG_ENTRIES = [
    ("thresholds = {qualty = 0.5}", "chatbot.thresholds: qualty is not among fed, quality; did you mean quality?"),
    ('thresholds = {quality = "high"}', "chatbot.thresholds.quality: input should be a valid number"),
    ("thresholds = {quality = nan}", "chatbot.thresholds.quality: input should be a finite number"),
    ('default_scorers = ["fed"]', "chatbot.default_scorers: fed is not among quality"),
    ('default_scorers = "quality"', "chatbot.default_scorers: input should be a valid tuple"),
    ('models = ["quality:2.0.0"]', "chatbot.models: quality:2.0.0 is not among quality:1.0.0"),
    ('models = ["quality:1.0.0", "quality:1.1.0"]', "chatbot.models: name one version of each scorer"),
    ('previous_sha256 = "short"', "chatbot.previous_sha256: string should match pattern"),
]


@pytest.mark.parametrize(("fields", "told"), WRONG_ENTRIES)
def test_a_changed_file_that_names_what_is_not_loaded_changes_nothing(file, fields, told, caplog):
    access = access_to(file)
    access.expect(OFFER)
    write(file, {"chatbot": entry("secret-3") + fields + "\n"})
    access.read_if_changed()
    assert access.admit("secret-1").key_name == "chatbot"
    refused(access, "secret-3")
    assert told in caplog.text
    with pytest.raises(UnusableKeysError):
        access_to(file).expect(OFFER)


def test_every_key_is_compared_whichever_fits(file, monkeypatch):
    compared = []

    def compare(known, given):
        compared.append(known)
        return known == given

    monkeypatch.setattr("turnscore_service.auth.access.hmac.compare_digest", compare)
    access = access_to(file)
    for key in ("secret-1", "secret-2"):
        compared.clear()
        access.admit(key)
        assert compared == [digest("secret-1"), digest("secret-2")]


def test_nothing_that_access_keeps_holds_a_key(file):
    access = access_to(file)
    access.admit("secret-1")
    assert "secret-1" not in repr(vars(access))


PROXIES = AuthSettings.model_validate({"trusted_proxies": "10.0.0.0/8, 192.0.2.7, 2001:db8:1::/48"})


NETWORKS = [
    ("203.0.113.9", "203.0.113.9"), ("2001:db8:0:5:a:b:c:d", "2001:db8:0:5::/64"),
    ("2001:db8:0:6::1", "2001:db8:0:6::/64"), ("::ffff:203.0.113.9", "203.0.113.9"),
]  # fmt: skip


@pytest.mark.parametrize(("address", "network"), NETWORKS)
def test_an_ipv6_caller_shares_with_its_whole_64(address, network):
    assert network_of(address) == network
    assert Access(AuthSettings()).admit(None, address).share == network


FORWARDED = [
    ("203.0.113.9", None, "203.0.113.9"),
    ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # no proxy of ours: it may say what it likes
    ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
    ("10.1.2.3", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # what the caller sent itself stands before it
    ("10.1.2.3", "6.6.6.6, 198.51.100.1, 192.0.2.7", "198.51.100.1"),
    ("10.1.2.3", "6.6.6.6,", "10.1.2.3"),
    ("2001:db8:1::1", "2001:db8:7::1", "2001:db8:7::/64"),
]


@pytest.mark.parametrize(("peer", "forwarded", "caller"), FORWARDED)
def test_whom_a_proxy_forwards_is_believed_of_trusted_proxies_alone(peer, forwarded, caller):
    assert Access(PROXIES).admit(None, peer, forwarded).share == caller


def test_who_has_a_key_shares_by_it_wherever_they_call_from():
    key = {"sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}
    access = Access(AuthSettings.model_validate({"keys": {"chatbot": key}}))
    assert {access.admit("secret", peer).share for peer in ("203.0.113.9", "2001:db8::1")} == {"key chatbot"}


def test_a_proxy_that_is_no_network_ends_the_start_with_a_sentence(monkeypatch):
    monkeypatch.setenv("TURNSCORE_AUTH__TRUSTED_PROXIES", "10.0.0.1,proxy.example")
    with pytest.raises(SystemExit, match="TURNSCORE_AUTH__TRUSTED_PROXIES"):
        read_settings()


def test_a_batch_larger_than_the_bucket_is_taken_and_paid_off_at_the_rate():
    clock = ManualClock()
    budget = TurnBudget(turns_per_second=10, burst=3, clock=clock)
    budget.require()
    budget.take(23)
    with pytest.raises(OverloadedError) as refused:
        budget.require()
    assert refused.value.retry_after_ms in range(2100, 2103)
    clock.seconds += 2.099
    with pytest.raises(OverloadedError):
        budget.require()
    clock.seconds += 0.002
    budget.require()
