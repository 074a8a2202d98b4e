"""Names of losses, with arguments."""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.targets import Attack

MODULES = ("credibly.losses.registry",)


class Target(Attack):
    """``losses.from_name``; what comes out has a link or says that it has none."""

    def seeds(self) -> Iterable[bytes]:
        from credibly import losses

        yield from (name.encode() for name in losses.names())
        yield b"spa(scale_neg=10)+lpr(weight=2)"
        yield b"asl(gamma_neg=4, detach_weight=true)"
        yield b"softmax(zero_label='uniform')"
        yield b"twl(ways=labels, margin=1e3)"

    def read(self, data: bytes) -> None:
        from credibly import losses

        text = data.decode("utf-8", errors="surrogateescape")
        losses.from_name(text, num_labels=3, num_rows=4, average_size=2)
