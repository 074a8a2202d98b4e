"""Losses by name, as the command line and configuration files give them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from credibly.checks import InputError, nearest
from credibly.losses.base import OTHER_NAMES, Loss
from credibly.losses.label_pairs import LabelPairs
from credibly.losses.two_way import TwoWayTerm
from credibly.losses.wrapped import Published
from credibly.names import LOSS_PART, LOSSES, check_loss, split_loss
from credibly.types import JsonObject

_LONGEST = 1000
_WRAPPERS = {kind.suffix: kind for kind in (LabelPairs, TwoWayTerm, Published)}


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
    check_loss(name)
    first, *rest = split_loss(name)
    base, arguments = _parse(first, name)
    module = import_module("credibly.losses")
    loss = _build(getattr(module, LOSSES[base]), arguments, context, name)
    if len(rest) > 1:
        raise InputError(f"the name of a loss may contain one '+'; got {name[:200]!r}.")
    for part in rest:
        suffix, arguments = _parse(part, name)
        loss = _build(_WRAPPERS[suffix], arguments, {}, name, loss)
    return loss


def names() -> list[str]:
    """Return every name that ``from_name`` knows.

    Example:
        >>> names()[:4]
        ['an', 'asl', 'asl-single', 'avgk']
    """
    return list(LOSSES)


def _parse(part: str, full_name: str) -> tuple[str, JsonObject]:
    match = LOSS_PART.fullmatch(part)
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


def _value(text: str) -> bool | float | str | None:
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
    kind: type[Loss], arguments: JsonObject, context: JsonObject, full_name: str, *inner: Loss
) -> Loss:
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
        return kind(*inner, **given)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        end = "" if isinstance(error, InputError) else "."
        raise InputError(f"loss {full_name!r}: {error}{end}") from error
