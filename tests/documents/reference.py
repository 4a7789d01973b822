"""docs/reference.md: the exports of `anabranch` with signatures, fields and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import anabranch
import anabranch.testing

Function = ast.FunctionDef | ast.AsyncFunctionDef
WIDTH: Final = 100
PACKAGES: Final = (anabranch, anabranch.testing)
LISTS: Final = ("Args", "Raises")
"""The sections of a docstring that name one thing after the other."""


def page(how: str) -> str:
    """Every public name, in the order of the alphabet."""
    lines = ["# Reference", ""]
    for package in PACKAGES:
        names = ", ".join(f"[`{name}`](#{name.lower()})" for name in package.__all__)
        lines += [f"`from {package.__name__} import ...`: {names}.", ""]
    lines.append(how)
    for package in PACKAGES:
        for name in package.__all__:
            lines += ["", f"## {name}", "", *described(name, getattr(package, name))]
    return "\n".join(lines) + "\n"


def described(name: str, public: Any) -> Iterator[str]:
    """One name."""
    if not inspect.isclass(public):  # a value, with the docstring behind it
        yield from constants(name, parsed(sys.modules[type(public).__module__].__file__ or "").body)
        return
    own = declaration(public)
    yield from quoted(signature(public, own), docstring(own))
    if fields := [field for owner in [*typed_bases(public, own), own] for field in attributes(owner)]:
        yield ""
        yield from fields
    seen: set[str] = set()
    for owner in public.__mro__:
        if not owner.__module__.startswith("anabranch.") or owner.__name__.startswith("_"):
            continue
        bound = type_arguments(public, owner)
        for method in methods(declaration(owner)):
            if method.name not in seen:
                seen.add(method.name)
                yield from ("", f"### {public.__name__}.{method.name}", "")
                shown = [bound.get(word, word) for word in re.split(r"(\w+)", header(method))]
                yield from quoted("".join(shown), docstring(method))


def type_arguments(public: type[Any], owner: type[Any]) -> dict[str, str]:
    """What a class has in place of the type variables of a base class."""
    for one in public.__mro__:
        for base in getattr(one, "__orig_bases__", ()):
            if typing.get_origin(base) is owner:
                given = [getattr(argument, "__forward_arg__", str(argument)) for argument in typing.get_args(base)]
                return dict(zip((one.__name__ for one in owner.__parameters__), given, strict=True))  # type: ignore[attr-defined]
    return {}


def declaration(owner: type[Any]) -> ast.ClassDef:
    """The class as it is written."""
    body = parsed(sys.modules[owner.__module__].__file__ or "").body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)


@cache
def parsed(path: str) -> ast.Module:
    """A module as it is written. Many classes share one."""
    return ast.parse(Path(path).read_text())


def typed_bases(public: type[Any], own: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """The TypedDicts whose fields a TypedDict has too; it has no base classes when it runs."""
    if typing.is_typeddict(public):
        for base in map(ast.unparse, own.bases):
            if base != "TypedDict":
                found = getattr(sys.modules[public.__module__], base)
                yield from typed_bases(found, declaration(found))
                yield declaration(found)


def methods(owner: ast.ClassDef) -> Iterator[Function]:
    """The public ones; properties too."""
    for node in owner.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node


def signature(public: type[Any], own: ast.ClassDef) -> str:
    """The constructor's signature, or just the name if fields describe it."""
    made = next((node for node in own.body if isinstance(node, Function) and node.name == "__init__"), None)
    if typing.is_typeddict(public):
        return f"class {own.name}(TypedDict)"
    if made is None or issubclass(public, BaseException):
        return f"class {own.name}"
    return called(f"class {own.name}", made.args)


def header(method: Function) -> str:
    """A method without its body; a property like a field."""
    returns = f" -> {ast.unparse(method.returns)}" if method.returns is not None else ""
    decorators = {ast.unparse(one) for one in method.decorator_list}
    if decorators & {"property", "functools.cached_property", "cached_property"}:
        return f"{method.name}{returns}"
    how = "async " if isinstance(method, ast.AsyncFunctionDef) else ""
    if any(one.endswith("contextmanager") for one in decorators):
        how = "async with " if isinstance(method, ast.AsyncFunctionDef) else "with "
    return called(f"{how}{method.name}", method.args, returns)


