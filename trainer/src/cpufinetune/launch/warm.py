"""The warm process: it has imported everything a rank needs and forks ranks from itself when asked.

Importing torch and transformers takes 5 to 20 s of one core; a fork takes milliseconds. The process never runs a
parallel region, so forking it is safe. Ranks are forked twice: they become children of the launcher, which is their
subreaper, waits for them itself, and whose death is theirs.

Messages are JSON datagrams on a socket pair; a `spawn` carries two descriptors, for output and for events.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

LARGEST_MESSAGE = 1 << 16
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


def serve(channel: socket.socket) -> None:
    """Import, say so, and fork a rank for every `spawn` until the launcher goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started = time.perf_counter()
    import cpufinetune.train.rank  # noqa: F401, PLC0415 - the point of this process

    _reply(channel, {"ready": time.perf_counter() - started, "threads": threading.active_count()})
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, LARGEST_MESSAGE, 2)
        if not message:
            return
        request = json.loads(message)
        if "preload" in request:
            _preload(request["preload"], adapters=request["adapters"])
            _reply(channel, {})
            continue
        _reply(channel, {"pid": _fork(channel, request, descriptors)})
        for descriptor in descriptors:
            os.close(descriptor)


def _reply(channel: socket.socket, answer: dict[str, Any]) -> None:
    try:
        channel.send(json.dumps(answer).encode())
    except ConnectionError:
        # The launcher is gone; so is the reason to be here.
        os._exit(0)


def _preload(scratch: str, *, adapters: bool) -> None:
    """Import what the model at hand needs; a model that cannot be read is reported by preparation."""
    from transformers import AutoConfig, AutoModelForSequenceClassification  # noqa: PLC0415 - imported already

    from cpufinetune.train.model.source import located  # noqa: PLC0415

    try:
        configuration = AutoConfig.from_pretrained(str(located(Path(scratch))), trust_remote_code=False)
        AutoModelForSequenceClassification._model_mapping[type(configuration)]  # noqa: SLF001 - imports the class
        if adapters:
            import peft  # noqa: F401, PLC0415
    except (OSError, ValueError, KeyError):
        return


def _fork(channel: socket.socket, request: dict[str, Any], descriptors: list[int]) -> int:
    receive, send = os.pipe()
    middle = os.fork()
    if middle == 0:
        rank = os.fork()
        if rank != 0:
            os.write(send, str(rank).encode())
            os._exit(0)
        os.close(receive)
        os.close(send)
        channel.close()
        _become_rank(request, *descriptors)
    os.close(send)
    os.waitpid(middle, 0)
    with os.fdopen(receive, "rb") as answer:
        return int(answer.read())


def _become_rank(request: dict[str, Any], output: int, events: int) -> None:
    _die_with(request["launcher"])
    ctypes.CDLL(None).prctl(PR_SET_NAME, f"cft-{request['name']}".encode())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.sched_setaffinity(0, request["cpus"])
    from cpufinetune.train.rank import run_and_exit  # noqa: PLC0415 - imported already
    from cpufinetune.train.settings import RankSettings  # noqa: PLC0415

    run_and_exit(RankSettings.decode(request["settings"]), events)


def _die_with(launcher: int) -> None:
    while os.getppid() != launcher:
        if not Path(f"/proc/{launcher}").exists():
            os._exit(1)
        time.sleep(0.001)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:
        os._exit(1)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
