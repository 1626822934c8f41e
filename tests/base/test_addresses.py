"""Addresses are shown without their secrets, and those with one are refused before anything stores them."""

from __future__ import annotations

import pytest

from lexmill.base.addresses import filled, redact, secret_in
from lexmill.base.errors import UserError


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:hush@host/a.txt?sig=hush#hush", "https://host/a.txt"),
        ("htp://me:hush@host/a.txt", "htp://host/a.txt"),
        ("https:/me:hush@host/a.txt", "https:/host/a.txt"),
        ("me:hush@host/a.txt", "host/a.txt"),
        ("https://me:hu@sh@host/a", "https://host/a"),
        ("https://me:hush@[bad/a", "https://[bad/a"),
        ("postgresql://me:hush@host/db", "postgresql://host/db"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://host:80/a", "https://host:80/a"),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, shown: str) -> None:
    assert redact(address) == shown


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("https://me:hush@host/a", "a login"),
        ("https://token@host/a", "a login"),
        ("https:/me:hush@host/a", "a login"),
        ("https://me:hush@[bad", "a login"),
        ("https://host/a?x=1&sig=abc", "the secret parameter 'sig'"),
        ("https://host/a?X-Amz-Signature=abc", "the secret parameter 'X-Amz-Signature'"),
        ("https://host/a?api_key=abc", "the secret parameter 'api_key'"),
        ("https://host/a?access_token=abc", "the secret parameter 'access_token'"),
        ("https://$USER:$PASSWORD@host/a", ""),
        ("https://host/a?sig=$SIG", ""),
        ("https://host/a?$QUERY", ""),
        ("https://host/a?page=2&design=x", ""),
        ("https://host/a@b/c", ""),
    ],
)
def test_a_secret_in_an_address_is_found(address: str, secret: str) -> None:
    assert secret_in(address) == secret


def test_names_are_filled_from_the_environment_in_login_and_query_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ME", "a b")
    monkeypatch.setenv("HUSH", "p/w@1")
    monkeypatch.setenv("QUERY", "sv=1&sig=x%2F")
    assert filled("https://$ME:${HUSH}@host/$ME?t=$HUSH") == "https://a%20b:p%2Fw%401@host/$ME?t=p%2Fw%401"
    assert filled("https://host/a?$QUERY") == "https://host/a?sv=1&sig=x%2F"
    with pytest.raises(UserError, match="https://host/a needs the environment variable ABSENT, which is not set"):
        filled("https://host/a?sig=$ABSENT")
