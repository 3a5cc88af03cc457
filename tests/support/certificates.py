"""Certificates for tests, of an authority in a folder."""

from pathlib import Path

from dittomq.security.certificate_files import CertificateFiles
from dittomq.testing.authority import CertificateAuthority


def certificate(folder: Path, holder: str = "node") -> CertificateFiles:
    """A new one for `holder` on loopback, of the authority of that folder, in the place of an earlier one."""
    authority = CertificateAuthority(folder)
    authority.issue(holder, ("127.0.0.1", "localhost"))
    return authority.files_of(holder)
