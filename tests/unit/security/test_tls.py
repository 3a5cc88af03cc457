"""Certificates in files: which are taken, and what is said of those that are not."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from dittomq.errors import ConfigError
from dittomq.security.certificate_files import CertificateFiles
from dittomq.security.tls import Certificates, load_certificates
from tests.support.certificates import certificate


class Noted:
    """What followed certificates say."""

    def __init__(self) -> None:
        self.renewals = 0
        self.problems: list[str] = []

    def renewed(self) -> None:
        self.renewals += 1

    def refused(self, problem: ConfigError) -> None:
        self.problems.append(str(problem))


def followed(files: CertificateFiles) -> tuple[Certificates, Noted]:
    noted = Noted()
    return Certificates(files, on_renewal=noted.renewed, on_problem=noted.refused), noted


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (CertificateFiles("ca", "certificate", ""), "key_file: is empty; a certificate and its key go together"),
        (CertificateFiles("ca", "", "key"), "certificate_file: is empty; a certificate and its key go together"),
        (CertificateFiles("", "certificate", "key"), "ca_file: is empty; name the certificate authority"),
        (CertificateFiles("ca"), "certificate_file: is empty; a server shows one"),
    ],
    ids=["no key", "no certificate", "no authority", "only an authority"],
)
def test_server_names_the_file_that_is_missing_beside_others(files: CertificateFiles, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        files.check(serves=True)


def test_client_needs_no_certificate_of_its_own_nor_any_file() -> None:
    CertificateFiles("ca").check(serves=False)
    CertificateFiles().check(serves=True)
    assert not CertificateFiles()


def test_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    files, other = certificate(tmp_path), certificate(tmp_path, "other")
    with pytest.raises(ConfigError, match=r"key_file: .*other\.key is not the key of .*node\.crt"):
        load_certificates(replace(files, key=other.key))


def test_file_without_certificates_is_no_authority(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    Path(files.ca).write_text("nothing of that kind\n")
    with pytest.raises(ConfigError, match=r"ca_file: .* holds no certificates in PEM"):
        load_certificates(files)


@pytest.mark.parametrize("content", ["nothing of that kind\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_file_without_a_certificate_is_refused(tmp_path: Path, content: str) -> None:
    files = certificate(tmp_path)
    Path(files.certificate).write_text(content)
    with pytest.raises(ConfigError, match=r"certificate_file: .* are no certificate and key in PEM"):
        load_certificates(files)


def test_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), password=None)
    secret = serialization.BestAvailableEncryption(b"open sesame")
    Path(files.key).write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    with pytest.raises(ConfigError, match="in PEM without a password"):
        load_certificates(files)


def test_missing_file_is_named_with_its_setting(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    Path(files.key).unlink()
    with pytest.raises(ConfigError, match=r"key_file: .*node\.key cannot be read: No such file"):
        load_certificates(files)


def test_exchanged_files_are_a_new_version(tmp_path: Path) -> None:
    certificates, noted = followed(certificate(tmp_path))
    certificates.look()
    assert (certificates.version, noted.renewals) == (0, 0)
    certificate(tmp_path)
    certificates.look()
    assert (certificates.version, noted.renewals) == (1, 1)


def test_unusable_new_files_are_told_once_and_the_former_stay(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    certificates, noted = followed(files)
    whole = Path(files.certificate).read_bytes()
    Path(files.certificate).write_bytes(whole[:100])
    certificates.look()
    certificates.look()
    assert certificates.version == 0
    assert len(noted.problems) == 1
    Path(files.certificate).write_bytes(whole)
    certificates.look()
    Path(files.certificate).write_bytes(whole[:100])
    certificates.look()
    assert (certificates.version, noted.renewals, len(noted.problems)) == (0, 0, 2)
