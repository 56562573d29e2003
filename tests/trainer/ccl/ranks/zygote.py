"""Imports torch once, which takes seconds, and forks ranks: `python -m tests.trainer.ccl.ranks.zygote`.

Requests come line by line: `{"fork": {...}}` starts a rank, `{"wait": pid, "seconds": 5}` waits for the end of one.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from typing import Any

import torch

# An optimizer imports it when it is made, which takes as long as all the rest.
import torch._dynamo
from tests.trainer.ccl.ranks import context as contexts
from tests.trainer.ccl.ranks import failures, groups, movement, reductions, surroundings, training
from tests.trainer.ccl.ranks.context import Context

POLL = 0.01
MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (contexts, failures, groups, movement, reductions, surroundings, training)
}


def main() -> None:
    """Answer requests until there are no more."""
    # Ranks would copy all of it, and would look through it when they end.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        if "fork" in request:
            pid = os.fork()
            if pid == 0:
                serve(**request["fork"])
                return
            answer: Any = pid
        else:
            answer = wait(request["wait"], request["seconds"])
        print(json.dumps(answer), flush=True)


def wait(pid: int, seconds: float) -> int | None:
    """Return the exit code of a rank, a negative one for a signal; None if it has not ended in time."""
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL)


def serve(*, rank: int, address: str, log: str) -> None:
    """Be a rank: make the calls that come from the socket at `address`, until it closes."""
    with open(log, "ab", buffering=0) as file:  # noqa: PTH123 - a number is wanted
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.set_num_threads(1)
    context = Context(rank)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        with connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps({"rank": rank}) + "\n")
            stream.flush()
            for line in stream:
                stream.write(json.dumps(answered(context, json.loads(line))) + "\n")
                stream.flush()


def answered(context: Context, request: dict[str, Any]) -> dict[str, Any]:
    """Make a call, such as `reductions.all_reduce`; return its value or its error."""
    module, _, name = request["call"].partition(".")
    since = time.monotonic()
    try:
        value = getattr(MODULES[module], name)(context, **request["arguments"])
    except BaseException as error:  # noqa: BLE001 - the test wants to see all of them
        answer = {"error": type(error).__name__, "text": str(error), "trace": traceback.format_exc()}
    else:
        answer = {"value": value}
    return {**answer, "seconds": time.monotonic() - since}


if __name__ == "__main__":
    main()
