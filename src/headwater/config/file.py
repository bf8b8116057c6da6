"""The YAML file behind a config: its text, the environment in it, and what is wrong with it in words.

`${NAME}` is put aside before YAML reads the text and put back afterwards, so a value from the environment may hold any
character, may stand inside a flow mapping (`{token: ${TOKEN:-}}`), and is never needed by a comment. In the user or the
password of a URL it is percent-encoded, so that it may hold any character there, too.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from pydantic import ValidationError

from headwater.errors import ConfigError
from headwater.logs import redact

__all__ = ["SECRET_NAME", "Document", "explain", "read", "shown"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}\n]*))?\}")
_ASIDE = re.compile("\ue000(\\d+)\ue001")  # private-use characters: YAML takes them for letters, and they are not typed
# The user and password of a URL: before the host, or among its parameters.
_CREDENTIALS = re.compile(
    r"(?<=://)[^/?#]*(?=@)|(?<=[?&]user=)[^&#]*|(?<=[?&]password=)[^&#]*|(?<=[?&]sslpassword=)[^&#]*"
)
# Of a setting that is not to be shown. Who an access key belongs to is no secret.
SECRET_NAME = re.compile(r"token|pass(word|wd|phrase)|secret|credential|(?<!access)(^|[-_.])key$", re.IGNORECASE)
# Where a scalar is text as it is written, though YAML might read it as a number, a date or a boolean: `01`, `yes`.
_AS_WRITTEN = (
    ("routes", "*", "by"),
    ("routes", "*", "where"),
    ("routes", "*", "keys", "*"),
    ("routes", "*", "columns", "*"),
    ("routes", "*", "exclude", "*"),
    ("routes", "*", "to", "*", "value"),
    ("routes", "*", "to", "allow", "*"),
    ("instance", "values", "*"),
)
_TEXT_TAG = "tag:yaml.org,2002:str"
_GUESSED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "timestamp", "value", "merge")}


@dataclass(frozen=True)
class Document:
    """What the file says, as plain values, and what could not be said about it."""

    path: Path
    tree: dict[str, Any]
    unset: Mapping[str, ConfigError]  # by place: a variable of the environment that is not there
    filled: Mapping[str, Set[str]] = field(default_factory=dict, repr=False)  # by place: what came from the environment

    def find(self, *pattern: str) -> Iterator[tuple[str, Any]]:
        """The places, with their values, that match: `"*"` stands for any key or any item."""
        return ((_place(where), value) for where, value in _find(self.tree, pattern, ()))

    def from_environment(self, where: str) -> set[str]:
        """What the environment has filled in there, or in a part of it."""
        return {
            value
            for place, values in self.filled.items()
            if f"{where}.".startswith(f"{place}.") or f"{place}.".startswith(f"{where}.")
            for value in values
        }

    def problem(self, where: str, message: str, hint: str = "") -> ConfigError:
        return ConfigError(f"{self.path}: {where}: {message}", hint=hint)


def read(path: Path, env: Mapping[str, str]) -> Document:
    """Read the file and fill in the environment; ConfigError if it cannot be read or is not YAML."""
    variables: list[re.Match[str]] = []

    def put_aside(match: re.Match[str]) -> str:
        variables.append(match)
        return f"\ue000{len(variables) - 1}\ue001"

    text = _VARIABLE.sub(put_aside, _text(path))
    try:
        tree = yaml.load(text, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        what = "; ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{path}{line}: not valid YAML: {_ASIDE.sub('${...}', what)}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a mapping with `source`, `log`, `lakes`, `groups`; found {_kind(tree)}")
    filling = _Filling(path, env, variables)
    filled = filling.fill(tree, ())
    return Document(path, filled, filling.unset, filling.filled)


def explain(error: ValidationError, document: Document, schema: dict[str, Any]) -> list[ConfigError]:
    """Each of pydantic's findings as a sentence with its place in the file, and a suggestion for a misspelt key."""
    found = [(*_locate(each["loc"], schema), dict(each)) for each in error.errors(include_url=False)]
    inside = tuple(f"{place}." for place in document.unset)  # already reported, by the name of the variable
    return [
        _explain(each, document, where, known) for where, known, each in found if not f"{where}.".startswith(inside)
    ]


