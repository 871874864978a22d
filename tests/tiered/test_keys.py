"""Data keys: wrapped by the provider that the plugin uses, opened here."""

import base64
from pathlib import Path

import pytest

from kafkalog.tiered.keys import KeyRing
from kafkalog.tiered.manifest import Encryption

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


@pytest.mark.parametrize("at", [0, 1, 100, 255])
def test_a_changed_data_key_is_refused(at: int) -> None:
    wrapped = bytearray(base64.b64decode(WRAPPED))
    wrapped[at] ^= 1
    with pytest.raises(ValueError, match="does not open"):
        KeyRing({"key1": str(KEY)}).decryption(Encryption("key1", bytes(wrapped), b"aad"))
    with pytest.raises(ValueError, match="does not open"):
        KeyRing({"key1": str(KEY)}).decryption(Encryption("key1", bytes(wrapped[:-1]), b"aad"))
