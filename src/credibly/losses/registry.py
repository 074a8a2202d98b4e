"""Losses by name, as the command line and configuration files give them."""

from __future__ import annotations

import re
from typing import Any

from credibly.checks import InputError, nearest
from credibly.losses.base import OTHER_NAMES, Loss
from credibly.losses.label_pairs import LabelPairs
from credibly.losses.two_way import TwoWayTerm
from credibly.losses.wrapped import Published
from credibly.types import JsonObject

_LONGEST = 1000
_PART = re.compile(r"^\s*(?P<name>[\w-]+)\s*(?:\((?P<arguments>.*)\))?\s*$")


def from_name(name: str, **context: Any) -> Loss:
    """Return the loss with this name.

    A name may have arguments in brackets, and ``+lpr`` or ``+twl`` after it: ``spa``, ``spa+lpr``,
    ``bce+twl(weight=0.1)``, ``asl(gamma_neg=4, detach_weight=true)``,
    ``spa(scale_neg=10)+lpr(weight=2)``.

    Args:
        name: see above; ``cr.losses.names()`` lists them.
        context: facts about the data set, such as ``num_labels``, ``num_rows`` or
            ``average_size``. A loss uses those that it has an argument for.

    Example:
        >>> from_name("spa(scale_neg=10)+lpr").properness
        'strict'
    """
    if len(name) > _LONGEST:
        raise InputError(f"a loss's name may have {_LONGEST} characters at most; got {len(name)}.")
    first, *rest = _split(name)
    classes = registered()
    base, arguments = _parse(first, name)
    if base not in classes:
        raise InputError(f"unknown loss {base!r}. {nearest(base, classes)}")
    loss = _build(classes[base], arguments, context, name)
    if len(rest) > 1:
        raise InputError(f"the name of a loss may contain one '+'; got {name[:200]!r}.")
    for part in rest:
        suffix, arguments = _parse(part, name)
        loss = _wrap(loss, suffix, arguments, name)
    return loss


def names() -> list[str]:
    """Return every name that ``from_name`` knows.

    Example:
        >>> names()[:4]
        ['an', 'asl', 'asl-single', 'avgk']
    """
    return sorted(registered())


def registered() -> dict[str, type[Loss]]:
    """Return the losses of this package by name and alias, except those that wrap other losses."""
    known: dict[str, type[Loss]] = {}
    waiting: list[type[Loss]] = [Loss]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        own = kind.__module__.startswith("credibly.losses.") and kind.from_text
        if own and not kind.__abstractmethods__:
            known.update(dict.fromkeys((kind.name, *kind.aliases), kind))
    return known


def _split(name: str) -> list[str]:
    """Split at '+' signs outside of brackets."""
    return re.split(r"\+(?![^(]*\))", name)


def _parse(part: str, full_name: str) -> tuple[str, JsonObject]:
    match = _PART.match(part)
    if match is None:
        raise InputError(
            f"a loss is written `name`, `name(key=value, …)` or `name+lpr`; got {full_name!r}."
        )
    arguments: JsonObject = {}
    for pair in filter(None, (pair.strip() for pair in (match["arguments"] or "").split(","))):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"arguments are written `key=value`; got {pair!r} in {full_name!r}.")
        arguments[key.strip()] = _value(value.strip())
    return match["name"].lower(), arguments


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'\"")


def _build(kind: type[Loss], arguments: JsonObject, context: JsonObject, full_name: str) -> Loss:
    accepted = (*kind.arguments(), "reduction")
    for key in arguments:
        if key not in accepted:
            hint = OTHER_NAMES.get(key) or nearest(key, accepted)
            raise InputError(f"loss {full_name!r}: no argument {key!r}. {hint}")
    known = {key: value for key, value in context.items() if key in accepted and value is not None}
    given = {**known, **arguments}
    needed = [key for key, must in kind.arguments().items() if must]
    missing = [key for key in needed if key not in given]
    if missing:
        raise InputError(
            f"loss {full_name!r} needs {', '.join(missing)}. "
            f"Write `{kind.name}({missing[0]}=…)` or pass `{missing[0]}=` to `from_name`."
        )
    try:
        return kind(**given)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"loss {full_name!r}: {error}.") from error


def _wrap(loss: Loss, suffix: str, arguments: JsonObject, full_name: str) -> Loss:
    kinds = {kind.suffix: kind for kind in (LabelPairs, TwoWayTerm, Published)}
    if suffix not in kinds:
        raise InputError(
            f"after '+' only {' or '.join(kinds)} can stand; got {suffix!r} in {full_name!r}."
        )
    kind = kinds[suffix]
    for key in arguments:
        if key not in kind.arguments():
            hint = nearest(key, kind.arguments())
            raise InputError(f"loss {full_name!r}: no argument {key!r} of {suffix!r}. {hint}")
    try:
        return kind(loss, **arguments)
    except TypeError as error:
        raise InputError(f"loss {full_name!r}: {error}.") from error