def arguments(taken: ast.arguments) -> list[str]:
    """As they are called: without `self`."""
    positional = [*taken.posonlyargs, *taken.args]
    defaults = [None] * (len(positional) - len(taken.defaults)) + taken.defaults
    said = [argument(one, default) for one, default in zip(positional, defaults, strict=True)]
    said = [one for one in said if one.partition(":")[0] not in ("self", "cls")]
    if taken.vararg is not None:
        said.append("*" + argument(taken.vararg, None))
    elif taken.kwonlyargs:
        said.append("*")
    said += [argument(one, default) for one, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)]
    if taken.kwarg is not None and taken.kwarg.arg != "unknown":  # that refuses what is misspelt
        said.append("**" + argument(taken.kwarg, None))
    return said


def argument(one: ast.arg, default: ast.expr | None) -> str:
    """One of them, as formatters write it."""
    annotation = f": {ast.unparse(one.annotation)}" if one.annotation is not None else ""
    return f"{one.arg}{annotation}" + ("" if default is None else f" = {ast.unparse(default)}")


def called(name: str, taken: ast.arguments, returns: str = "") -> str:
    """On one line if it fits, or with a line for each argument."""
    said = arguments(taken)
    whole = f"{name}({', '.join(said)}){returns}"
    if len(whole) <= WIDTH:
        return whole
    return "\n".join([f"{name}(", *(f"    {one}," for one in said), f"){returns}"])


def attributes(owner: ast.ClassDef) -> Iterator[str]:
    """The fields of a value, each with the docstring behind it."""
    for node, doc in documented(owner.body):
        default = "" if node.value is None else f" = {ast.unparse(node.value)}"
        hint, doc = described_hint(node.annotation, doc)
        yield f"- `{ast.unparse(node.target)}: {hint}{default}`{': ' if doc else ''}{doc}"


def described_hint(annotation: ast.expr, doc: str) -> tuple[str, str]:
    """An annotation and its description, which may be in `Annotated`, also within `NotRequired`."""
    if isinstance(annotation, ast.Subscript):
        if ast.unparse(annotation.value) == "NotRequired":
            hint, doc = described_hint(annotation.slice, doc)
            return f"NotRequired[{hint}]", doc
        if ast.unparse(annotation.value) == "Annotated":
            hint, doc = annotation.slice.elts  # type: ignore[attr-defined]
            return ast.unparse(hint), ast.literal_eval(doc)
    return ast.unparse(annotation), doc


def constants(name: str, body: list[ast.stmt]) -> Iterator[str]:
    """The docstring of a value, and how it is made."""
    for node, doc in documented(body):
        if ast.unparse(node.target) == name and node.value is not None:
            yield from quoted(f"{name} = {ast.unparse(node.value)}", doc)


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign, str]]:
    """Each public name that is annotated, with the docstring behind it."""
    for node, behind in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            is_doc = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
            yield node, " ".join(str(behind.value.value).split()) if is_doc else ""


def docstring(node: ast.ClassDef | Function) -> str:
    """Cleaned of its indentation, with a list for each section such as `Args:`."""
    lines: list[str] = []
    section = ""
    for line in (ast.get_docstring(node) or "").splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Yields):", line):
            section = line[:-1]
            lines += [f"{section}:", ""]
        elif not section or not line.startswith("    "):
            section = section if not line else ""
            lines.append(line)
        elif section in LISTS and (item := re.match(r"    ([*\w]+): ?(.*)", line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        else:
            lines.append(f"  {line.strip()}" if section in LISTS else line.strip())
    return "\n".join(lines)


def quoted(head: str, doc: str) -> Iterator[str]:
    """A signature as code, and its docstring."""
    yield "```python"
    yield head
    yield "```"
    if doc:
        yield ""
        yield doc
