"""In whose name a call is: by key, else by network; whom a proxy forwards is believed of the proxies that are named."""

import subprocess
import sys

import pytest
from turnscore_service.auth.access import Access, network_of
from turnscore_service.settings.api import AuthSettings
from turnscore_service.settings.service import read_settings

PROXIES = AuthSettings.model_validate({"trusted_proxies": "10.0.0.0/8, 192.0.2.7, 2001:db8:1::/48"})


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:0:5:a:b:c:d", "2001:db8:0:5::/64"),
        ("2001:db8:0:5::1", "2001:db8:0:5::/64"),
        ("2001:db8:0:6::1", "2001:db8:0:6::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("a.socket", "a.socket"),
        ("", ""),
    ],
)
def test_an_ipv6_caller_shares_with_its_whole_64(address: str, network: str):
    assert network_of(address) == network
    assert Access(AuthSettings()).recognize(None, address).share == network


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),  # no proxy of ours: it may say what it likes
        ("10.1.2.3", None, "10.1.2.3"),
        ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # what the caller sent itself stands before it
        ("10.1.2.3", "6.6.6.6, 198.51.100.1, 192.0.2.7", "198.51.100.1"),
        ("10.1.2.3", "10.9.9.9, 10.8.8.8", "10.9.9.9"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", "6.6.6.6,", "10.1.2.3"),
        ("2001:db8:1::1", "2001:db8:7::1", "2001:db8:7::/64"),
        ("", "198.51.100.1", ""),
    ],
)
def test_whom_a_proxy_forwards_is_believed_of_trusted_proxies_alone(peer: str, forwarded: str | None, caller: str):
    assert Access(PROXIES).recognize(None, peer, forwarded).share == caller


def test_who_has_a_key_shares_by_it_wherever_they_call_from():
    key = {"sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}
    access = Access(AuthSettings.model_validate({"keys": {"chatbot": key}}))
    assert {access.recognize("secret", peer).share for peer in ("203.0.113.9", "2001:db8::1")} == {"key chatbot"}


def test_a_proxy_that_is_no_network_ends_the_start_with_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TURNSCORE_AUTH__TRUSTED_PROXIES", "10.0.0.1,proxy.example")
    with pytest.raises(SystemExit, match="TURNSCORE_AUTH__TRUSTED_PROXIES"):
        read_settings()


def test_the_server_itself_believes_nobody_about_whom_they_forward():
    """uvicorn believes everybody on its own machine unless this variable says otherwise."""
    program = "import os, turnscore_service.bento; print(repr(os.environ['FORWARDED_ALLOW_IPS']))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "''"