def shown(value: object) -> str:
    """A value as an error may name it: short, and without a password."""
    if isinstance(value, dict | list) or value is None:
        return _kind(value)
    text = re.sub(r"://.*@", "://***@", str(value), flags=re.DOTALL)  # also a password that breaks the URL
    return repr(redact(text[:200])) if isinstance(value, str) else text


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "write one with `headwater init postgresql://...`, name one with -c FILE, or try `headwater demo`"
        raise ConfigError(f"no config file {str(path)!r}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error


class _StrictLoader(yaml.SafeLoader):
    """YAML as everyone knows it, but a key given twice is an error and not a lost setting, and text stays text."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        for pattern in _AS_WRITTEN:
            _keep_text(node, pattern)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge" and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _keep_text(node: yaml.Node | None, pattern: tuple[str, ...]) -> None:
    """Read the scalars that match as text; an empty one stays nothing."""
    if not pattern and isinstance(node, yaml.ScalarNode) and node.tag in _GUESSED_TAGS:
        node.tag = _TEXT_TAG
    elif pattern and isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if pattern[0] in ("*", key.value):
                _keep_text(value, pattern[1:])
    elif pattern and isinstance(node, yaml.SequenceNode) and pattern[0] == "*":
        for item in node.value:
            _keep_text(item, pattern[1:])


@dataclass
class _Filling:
    path: Path
    env: Mapping[str, str]
    variables: list[re.Match[str]]
    unset: dict[str, ConfigError] = field(default_factory=dict)
    filled: dict[str, set[str]] = field(default_factory=dict)

    def fill(self, node: Any, where: tuple[str | int, ...]) -> Any:
        match node:
            case dict():
                return {self.fill(key, where): self.fill(value, (*where, str(key))) for key, value in node.items()}
            case list():
                return [self.fill(value, (*where, index)) for index, value in enumerate(node)]
            case str():
                encoded = _CREDENTIALS.sub(lambda part: self.put(part[0], where, encode=True), node)
                return self.put(encoded, where)
            case _:
                return node

    def put(self, text: str, where: tuple[str | int, ...], *, encode: bool = False) -> str:
        """The text with its variables, percent-encoded or as they are."""

        def value(match: re.Match[str]) -> str:
            found = self.value(self.variables[int(match[1])], where)
            self.filled.setdefault(_place(where), set()).add(found)
            return quote(found, safe="", errors="surrogateescape") if encode else found

        return _ASIDE.sub(value, text)

    def value(self, variable: re.Match[str], where: tuple[str | int, ...]) -> str:
        name, default = variable.groups()
        if name in self.env and (self.env[name] or default is None):
            return self.env[name]
        if default is None:
            hint = f"set {name}, or give a default: ${{{name}:-value}}"
            place = _place(where)
            message = f"{self.path}: {place}: the environment variable {name!r} is not set"
            self.unset.setdefault(place, ConfigError(message, hint=hint))
        return default or ""


def _explain(found: dict[str, Any], document: Document, where: str, known: list[str]) -> ConfigError:
    name = str(found["loc"][-1]) if found["loc"] else ""
    match found["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            return document.problem(where, f"unknown key {name!r}", hint)
        case "missing":
            return document.problem(where, "missing", f"add `{name}:`; `headwater config schema` shows what it may be")
        case "value_error":
            secrets = document.from_environment(where)
            left = {each.rpartition("@")[2] for each in secrets}  # by `shown`, to which the rest looked like a user
            return document.problem(where, redact(str(found["ctx"]["error"]), secrets | left))
        case "model_type" | "dict_type" | "model_attributes_type":
            value = "***" if document.filled.get(where) else shown(found["input"])
            return document.problem(where, f"expected a mapping, found {value}")
        case _:
            message = found["msg"][:1].lower() + found["msg"][1:].replace("valid tuple", "list")
            secret = SECRET_NAME.search(name) or document.from_environment(where)
            value = "***" if secret else shown(found["input"])
            return document.problem(where, f"{message.removeprefix('input ')}, found {value}")


def _locate(loc: tuple[str | int, ...], schema: dict[str, Any]) -> tuple[str, list[str]]:
    """The place as the file spells it, and the keys that its mapping knows."""
    node, steps, known = schema, list[str | int](), list[str]()
    for step in loc:
        if "oneOf" in node:  # pydantic names the kind it chose; the file does not
            kinds = {each.get("$ref", "").rpartition("/")[2] or each.get("type"): each for each in node["oneOf"]}
            node = _resolve(kinds.get(step, {}), schema)
            continue
        steps.append(step)
        known = list(node.get("properties", {}))
        inside = (node.get("items"), node.get("additionalProperties"), *node.get("patternProperties", {}).values())
        child = node.get("properties", {}).get(step) or next((each for each in inside if isinstance(each, dict)), {})
        node = _resolve(child, schema)
    return _place(tuple(steps)), known


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, and of alternatives take the mapping, or the kinds of it."""
    if "$ref" in node:
        return _resolve(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], schema)
    choices = [_resolve(each, schema) for each in node.get("anyOf", ())]
    return next((each for each in choices if each.keys() & {"properties", "oneOf"}), node)


def _find(
    node: Any, pattern: tuple[str, ...], where: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if not pattern:
        yield where, node
        return
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        if pattern[0] in ("*", key):
            yield from _find(value, pattern[1:], (*where, key))


def _place(steps: tuple[str | int, ...]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    return text.removesuffix(".[key]") or "the file"


def _kind(value: object) -> str:
    names = {dict: "a mapping", list: "a list", type(None): "nothing"}
    return names.get(type(value)) or shown(value)
