"""What the launcher tells a rank, as one JSON document."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """One rank's place in the world and on its node.

    `role` "prepare" reads and tokenises the data of the node and exits; "train" is a rank of an attempt.
    """

    role: str
    job_file: str
    model_root: str | None
    data_root: str | None
    scratch: str
    output: str
    attempt: int = 0
    rank: int = 0
    local_rank: int = 0
    local_world_size: int = 1
    world_size: int = 1
    master_address: str = "127.0.0.1"
    master_port: int = 0
    interface: str = "lo"
    cpus: tuple[int, ...] = ()
    # CPU ids of the collectives' own threads, one for each rank of the node.
    workers: tuple[int, ...] = ()
    # The job asks for oneCCL and nothing else.
    insist: bool = False
    threads: int = 1
    native_bf16: bool = False
    memory_limit: int | None = None
    join_seconds: float = 300.0

    def encode(self) -> str:
        """Return the JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> RankSettings:
        """Read what `encode` wrote."""
        values = json.loads(text)
        return cls(**{**values, "cpus": tuple(values["cpus"]), "workers": tuple(values["workers"])})
