"""A small valid document, and ways to spoil it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cpufinetune.job.load import override
from cpufinetune.job.yaml_text import read_yaml

Build = Callable[..., dict[str, Any]]

_VALID = """
apiVersion: cpufinetune.dev/v1alpha1
kind: CpuFineTune
metadata: {name: mrpc}
spec:
  model: {name: distilbert-base-uncased, revision: "12040accade4e8a0f71eabdb258fecc2e7e948be"}
  dataset: {name: nyu-mll/glue, config: mrpc, revision: "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"}
  task: {text: [sentence1, sentence2], label: label}
"""


@pytest.fixture(name="document")
def fixture_document() -> Build:
    """A builder: the valid document with `field.path=value` changes made to it."""

    def build(*changes: str) -> dict[str, Any]:
        document: dict[str, Any] = read_yaml(_VALID, "test")
        for change in changes:
            assert override(document, change) is None
        return document

    return build
