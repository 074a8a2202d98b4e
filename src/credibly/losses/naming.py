"""Losses by name, as the command line and configuration files give them."""

from __future__ import annotations

import inspect
import re
from typing import Any

from credibly.checks import InputError, nearest
from credibly.losses._base import Loss

_LONGEST = 1000
_PART = re.compile(r"^\s*(?P<name>[\w-]+)\s*(?:\((?P<arguments>.*)\))?\s*$")


def from_name(name: str, **context: Any) -> Loss:
    """The loss that ``name`` stands for.

    A name may carry arguments in brackets and a ``+lpr`` behind it: ``spa``, ``spa+lpr``,
    ``asl(gamma_neg=4, detach_weight=true)``, ``spa(scale_neg=10)+lpr(weight=2)``.

    Args:
        name: see above; ``cr.losses.names()`` lists them.
        context: what the data set knows, such as ``num_labels``, ``num_rows`` or
            ``average_size``. A loss takes of these what it has an argument for.

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
    for part in rest:
        kind, arguments = _parse(part, name)
        if kind != "lpr":
            raise InputError(f"after '+' only 'lpr' can stand; got {kind!r} in {name!r}.")
        from credibly.losses.label_pairs import LabelPairs

        loss = _build(LabelPairs, {"loss": loss, **arguments}, {}, name)
    return loss


def names() -> list[str]:
    """Every name that ``from_name`` knows."""
    return sorted(registered())


def registered() -> dict[str, type[Loss]]:
    """Exported losses by name and alias; those that wrap functions or losses are left out."""
    from credibly import losses

    found: dict[str, type[Loss]] = {}
    for exported in losses.__all__:
        kind = getattr(losses, exported)
        named = isinstance(kind, type) and issubclass(kind, Loss) and hasattr(kind, "name")
        if named and kind.from_text:
            for alias in (kind.name, *kind.aliases):
                found[alias] = kind
    return found


def _split(name: str) -> list[str]:
    """At '+' signs outside of brackets."""
    return re.split(r"\+(?![^(]*\))", name)


def _parse(part: str, whole: str) -> tuple[str, dict[str, Any]]:
    match = _PART.match(part)
    if match is None:
        raise InputError(f"a loss reads `name`, `name(key=value, …)` or `name+lpr`; got {whole!r}.")
    arguments: dict[str, Any] = {}
    for pair in filter(None, (pair.strip() for pair in (match["arguments"] or "").split(","))):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"arguments read `key=value`; got {pair!r} in {whole!r}.")
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


def _build(
    kind: type[Loss], arguments: dict[str, Any], context: dict[str, Any], whole: str
) -> Loss:
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(kind).parameters
    accepted = {key: one for key, one in parameters.items() if one.kind not in several}
    for key in arguments:
        if key not in accepted:
            raise InputError(f"loss {whole!r}: no argument {key!r}. {nearest(key, accepted)}")
    known = {key: value for key, value in context.items() if key in accepted and value is not None}
    given = {**known, **arguments}
    missing = [
        key
        for key, parameter in accepted.items()
        if parameter.default is inspect.Parameter.empty and key not in given
    ]
    if missing:
        raise InputError(
            f"loss {whole!r} needs {', '.join(missing)}. "
            f"Write `{kind.name}({missing[0]}=…)` or pass `{missing[0]}=` to `from_name`."
        )
    try:
        return kind(**given)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"loss {whole!r}: {error}.") from error
