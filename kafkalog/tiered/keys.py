"""Decryption and encryption of the plugin's objects: data keys wrapped by RSA key pairs, and AES-256-GCM.

A data key is wrapped with OAEP, whose hash and mask function are SHA3-512. No package offers that combination, so the
padding is made and removed here, with the plain RSA operation on the numbers of the key. Its time depends on the data:
that matters to a service that decrypts what strangers send, and not to a reader of one's own store.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Mapping
from hashlib import sha3_512
from typing import Any, Final

from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.tiered.manifest import Encryption
from kafkalog.util.fileio import OS
from kafkalog.util.os_errors import os_errors

IV_BYTES: Final = 12
TAG_BYTES: Final = 16
_DATA_KEY_BYTES: Final = 32
_MOST_KEY_FILE_BYTES: Final = 1 << 20
_HASH_BYTES: Final = 64
_LEAST_KEY_BITS: Final = 8 * (_DATA_KEY_BYTES + 2 * _HASH_BYTES + 2)
_OTHER_KEY: Final = "this private key does not open the data key"

Decrypt = Callable[[bytes], bytes]
"""A function that returns the plain bytes of an encrypted chunk, and raises ValueError if they were changed."""
Encrypt = Callable[[bytes], bytes]
"""A function that returns a chunk encrypted."""


class KeyRing:
    """RSA private keys in PEM files, by the id of the key pair; each is loaded on first use. Threads: safe."""

    def __init__(self, paths: Mapping[str, str]) -> None:
        self._paths = dict(paths)
        self._lock = threading.Lock()
        self._loaded: dict[str, Any] = {}  # guarded by self._lock

    def decryption(self, encryption: Encryption) -> Decrypt:
        """Return the function that decrypts the chunks of a segment.

        Raises ValueError for a data key that the key pair did not wrap; IllegalArgument, StorageError and
        MissingPackage for a key pair that is missing or cannot be loaded.
        """
        data_key = unwrapped(self._private_key(encryption.key_id), encryption.wrapped_key)
        if len(data_key) != _DATA_KEY_BYTES:
            raise ValueError(f"the data key has {len(data_key)} bytes instead of {_DATA_KEY_BYTES}")
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher = AESGCM(data_key)

        def decrypt(chunk: bytes) -> bytes:
            if len(chunk) < IV_BYTES + TAG_BYTES:
                raise ValueError(f"{len(chunk)} bytes are too few for an encrypted chunk")
            try:
                return cipher.decrypt(chunk[:IV_BYTES], chunk[IV_BYTES:], encryption.authenticated_data)
            except InvalidTag:
                raise ValueError("its bytes or its data key were changed: the authentication tag differs") from None

        return decrypt

    def encryption(self, key_id: str) -> tuple[Encrypt, dict[str, str]]:
        """Return the function that encrypts the chunks of a new segment, and that part of its manifest.

        The data key is a new one, wrapped by the key pair. Errors as for `decryption`, except ValueError.
        """
        numbers = self._private_key(key_id)
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        data_key, authenticated_data = os.urandom(_DATA_KEY_BYTES), os.urandom(_DATA_KEY_BYTES)
        cipher = AESGCM(data_key)

        def encrypt(chunk: bytes) -> bytes:
            vector = os.urandom(IV_BYTES)
            return vector + cipher.encrypt(vector, chunk, authenticated_data)

        key = base64.b64encode(wrapped(numbers, data_key)).decode()
        return encrypt, {"dataKey": f"{key_id}:{key}", "aad": base64.b64encode(authenticated_data).decode()}

    def _private_key(self, key_id: str) -> Any:
        path = self._paths.get(key_id)
        if path is None:
            known = ", ".join(sorted(self._paths)) or "none"
            raise IllegalArgument(
                f"the segments are encrypted for the key pair {ascii(key_id[:80])}, whose private key was not given",
                hint=f"name its PEM file under `keys` in the description of the tiered store (given: {known})",
            )
        with self._lock:
            if path not in self._loaded:
                self._loaded[path] = _load(path)
            return self._loaded[path]


def _load(path: str) -> Any:
    """Return the numbers of the RSA private key in a PEM file."""
    try:
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise MissingPackage(
            "cryptography, which decrypts tiered segments, is not installed", hint="pip install 'kafkalog[tiered]'"
        ) from None
    with os_errors("read the private key", path):
        content = OS.read_file(path, _MOST_KEY_FILE_BYTES)
    try:
        key = load_pem_private_key(content, password=None)
    except Exception as error:  # each version of the package has its own
        raise IllegalArgument(f"this is no private key in PEM: {error}", path=path, hint="give its PEM file") from None
    if not isinstance(key, RSAPrivateKey):
        raise IllegalArgument("this is no RSA key", path=path, hint="give the private key of the broker's key pair")
    if key.key_size < _LEAST_KEY_BITS:
        raise IllegalArgument(
            f"an RSA key of {key.key_size} bits wraps no data key, which takes {_LEAST_KEY_BITS}", path=path,
            hint="give the private key of the broker's key pair",
        )  # fmt: skip
    return key.private_numbers()


def wrapped(numbers: Any, data_key: bytes) -> bytes:
    """Return the data key, padded (RFC 8017, 7.1.1) and encrypted for the RSA numbers, which `unwrapped` reverses."""
    public = numbers.public_numbers
    size = (public.n.bit_length() + 7) // 8
    seed = os.urandom(_HASH_BYTES)
    filler = bytes(size - len(data_key) - 2 * _HASH_BYTES - 2)
    block = sha3_512().digest() + filler + b"\x01" + data_key
    masked = _xor(block, _mask(seed, len(block)))
    padded = b"\0" + _xor(seed, _mask(masked, _HASH_BYTES)) + masked
    cipher: int = pow(int.from_bytes(padded, "big"), public.e, public.n)
    return cipher.to_bytes(size, "big")


def unwrapped(numbers: Any, wrapped: bytes) -> bytes:
    """Return the data key in `wrapped`; raise ValueError if these RSA numbers do not open it."""
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    cipher = int.from_bytes(wrapped, "big")
    if len(wrapped) != size or cipher >= modulus:
        raise ValueError(_OTHER_KEY)
    first, second = pow(cipher, numbers.dmp1, numbers.p), pow(cipher, numbers.dmq1, numbers.q)
    padded = (second + (first - second) * numbers.iqmp % numbers.p * numbers.q).to_bytes(size, "big")
    masked_seed, masked = padded[1 : 1 + _HASH_BYTES], padded[1 + _HASH_BYTES :]
    seed = _xor(masked_seed, _mask(masked, _HASH_BYTES))
    block = _xor(masked, _mask(seed, len(masked)))
    rest = block[_HASH_BYTES:].lstrip(b"\0")
    if padded[0] or block[:_HASH_BYTES] != sha3_512().digest() or rest[:1] != b"\x01":
        raise ValueError(_OTHER_KEY)
    return rest[1:]


def _mask(seed: bytes, size: int) -> bytes:
    """Return MGF1 (RFC 8017, B.2.1) of SHA3-512."""
    blocks = range(-(-size // _HASH_BYTES))
    return b"".join(sha3_512(seed + number.to_bytes(4, "big")).digest() for number in blocks)[:size]


def _xor(data: bytes, mask: bytes) -> bytes:
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")
