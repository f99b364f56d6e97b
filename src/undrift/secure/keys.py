"""The cryptography of secure sums, all from the library `cryptography`: key agreement, streams, seals, signatures.

Keys are agreed by X25519 and derived by HKDF with SHA-256, masks are ChaCha20 streams, shares are sealed with
ChaCha20-Poly1305, and parties sign with Ed25519. Every derived key has a label of its own and serves one purpose.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from undrift.secure.settings import SecureError

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise ImportError("secure sums need cryptography: pip install 'undrift[secure]'") from error

_NONCE = bytes(12)  # every key seals one message
_COUNTER = bytes(16)  # every key gives one stream


def agreement_key(secret: bytes) -> bytes:
    """The public key of a secret of 32 bytes for key agreement."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, public: bytes, label: bytes) -> bytes:
    """A key of 32 bytes that the owners of two key pairs share, for one purpose.

    Args:
        secret: one's own secret.
        public: the other's public key.
        label: the purpose.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise SecureError("keys: a public key is not one of X25519") from error
    return HKDF(SHA256(), 32, salt=None, info=b"undrift " + label).derive(shared)


def open_stream(seed: bytes) -> Callable[[int], np.ndarray[Any, Any]]:
    """A function of a number of bytes: the next ones of a seed's ChaCha20 stream, which its next call overwrites."""
    stream = Cipher(algorithms.ChaCha20(seed, _COUNTER), mode=None).encryptor()
    empty, buffer = b"", bytearray()

    def take(count: int) -> np.ndarray[Any, Any]:
        nonlocal empty, buffer
        if len(buffer) != count:
            empty, buffer = bytes(count), bytearray(count)
        stream.update_into(empty, buffer)
        return np.frombuffer(buffer, np.uint8)

    return take


def seal(key: bytes, text: bytes) -> bytes:
    """A text that only those can read, and only those could write, who have a key; a key seals one text."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, text, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """The text that `seal` closed."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
    except InvalidTag as error:
        raise SecureError("shares: a sealed share was changed on its way, or is meant for another party") from error


def identity_key(secret: bytes) -> bytes:
    """The public key of a secret of 32 bytes for signatures."""
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def sign(secret: bytes, text: bytes) -> bytes:
    """The signature of a text."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(text)


def is_signed(public: bytes, signature: bytes, text: bytes) -> bool:
    """Whether a signature is that of a text by the owner of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
