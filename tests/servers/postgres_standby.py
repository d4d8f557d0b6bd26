"""A second private PostgreSQL that follows the first, and takes over when that one is gone."""

from __future__ import annotations

import os

from tests.servers.postgres import PostgresServer


class PostgresStandby(PostgresServer):
    """Made from a running primary; read-only until `promote`."""

    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__()

    def _create_cluster(self) -> None:
        data = self.folder / "data"
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self._run(
            "pg_basebackup",
            *("-D", str(data), "-h", str(self._primary.folder), "-U", "postgres"),
            *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        )
        with (data / "postgresql.conf").open("a") as configuration:
            configuration.write(f"unix_socket_directories = '{self.folder}'\n")

    def promote(self) -> None:
        """From now on this is the primary; returns when it can be written."""
        self._pg_ctl("promote")
