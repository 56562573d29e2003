"""kubectl as an administrator of some cluster: this one, or any other that a kubeconfig leads to."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localcluster.addresses import direct
from localcluster.plan import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl."""

    program: Path
    kubeconfig: Path

    def __call__(self, *argv: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Return the output of `kubectl argv…`.

        Raises:
            ClusterError: it failed, with its own message.
        """
        done = self.attempt(*argv, stdin=stdin, seconds=seconds)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(argv)}: {done.stderr.strip()}")
        return done.stdout

    def attempt(self, *argv: str, stdin: str | None = None, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run `kubectl argv…`, whatever its exit code."""
        command = [str(self.program), f"--kubeconfig={self.kubeconfig}", *argv]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=direct(os.environ),
        )

    def apply(self, objects: Iterable[dict[str, Any]], *flags: str) -> None:
        """Apply objects on the server's side."""
        documents = "\n---\n".join(json.dumps(one) for one in objects)
        self("apply", "--server-side", "--force-conflicts", *flags, "-f", "-", stdin=documents)

    def create_namespace(self, name: str, *, restricted: bool = True) -> None:
        """Create a namespace and wait until pods can be made in it."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted" if restricted else "privileged"}
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
        account = ("get", "serviceaccount", "default", "--namespace", name)
        self.wait("the default service account", lambda: self.attempt(*account).returncode == 0)

    def get(self, *argv: str) -> dict[str, Any]:
        """Return what `kubectl get argv…` finds."""
        return dict(json.loads(self("get", *argv, "--output=json")))

    def wait(self, what: str, done: Callable[[], object], seconds: float = 60) -> float:
        """Wait until `done()` is true; return the seconds it took.

        Raises:
            ClusterError: it is not in time.
        """
        return until(what, done, seconds)


def until(what: str, done: Callable[[], object], seconds: float, *, pause: float = POLL_SECONDS) -> float:
    """Wait until `done()` is true, asking again after each `pause`; return the seconds it took.

    Raises:
        ClusterError: it is not in time.
    """
    started = time.monotonic()
    while not done():
        if time.monotonic() - started > seconds:
            raise ClusterError(f"{what}: not after {seconds:.0f} s")
        time.sleep(pause)
    return time.monotonic() - started
