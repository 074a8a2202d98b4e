"""Targets are decoded at the door: inside the package, functions take decoded ``Targets``."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import credibly
from credibly import targets


def modules() -> Iterator[ModuleType]:
    """Yield the package and every module of it that can be imported with what is installed."""
    yield credibly
    for found in pkgutil.walk_packages(credibly.__path__, "credibly."):
        if not found.name.endswith("__main__"):
            try:
                yield import_module(found.name)
            except ImportError:  # of an extra that is not here
                continue


def doors(known: list[ModuleType]) -> set[Any]:
    """Return what users call: what packages export, and the readers of files."""
    found: set[Any] = set()
    for module in known:
        for name in getattr(module, "__all__", ()):
            try:
                each = getattr(module, name)
            except ImportError:  # of an extra that is not here
                continue
            # A module that is exported exports its public names.
            inner = vars(each) if isinstance(each, ModuleType) else {name: each}
            kinds = FunctionType | type
            found |= {x for key, x in inner.items() if key[0] != "_" and isinstance(x, kinds)}
    readers = (vars(module) for module in known if module.__name__.startswith("credibly.data."))
    return found | {x for names in readers for key, x in names.items() if key[:5] == "read_"}


def accepts_coding(function: Callable[..., Any]) -> bool:
    return "coding" in inspect.signature(inspect.unwrap(function)).parameters


def inner_functions(module: ModuleType, public: set[Any]) -> Iterator[str]:
    """Yield the functions and methods of a module that accept a coding and are no door."""
    for name, each in vars(module).items():
        if not isinstance(each, FunctionType | type) or each in public:
            continue
        if each.__module__ != module.__name__:
            continue
        if isinstance(each, FunctionType) and accepts_coding(each):
            yield f"{module.__name__}.{name}"
        # What an exported class inherits is called through it.
        if isinstance(each, type) and all(each not in getattr(x, "__mro__", ()) for x in public):
            record = is_dataclass(each)  # of options, which it carries to a door
            for method_name, method in vars(each).items():
                if record and method_name == "__init__":
                    continue
                function = getattr(method, "__func__", method)
                if isinstance(function, FunctionType) and accepts_coding(function):
                    yield f"{module.__name__}.{name}.{function.__name__}"


def test_only_public_functions_accept_a_coding() -> None:
    known = [module for module in modules() if module is not targets]
    public = doors(known)
    assert credibly.Predictions in public
    assert [name for module in known for name in inner_functions(module, public)] == []
