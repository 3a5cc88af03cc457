"""Where certificates are: names only, for who must not wait for gRPC."""

from dataclasses import dataclass
from typing import Final

from dittomq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of PEM files. `ca`: whom to trust; `certificate` and `key`: who this process is. All empty: plain text.

    `settings` are the names of the three where their user sets them, for errors.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    settings: tuple[str, str, str] = ("ca_file", "certificate_file", "key_file")

    def __bool__(self) -> bool:
        return bool(self.ca or self.certificate or self.key)

    def check(self, *, serves: bool) -> None:
        """Raise ConfigError for files that are missing beside others; who serves needs all three."""
        ca, certificate, key = self.settings
        if bool(self.certificate) != bool(self.key):
            raise ConfigError(key if self.certificate else certificate, "is empty; a certificate and its key go together")
        if self and not self.ca:
            raise ConfigError(ca, "is empty; name the certificate authority that the others' certificates come from")
        if self and serves and not self.certificate:
            raise ConfigError(certificate, "is empty; a server shows one; name it and its key")


NO_CERTIFICATES: Final = CertificateFiles()
