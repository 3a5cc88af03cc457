"""The coordination store that configuration names."""

from collections.abc import Mapping, Sequence

from dittomq.coordination.credentials import TlsFiles
from dittomq.coordination.endpoints import Endpoints
from dittomq.coordination.etcd import EtcdCoordination
from dittomq.coordination.nameserver import NameserverCoordination
from dittomq.coordination.settings import CoordinationBackend, CoordinationTable
from dittomq.doors.clock import Clock
from dittomq.doors.coordination import CoordinationStore
from dittomq.doors.transport import Transport
from dittomq.doors.workers import Workers
from dittomq.errors import ConfigError
from dittomq.security.secret_files import SecretFile, read_secret


def make_coordination(
    settings: CoordinationTable,
    endpoints: Sequence[str],
    *,
    transport: Transport,
    clock: Clock,
    workers: Workers,
    environment: Mapping[str, str],
) -> CoordinationStore | None:
    """The store at these endpoints; None where there are none. It connects when it is used. Raises ConfigError for unusable files."""
    match settings.backend:
        case CoordinationBackend.NAMESERVER:
            if not endpoints:
                return None
            if len(endpoints) > 1:
                raise ConfigError("coordination.endpoints", "names several nameservers, and only one may keep the group record; name one")
            return NameserverCoordination(Endpoints("nameserver", endpoints, transport, clock))
        case CoordinationBackend.ETCD:
            if not endpoints:
                return None
            files = workers.lane("coordination_files")
            tls = TlsFiles.of(settings, files)
            tls.check()
            password = SecretFile("coordination.password_file", settings.password_file, files) if settings.username else None
            if password is not None:
                read_secret(password.setting, password.path)
            return EtcdCoordination(Endpoints("etcd", endpoints, transport, clock, tls=tls), settings.prefix, settings.username, password)
        case CoordinationBackend.KUBERNETES:
            try:  # an optional extra, which takes more memory than all else that a node imports
                from dittomq.coordination.kubernetes import KubernetesCoordination, kubernetes_access  # noqa: PLC0415
            except ImportError as error:
                problem = f'is kubernetes, and {error.name} is not installed; pip install "dittomq[kubernetes]"'
                raise ConfigError("coordination.backend", problem) from error
            access = kubernetes_access(settings, endpoints, environment=environment, lane=workers.lane("coordination_files"))
            return KubernetesCoordination(access, clock)
