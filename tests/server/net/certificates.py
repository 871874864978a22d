"""Certificates for tests, made by the openssl command."""

import subprocess
from pathlib import Path


def _openssl(*args: str) -> None:
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def authority(folder: Path) -> Path:
    """A signer: ca.pem, ca.key."""
    _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-subj", "/CN=Tests",
             "-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem"))  # fmt: skip
    return folder / "ca.pem"


def certificate(folder: Path, name: str, subject: str, password: str | None = None) -> Path:
    """A PEM file with a key and a certificate of the authority, for localhost and 127.0.0.1."""
    key, request, made = (folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
    _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", subject, "-keyout", str(key),
             "-out", str(request), *(["-nodes"] if password is None else ["-passout", f"pass:{password}"]))  # fmt: skip
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")  # 3.13 asks for it
    _openssl("x509", "-req", "-in", str(request), "-CA", str(folder / "ca.pem"), "-CAkey", str(folder / "ca.key"),
             "-CAcreateserial", "-days", "2", "-extfile", str(names), "-out", str(made))  # fmt: skip
    pem = folder / f"{name}.pem"
    pem.write_text(key.read_text() + made.read_text())
    return pem
