"""kopf without a memory of objects.

For each event kopf works out what changed since it last handled the object, and for that copies it, several times over.
Nobody here asks for changes: with these storages there is nothing to copy, and nothing that could ever be written.
"""

from __future__ import annotations

from typing import Any

import kopf


class NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no last state."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing of an object is compared."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


class NoProgress(kopf.ProgressStorage):
    """Keeps no progress of handlers: ours are called once for each event."""

    def fetch(self, **_: Any) -> None:
        """Nothing was kept."""

    def store(self, **_: Any) -> None:
        """Nothing is kept."""

    def purge(self, **_: Any) -> None:
        """Nothing is there to be removed."""

    def touch(self, **_: Any) -> None:
        """Nothing is written to wake anybody."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Nothing is in there that has to be taken out."""
        return essence
