"""The certificates of a deployment's servers: each that is used, and each that replaces one, is an event of the run."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

_log = logging.getLogger("flwr")  # Flower shows what is logged here
SOON = timedelta(days=14)
"""A certificate that ends sooner is warned about, once for each start of the run."""


class Certificates:
    """Files of certificates, read again before every round.

    Args:
        paths: the files, in PEM; the first certificate in each counts.
        note: called with the facts of each certificate that is new, by name.
    """

    def __init__(self, paths: Sequence[str | Path], note: Callable[..., object]) -> None:
        self.paths, self.note = [Path(path) for path in paths], note
        self._seen: dict[Path, bytes | str] = {}

    def check(self) -> None:
        """Report the certificates that have changed; what cannot be read is reported too, and ends nothing."""
        from cryptography import x509  # of the extra flower, which deployments have
        from cryptography.hazmat.primitives.hashes import SHA256

        for path in self.paths:
            try:
                found: bytes | str = path.read_bytes()
                if self._seen.get(path) == found:
                    continue
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
            except (OSError, ValueError) as error:
                if self._seen.get(path) != str(error):
                    _log.warning("the certificate %s cannot be read: %s", path, error)
                    self.note(file=str(path), error=str(error))
                self._seen[path] = str(error)
                continue
            self._seen[path] = found
            end = certificate.not_valid_after_utc
            self.note(
                file=str(path),
                sha256=certificate.fingerprint(SHA256()).hex(),
                subject=certificate.subject.rfc4514_string(),
                until=end.isoformat(),
            )
            if end - datetime.now(UTC) < SOON:
                _log.warning("the certificate %s ends on %s: replace it, and reload nginx", path, end.date())
