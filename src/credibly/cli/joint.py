"""``credibly joint fit PREDICTIONS --out joint.json``: fit a model of dependent labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from credibly.cli import terminal
from credibly.cli.command import File, Partial, Printed, option


@dataclass(frozen=True, kw_only=True)
class Options(Partial, Printed):
    """Fit a joint model of labels that depend on each other.

    PREDICTIONS must be held-out predictions with truth. The command compares independent labels, a
    factor for the number of labels per row, and mixtures of labels that appear together. It keeps a
    richer model only if its cross-validated log score is clearly better. Pass OUT to --joint-from
    of search, sets, evaluate and serve.

    Examples:
      credibly joint fit held-out.parquet --out joint.json
      credibly search test.parquet '+dog +cat' --joint --joint-from joint.json

    Args:
        action: the only action: fit a model and write it to OUT
        predictions: held-out predictions with truth
        out: JSON file to write
        components: numbers of mixture components to try, separated by commas
        seed: seed of the folds and the initial values
    """

    action: Literal["fit"] = option(positional=True, metavar="fit")
    predictions: str = option(positional=True)
    out: File
    components: tuple[int, ...] = (1, 3)
    seed: int = option(0, between=(0, 2**63 - 1))


def run(options: Options) -> None:
    from credibly.files import check_out
    from credibly.notebook import counted
    from credibly.retrieve.joint.model_selection import fit_joint_file

    check_out(options.out, (".json",), inputs=[options.predictions])
    fitted = fit_joint_file(
        options.predictions,
        components=options.components,
        seed=options.seed,
        partial=options.partial,
    )
    fitted.model.write(options.out)

    def show() -> None:
        rows = [
            [name, f"{score:.4f}", f"{fitted.log_losses[name]:.4f}"]
            for name, score in fitted.log_scores.items()
        ]
        columns = ["model", "joint log score per row", "log loss of single labels"]
        terminal.print_table("", columns, rows)
        terminal.print_text(
            f"Wrote the model {fitted.chosen}, fitted on {counted(fitted.rows, 'row')}, to "
            f"{options.out}."
        )

    names = ("chosen", "log_scores", "log_losses", "rows")
    terminal.tell(options, {name: getattr(fitted, name) for name in names}, show)
