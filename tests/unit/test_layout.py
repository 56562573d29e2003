"""Rules of the tree that no linter knows."""

from __future__ import annotations

import ast
import json
import pathlib
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
TREES = ("trainer/src", "tests", "operator")
LONGEST_FILE = 300
LONGEST_FUNCTION = 40
HEAVY = ("torch", "transformers", "datasets")
GENERATED = {"__pycache__", "crd.yaml", "go.mod", "go.sum"}
LIGHT = (
    "cpufinetune.job",
    "cpufinetune.cores",
    "cpufinetune.world",
    "cpufinetune.world.identity",
    "cpufinetune.world.peers",
    "cpufinetune.launch.node",
    "cpufinetune.launch.coordinator",
    "cpufinetune.launch.gang",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python(code: str) -> object:
    """Run `code` at the root of the tree, where folders could shadow modules; return the JSON it prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_operator_folder_does_not_shadow_the_standard_library() -> None:
    found = python("import json, operator; print(json.dumps(operator.__file__))")
    assert found == f"{sysconfig.get_path('stdlib')}/operator.py"


@pytest.mark.parametrize("module", LIGHT)
def test_what_starts_a_node_loads_no_heavy_library(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    assert python(code) == []


def text_files() -> Iterator[pathlib.Path]:
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*")):
            if path.is_file() and not GENERATED.intersection(path.parts) and b"\0" not in path.read_bytes():
                yield path


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_bytes().count(b"\n") for path in text_files()}
    assert len(lengths) > len(TREES)
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def functions() -> Iterator[tuple[str, int]]:
    for path in sorted((ROOT / "trainer" / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_functions_are_short() -> None:
    lengths = dict(functions())
    assert len(lengths) > LONGEST_FUNCTION
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}
