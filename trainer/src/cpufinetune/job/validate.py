"""Everything that is wrong with a document, at once, with what to do about it."""

from __future__ import annotations

import difflib
import functools
import re
from typing import TYPE_CHECKING, Any

from cpufinetune.job import cel
from cpufinetune.job.problems import Problem, spell_path
from cpufinetune.job.schema import Schema, document_schema, with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Of several complaints about one field, the first of these is the one worth reading.
_ORDER = ("type", "const", "enum", "pattern")
_SHAPE = ("type", "required", "additionalProperties")
_NOUNS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "nothing",
    "number": "a number",
    "object": "a mapping of fields",
    "string": "text",
}
_LIMITS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_MESSAGES = {
    "const": "must be {}",
    "enum": "must be one of {}",
    "pattern": "is not written as it must be",
    "type": "must be {}",
    "uniqueItems": "must not name anything twice",
    "exclusiveMaximum": "must be less than {}",
    "exclusiveMinimum": "must be more than {}",
    "maxItems": "must have at most {} entries",
    "maxLength": "must have at most {} characters",
    "maxProperties": "must have at most {} entries",
    "maximum": "must be at most {}",
    "minItems": "must have at least {} entries",
    "minLength": "must have at least {} characters",
    "minimum": "must be at least {}",
}


def validate(document: Mapping[str, object], *, rules: bool = True) -> tuple[Problem, ...]:
    """All problems of a document, in its own order; none if it is valid.

    Args:
        document: what YAML or JSON gave, without defaults.
        rules: also evaluate the rules across fields, for which the CEL interpreter is imported (a third of a second).
    """
    filled = with_defaults(document)
    errors = _schema_errors(filled)
    problems = [problem for error in errors for problem in _explain(error)]
    if rules:
        complained = {problem.path for problem in problems}
        broken = cel.violations(filled, broken=tuple(_broken_paths(errors)))
        problems += [problem for problem in broken if problem.path not in complained]
    return tuple(problems)


@functools.cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - slow to import, and not every process validates

    return Draft202012Validator(document_schema())


def _schema_errors(document: object) -> list[Any]:
    """The errors of the schema alone: one a field, and for each mapping one each of missing and unknown fields."""
    found: dict[tuple[Any, ...], Any] = {}
    errors = sorted(
        _validator().iter_errors(document),
        key=lambda error: _ORDER.index(error.validator) if error.validator in _ORDER else len(_ORDER),
    )
    for error in errors:
        about_fields = error.validator if error.validator in _SHAPE[1:] else None
        found.setdefault((*error.absolute_path, about_fields), error)
    return sorted(found.values(), key=lambda error: [str(part) for part in error.absolute_path])


def _broken_paths(errors: list[Any]) -> Iterator[cel.Path]:
    for error in errors:
        path = tuple(error.absolute_path)
        if error.validator == "type":
            yield path
        elif error.validator in _SHAPE:
            yield (*path, "")  # a field of this mapping; which one does not matter


def _explain(error: Any) -> Iterator[Problem]:
    path, value, schema = tuple(error.absolute_path), error.instance, error.schema
    if error.validator == "additionalProperties":
        for name in value:
            if name not in schema["properties"]:
                yield Problem(spell_path((*path, name)), None, "unknown field", _suggest_field(name, schema, path))
    elif error.validator == "required":
        for name in schema["required"]:
            if name not in value:
                field = schema["properties"].get(name, {})
                yield Problem(spell_path((*path, name)), None, "required field is missing", _add_field(name, field))
    else:
        broken = error.validator, error.validator_value
        yield Problem(spell_path(path), value, _message(*broken), _fix(*broken, value, schema))


def _message(keyword: str, wanted: Any) -> str:
    """What a value that breaks `keyword: wanted` must be."""
    if keyword == "type":
        wanted = " or ".join(_NOUNS[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted))
    elif keyword == "enum":
        wanted = ", ".join(wanted)
    elif wanted == 1 and keyword in {"minLength", "minItems"}:
        return "must not be empty"
    return _MESSAGES[keyword].format(wanted)


def _fix(keyword: str, wanted: Any, value: object, schema: Schema) -> str:
    """What to do about a value that breaks `keyword: wanted`."""
    if keyword == "type":
        return _fix_type(wanted if isinstance(wanted, str) else wanted[0], value, schema)
    if keyword in {"const", "enum"}:
        choices = [wanted] if keyword == "const" else wanted
        near = _nearest(str(value), choices)
        return f"did you mean {near!r}?" if near else f"write for example {choices[0]}"
    if keyword == "uniqueItems":
        return "remove the repetition"
    limits = [_MESSAGES[bound].format(schema[bound]).removeprefix("must be ") for bound in _LIMITS if bound in schema]
    return f"choose a number {' and '.join(limits)}" if limits else _fix_by_description(schema)


def _fix_type(kind: str, value: object, schema: Schema) -> str:
    truth, number = isinstance(value, bool), isinstance(value, int | float)
    fixes = (
        (
            kind == "string" and truth,
            "put it in quotes: YAML reads bare words like yes, no, on and off as true or false",
        ),
        (kind == "string" and number, "put it in quotes" + _example(schema, ", for example ")),
        (kind in {"integer", "number"} and _is_number(value), "write it without quotes"),
        (kind == "integer" and number and not truth, "write it without a fraction"),
        (kind == "array" and isinstance(value, str), f"write a list: [{str(value)[:80]}]"),
        (kind == "boolean", "write true or false, without quotes"),
    )
    return next((fix for applies, fix in fixes if applies), _fix_by_description(schema))


def _is_number(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", value, re.IGNORECASE) is not None


def _fix_by_description(schema: Schema) -> str:
    if schema.get("properties"):
        return f"write its fields below it: {_listed(schema['properties'])}"
    sentence = re.split(r"[.;:](?:\s|$)", schema.get("description", ""))[0].strip()
    example = _example(schema, "write it like ")
    return f"{example} ({sentence})" if example else f"here belongs: {sentence}"


def _listed(names: Any) -> str:
    return ", ".join(names)


def _example(schema: Schema, lead: str) -> str:
    """The example that descriptions end with, after `lead`; empty if there is none."""
    found = re.search(r"For example `([^`]+)`", schema.get("description", ""))
    return f"{lead}{found[1]}" if found else ""


def _add_field(name: str, schema: Schema) -> str:
    if "const" in schema:
        return f"add {name}: {schema['const']}"
    example = _example(schema, ": ")
    return f"add {name}{example}" if example else f"add {name} with its fields"


def _suggest_field(name: str, schema: Schema, path: cel.Path) -> str:
    near = _nearest(name, schema["properties"])
    if near:
        return f"did you mean {near!r}?"
    elsewhere = [spot for spot in _field_paths() if spot[-1] == name]
    if len(elsewhere) == 1 and elsewhere[0][:-1] != path:
        return f"it belongs at {spell_path(elsewhere[0])}"
    return f"remove it, or use one of {_listed(schema['properties'])}"


def _nearest(word: str, choices: Any) -> str | None:
    """The choice that `word` was most likely meant to be, letter case and underscores aside."""
    plain = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(word.lower().replace("_", "").replace("-", ""), plain, n=1, cutoff=0.7)
    return plain[found[0]] if found else None


@functools.cache
def _field_paths() -> tuple[tuple[str, ...], ...]:
    """Where every field of `spec` lives, lists aside."""

    def walk(schema: Schema, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for name, field in schema.get("properties", {}).items():
            yield (*path, name)
            yield from walk(field, (*path, name))

    return tuple(walk(document_schema()["properties"]["spec"], ("spec",)))
