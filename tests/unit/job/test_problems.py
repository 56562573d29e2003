"""How mistakes are told: all at once, each once, each on a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpufinetune.job.problems import Problem
from cpufinetune.job.validate import validate

if TYPE_CHECKING:
    from tests.unit.job.conftest import Build


def test_refuses_another_version_and_kind(document: Build) -> None:
    problems = validate({**document(), "apiVersion": "cpufinetune.dev/v1", "kind": "CpuFinetune"})
    assert [problem.path for problem in problems] == ["apiVersion", "kind"]
    assert problems[1].fix == "did you mean 'CpuFineTune'?"


def test_an_empty_document_lacks_its_four_parts() -> None:
    assert [problem.path for problem in validate({})] == ["apiVersion", "kind", "metadata", "spec"]


def test_names_all_mistakes_at_once(document: Build) -> None:
    wrong = document(
        "metadata.name=A",
        "model={name: a}",
        "task.label=sentence1",
        "task.maxLength=0",
        "training.epoch=1",
        "nodes=many",
    )
    found = [problem.path for problem in validate(wrong)]
    assert found == [
        "metadata.name",
        "spec.nodes",
        "spec.task.maxLength",
        "spec.training.epoch",
        "spec.model",
        "spec.task",
    ]


def test_a_misspelt_field_is_not_blamed_on_the_rules_as_well(document: Build) -> None:
    problems = validate(document("model={nme: a, path: b, claim: c, revision: null}"))
    assert [problem.path for problem in problems] == ["spec.model.nme"]


def test_two_unknown_fields_are_two_problems(document: Build) -> None:
    assert len(validate(document("node.a=1", "node.b=2"))) == 2


def test_a_problem_with_a_huge_value_fits_on_a_line(document: Build) -> None:
    (problem,) = validate(document(f"training.schedule={'x' * 9999}"))
    assert len(str(problem)) < 300


def test_a_document_that_is_no_mapping_is_one_problem() -> None:
    text: Any = "mrpc"
    assert str(validate(text)[0]).startswith("document: must be a mapping of fields (found 'mrpc')")


def test_a_problem_is_spelt_on_one_line() -> None:
    problem = Problem("spec.nodes", 0, "must be\nat least 1", "choose\na number")
    assert str(problem) == "spec.nodes: must be at least 1 (found 0); choose a number"
