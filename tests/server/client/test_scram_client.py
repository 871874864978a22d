"""SCRAM, the client's side: the examples of the RFCs, our own server, and servers that lie."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import MalformedRequest
from kafkalog.server.client.scram import ScramClient
from kafkalog.server.security.scram import ScramServer, keys_of_password

FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
NONCE = "rOprNGfwEbeRWgbNEkqO"


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert client.first() == b"n,,n=user,r=" + NONCE.encode()
    proof = client.second(FIRST)
    assert proof.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert not client.verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@settings(deadline=None, max_examples=15)
@given(st.text(min_size=1, max_size=20).filter(lambda text: "\0" not in text), st.text(min_size=1, max_size=20))
def test_our_own_server_takes_it(user: str, password: str) -> None:
    try:
        user.encode(), password.encode()
    except UnicodeEncodeError:
        return
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        keys = keys_of_password(mechanism, password)
        server, client = ScramServer(mechanism, {user: keys}.get), ScramClient(mechanism, user, password)
        assert client.verify(server.answer(client.second(server.answer(client.first()))))
        assert server.user == user


@pytest.mark.parametrize("message", [
    b"", b"r=x", FIRST.replace(b"rOpr", b"sOpr"), FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
    FIRST.replace(b"4096", b"4095"), FIRST.replace(b"4096", b"999999999"), FIRST.replace(b"==", b"="),
    FIRST + b"," + b"x" * 5000, b"\xff" + FIRST, b"m=ext," + FIRST,
])  # fmt: skip
def test_a_server_that_lies_at_first(message: bytes) -> None:
    with pytest.raises(MalformedRequest):
        ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE).second(message)


@pytest.mark.parametrize("message", [b"", b"v=", b"v=AAA", b"e=other-error", b"v=" + b"A" * 5000])
def test_a_server_that_lies_at_last(message: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    client.second(FIRST)
    with pytest.raises(MalformedRequest):
        client.verify(message)


def test_a_server_that_skips_the_proof_is_not_believed() -> None:
    assert not ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE).verify(b"v=" + b64encode(bytes(32)))
