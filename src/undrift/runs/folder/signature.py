"""Signatures of a run's events: Ed25519, so that who verifies them cannot make any.

    ssh-keygen -t ed25519 -N "" -f audit     # the private key signs, audit.pub verifies

`UNDRIFT_AUDIT_KEY` names the file of a private key where runs are trained, and of the public one elsewhere.
"""

import os
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

KEY = "UNDRIFT_AUDIT_KEY"
_MAKE = 'ssh-keygen -t ed25519 -N "" -f FILE'


class AuditError(RuntimeError):
    """The log, or a file that it describes, was changed after it was written; the message names it."""


class AuditKey:
    """A key that verifies events, and signs them if it is a private one.

    Args:
        key: of the package `cryptography`: an Ed25519 key, private or public.
    """

    def __init__(self, key: Any) -> None:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self._private = key if hasattr(key, "sign") else None
        self._public = key.public_key() if hasattr(key, "sign") else key
        self.text = self._public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    @property
    def signs(self) -> bool:
        """Whether it is a private key."""
        return self._private is not None

    def sign(self, text: str) -> str:
        """The signature of a text."""
        assert self._private is not None
        return b64encode(self._private.sign(text.encode())).decode()

    def valid(self, text: str, signature: Any) -> bool:
        """Whether a signature of a text was made with this key."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._public.verify(b64decode(signature, validate=True), text.encode())
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True


def read_key(text: bytes, name: str) -> AuditKey:
    """The key in a file's content, in OpenSSH's form or in PEM.

    Args:
        text: the content.
        name: what the file is called in an error.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    except ImportError:
        raise AuditError(f"{name}: signatures need the package cryptography: pip install 'undrift[secure]'") from None
    private = (form.load_ssh_private_key, form.load_pem_private_key)
    loads = [*(lambda text, load=load: load(text, None) for load in private)]
    for load in (*loads, form.load_ssh_public_key, form.load_pem_public_key):
        try:
            found = load(text)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(found, Ed25519PrivateKey | Ed25519PublicKey):
            return AuditKey(found)
    raise AuditError(f"{name} is not an Ed25519 key without a passphrase: make one with {_MAKE}")


def audit_key(path: Path | str | None = None) -> AuditKey | None:
    """The key that signs or verifies events, None if there is none.

    Args:
        path: its file; None takes the one that `UNDRIFT_AUDIT_KEY` names, if it names one.
    """
    name = os.environ.get(KEY) if path is None else path
    if not name:
        return None
    where = f"{KEY}: {name}" if path is None else str(path)
    try:
        return read_key(Path(name).read_bytes(), where)
    except OSError as error:
        raise AuditError(f"{where} cannot be read: {error.strerror}; name a file with the key") from None
