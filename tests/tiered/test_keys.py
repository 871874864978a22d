"""Data keys: wrapped by the provider that the plugin uses, opened here."""

import base64
from pathlib import Path

import pytest

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.tiered.keys import KeyRing
from kafkalog.tiered.manifest import Encryption
from tests.tiered_store import KeyPair

pytest.importorskip("cryptography", reason="cryptography is not installed: pip install 'kafkalog[tiered]'")

WRAPPED = (
    "S0ZbZdb06QHFm458zbKEvO5L1HLVkdw/JNNO3pbKg0HSjjOMxi5OdAkpVxOEDafqR3ykqXhOZRTAXMiB1K8KcCogpsW8G8GM38Yv"
    "tMU6JsOScHMXGuB9hyCi1R/n8A8IEhd26neOpW6zY/PiXKhwFr4IbqAXFekLGPNZYY7q9+4zELHlZ0WTCxvxWG1hcPNXnhp7Nshh"
    "J1kFmTC/Jk59cakTFYR3xsFg1JqplBZXy1T58ii7sUO5RflamRB9lNwc1kc7HpoMWMp7LVMayPOd5JuiwgH9Fpyo6ZfyitzDAKs/"
    "+i6V1dqpikMBgE1JEpTV3KyMuecLkaKdjPPMkrcZTw=="
)
"""The bytes 0 to 31, wrapped by `RSA/NONE/OAEPWithSHA3-512AndMGF1Padding` of BouncyCastle 1.83 for tiered_key.pem."""
KEY = Path(__file__).parents[1] / "data" / "tiered_key.pem"


def test_a_data_key_that_bouncy_castle_wrapped_is_opened() -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    chunk = bytes(12) + AESGCM(bytes(range(32))).encrypt(bytes(12), b"records", b"aad")
    decrypt = KeyRing({"key1": str(KEY)}).decryption(Encryption("key1", base64.b64decode(WRAPPED), b"aad"))
    assert decrypt(chunk) == b"records"
    with pytest.raises(ValueError, match="tag differs"):
        decrypt(chunk[:-1] + b"x")
    with pytest.raises(ValueError, match="too few"):
        decrypt(chunk[:27])
    with pytest.raises(IllegalArgument, match=r"pair 'key2', whose private key was not given.*\(given: key1\)"):
        KeyRing({"key1": str(KEY)}).encryption("key2")
    with pytest.raises(StorageError, match="cannot read the private key") as error:
        KeyRing({"key1": str(KEY) + ".none"}).encryption("key1")
    assert error.value.path == str(KEY) + ".none"


def private_key(path: Path, bits: int) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, bits)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*form))


def test_keys_of_any_size_that_holds_a_data_key(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    for bits in (1296, 1299):
        private_key(path, bits)
        encrypt, named = KeyRing({"k": str(path)}).encryption("k")
        key_id, _, wrapped = named["dataKey"].partition(":")
        encryption = Encryption(key_id, base64.b64decode(wrapped), base64.b64decode(named["aad"]))
        assert key_id == "k" and KeyRing({"k": str(path)}).decryption(encryption)(encrypt(b"")) == b""
    private_key(path, 1288)
    for call in (lambda ring: ring.encryption("k"), lambda ring: ring.decryption(encryption)):
        with pytest.raises(IllegalArgument, match="an RSA key of 1288 bits wraps no data key, which takes 1296"):
            call(KeyRing({"k": str(path)}))


@pytest.mark.parametrize("at", [0, 1, 100, 255])
def test_a_changed_data_key_is_refused(at: int) -> None:
    wrapped = bytearray(base64.b64decode(WRAPPED))
    wrapped[at] ^= 1
    with pytest.raises(ValueError, match="does not open"):
        KeyRing({"key1": str(KEY)}).decryption(Encryption("key1", bytes(wrapped), b"aad"))
    with pytest.raises(ValueError, match="does not open"):
        KeyRing({"key1": str(KEY)}).decryption(Encryption("key1", bytes(wrapped[:-1]), b"aad"))
    with pytest.raises(ValueError, match="does not open"):
        KeyRing({"key1": str(KEY)}).decryption(Encryption("key1", b"\0" + base64.b64decode(WRAPPED), b"aad"))


def test_each_part_of_the_padding_is_checked(tmp_path: Path) -> None:
    pair, data_key = KeyPair("k"), bytes(range(1, 33))
    ring = KeyRing({"k": str(pair.write(tmp_path / "key.pem"))})
    ring.decryption(Encryption("k", pair.wrapped(data_key), b"aad"))
    for changed in ({"first": b"\1"}, {"label": b"other"}, {"mark": b"\2"}):
        with pytest.raises(ValueError, match="does not open"):
            ring.decryption(Encryption("k", pair.wrapped(data_key, **changed), b"aad"))


@pytest.mark.parametrize("size", [31, 33])
def test_a_data_key_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    pair = KeyPair("k")
    ring = KeyRing({"k": str(pair.write(tmp_path / "key.pem"))})
    with pytest.raises(ValueError, match=f"the data key has {size} bytes instead of 32"):
        ring.decryption(Encryption("k", pair.wrapped(bytes(size)), b"aad"))
