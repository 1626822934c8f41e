"""A Slurm cluster of this machine on loopback: munged, slurmctld and a slurmd a node on free ports, with own files.

All of it runs as the present user, and without cgroups, so that it also starts in a container. Two partitions: jobs of
`spare` give way to those of `urgent`, and go back into the queue.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.services.missing import program
from tests.support.waiting import wait_for

CONF = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={controller}
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000
JobRequeue=1
KillWait=20
MailProg=/bin/true
{nodes}
PartitionName=spare Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1000 State=UNKNOWN"


def free_ports(count: int) -> list[int]:
    with_sockets = [socket.socket() for _ in range(count)]
    for one in with_sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in with_sockets]
    for one in with_sockets:
        one.close()
    return ports


class Cluster:
    """Started by `with`; `environment` is what a client needs.

    Args:
        nodes: how many; each is a slurmd of this machine, with one core.
    """

    def __init__(self, nodes: int = 1) -> None:
        self._nodes = nodes
        # Not below pytest's folder, which is private: munge wants its socket in reach, and the path to be short.
        self.root = Path(tempfile.mkdtemp(prefix="slurm-"))
        self.environment = {"SLURM_CONF": str(self.root / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._log = self.root / "daemons.log"

    def __enter__(self) -> Cluster:
        self.root.chmod(0o755)
        for name in ("munge", "state", "spool"):
            (self.root / name).mkdir()
            (self.root / name).chmod(0o755)
        key = self.root / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        host = socket.gethostname().partition(".")[0]
        controller, *ports = free_ports(1 + self._nodes)
        user = pwd.getpwuid(os.getuid()).pw_name
        named = {f"{host}-{number}": port for number, port in enumerate(ports)}
        nodes = "\n".join(NODE.format(name=name, host=host, port=port) for name, port in named.items())
        conf = CONF.format(host=host, user=user, root=self.root, controller=controller, nodes=nodes)
        (self.root / "slurm.conf").write_text(conf, encoding="utf-8")
        munge = [
            f"--{name}={self.root}/munge/{name.removesuffix('-file')}" for name in ("key-file", "socket", "pid-file")
        ]
        munge += [f"--{name}={self.root}/munge/{name}" for name in ("log-file", "seed-file")]
        try:
            self._start("munged", "--foreground", "--force", *munge)
            wait_for((self.root / "munge" / "socket").exists)
            self._start("slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
            for name in named:
                self._start("slurmd", "-D", "-f", self.environment["SLURM_CONF"], "-N", name)
            idle = f"idle {self._nodes}"
            wait_for(lambda: self.ask("sinfo", "--noheader", "--format=%t %D", "--partition=spare") == idle)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.ask("scancel", f"--user={pwd.getpwuid(os.getuid()).pw_name}")
        deadline = time.monotonic() + 30
        while self.ask("squeue", "--noheader") and time.monotonic() < deadline:
            time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def _start(self, name: str, *words: str) -> None:
        path = program(name)
        assert path is not None
        with open(self._log, "ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    ["setpriv", "--pdeathsig", "TERM", path, *words],  # a killed test leaves none behind
                    env={**os.environ, **self.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints; nothing where it fails."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environment},
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=60,
        )
        return done.stdout.strip()

    def log(self) -> str:
        """What the daemons said."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]
