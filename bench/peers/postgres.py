"""PostgreSQL: a primary and one standby, `synchronous_commit = on`: a commit is flushed on both before it is answered.

Its own load generator, pgbench, over loopback; rows of one text of 1 KiB. The settings keep checkpoints out of a run.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.running import NotInstalled, free_ports, program, run, servant, wait_until

NAME = "PostgreSQL, synchronous_commit = on"
_HOST = "127.0.0.1"
_BODY = "x" * 1024
_INSERT = "insert into m(body) values {values};"
_FILL = "insert into m(body) select repeat('x', 1024) from generate_series(1, {rows})"
_CONFIG = """
unix_socket_directories = ''
listen_addresses = '127.0.0.1'
max_connections = 100
shared_buffers = 512MB
max_wal_size = 8GB
checkpoint_timeout = 30min
wal_level = replica
wal_keep_size = 1GB
wal_log_hints = on
max_wal_senders = 8
autovacuum = off
synchronous_commit = on
"""


class Postgres:
    """A running pair."""

    def __init__(self, tools: Path, folder: Path, user: str | None) -> None:
        self.folder = folder
        self._tools = tools
        self._user = user
        self._ports = dict(zip(("primary", "standby"), free_ports(2), strict=True))

    @property
    def pids(self) -> list[int]:
        """Those of both servers, which have started all others."""
        return [int((self._data(name) / "postmaster.pid").read_text().split()[0]) for name in self._ports]

    def one_caller(self, calls: int) -> list[float]:
        """Milliseconds of as many commits of one row, one after the other."""
        self._pgbench("insert into m(body) values (:body);", clients=1, each=calls, mode="prepared")
        lines = [line for file in self.folder.glob("calls.*") for line in file.read_text().splitlines()]
        return [int(line.split()[2]) / 1000 for line in lines]

    def inserts(self, callers: int, rows: int, each: int) -> float:
        """Rows a second: `callers` commit `rows` rows in one statement, `each` times."""
        values = ",".join(["(:body)"] * rows)
        statement = _INSERT.format(values=values)
        return rows * self._pgbench(statement, clients=callers, each=each, mode="prepared")

    def copies(self, callers: int, rows: int, each: int) -> float:
        """The same by COPY. The server reads the rows from a file: nothing is sent by the client, which is in its favour."""
        file = self.folder / "rows.txt"
        file.write_text(f"{_BODY}\n" * rows)
        self._own(file)
        return rows * self._pgbench(f"copy m(body) from '{file}';", clients=callers, each=each, mode="simple")

    def rewind_s(self, rows: int) -> float:
        """The seconds of pg_rewind after both have written `rows` rows of their own. The pair is none any more.

        It flushes what it has written, as it does where nobody says otherwise; what others wrote before is flushed already.
        """
        for name in ("primary", "standby"):
            if name == "standby":
                self._sql(name, "select pg_promote()")
            self._sql(name, "alter system set synchronous_standby_names = ''")
            self._sql(name, "select pg_reload_conf()")
            wait_until(lambda name=name: self._sql(name, "show synchronous_standby_names") == "", "the pair did not part")  # type: ignore[misc]
            self._sql(name, _FILL.format(rows=rows))
        self._sql("standby", "checkpoint")
        self.stop("primary", "fast")
        source = f"host=127.0.0.1 port={self._ports['standby']} user=postgres dbname=postgres"
        os.sync()
        began = time.perf_counter()
        self._tool("pg_rewind", "-D", str(self._data("primary")), f"--source-server={source}")
        return time.perf_counter() - began

    def start(self) -> None:
        """Make and start both, and wait until the standby is synchronous."""
        self._tool("initdb", "-D", str(self._data("primary")), "-k", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync")
        with (self._data("primary") / "postgresql.conf").open("a") as config:
            config.write(_CONFIG)
        self._start("primary")
        self._sql("primary", "create table m(id bigserial primary key, body text)")
        address = f"host=127.0.0.1 port={self._ports['primary']} user=postgres application_name=standby"
        self._tool("pg_basebackup", "-d", address, "-D", str(self._data("standby")), "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._start("standby")
        self._sql("primary", "alter system set synchronous_standby_names = 'standby'")
        self._sql("primary", "select pg_reload_conf()")
        waits = "select count(*) from pg_stat_replication where sync_state = 'sync'"
        wait_until(lambda: self._sql("primary", waits) == "1", "the standby did not become synchronous")

    def stop(self, name: str, mode: str = "immediate") -> None:
        """End one of them; nothing happens when it does not run."""
        if (self._data(name) / "postmaster.pid").exists():
            self._tool("pg_ctl", "-D", str(self._data(name)), "-w", "-m", mode, "stop")

    def _start(self, name: str) -> None:
        log = str(self.folder / f"{name}.log")
        self._tool("pg_ctl", "-D", str(self._data(name)), "-w", "-t", "60", "-l", log, "-o", f"-p {self._ports[name]}", "start")

    def _pgbench(self, statement: str, *, clients: int, each: int, mode: str) -> float:
        """Transactions a second; the latencies lie in `calls.*`."""
        for old in self.folder.glob("calls.*"):
            old.unlink()
        script = self.folder / "script.sql"
        script.write_text(f"{statement}\n")
        self._own(script)
        server = ["-h", _HOST, "-p", str(self._ports["primary"]), "-U", "postgres"]
        load = ["-M", mode, "-c", str(clients), "-j", str(min(clients, 2)), "-t", str(each), "-D", f"body={_BODY}"]
        logs = ["-l", "--log-prefix", "calls"]
        said = self._tool("pgbench", "-n", *server, "-f", str(script), *load, *logs, "postgres")
        return next(float(line.split()[2]) for line in said.splitlines() if line.startswith("tps"))

    def _sql(self, name: str, text: str) -> str:
        port = str(self._ports[name])
        return self._tool("psql", "-h", _HOST, "-p", port, "-U", "postgres", "-d", "postgres", "-AtqXc", text).strip()

    def _tool(self, name: str, *arguments: str) -> str:
        # By a program: who changes its user between fork and exec forks for real, and gRPC's threads do not survive that.
        us = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups"] if self._user is not None else []
        return run([*us, str(self._tools / name), *arguments], cwd=self.folder, env=os.environ | {"HOME": str(self.folder)})

    def _data(self, name: str) -> Path:
        return self.folder / name

    def _own(self, file: Path) -> None:
        if self._user is not None:
            shutil.chown(file, self._user)


@contextmanager
def postgres_in(folder: Path) -> Iterator[Postgres]:
    """A pair with an empty table; NotInstalled where there is none."""
    newest = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    tools = Path(program("initdb", "postgresql", *([str(newest)] if newest else []))).parent
    if not (tools / "pgbench").exists():
        raise NotInstalled("no pgbench beside initdb; on Debian: apt-get install postgresql")
    user = servant("postgres")
    folder.mkdir(parents=True)
    if user is not None:
        for parent in [folder, *folder.parents]:  # its server runs as another user, and must reach its own folder
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
        shutil.chown(folder, user)
    pair = Postgres(tools, folder, user)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(pair.stop, "primary")
        stack.callback(pair.stop, "standby")
        pair.start()
        yield pair
