"""The pipeline from scores to label sets: the link of a loss, a calibrator and a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from credibly import calibrate, decide, runtime
from credibly.arrays import aligned, like, to_numpy
from credibly.checks import InputError, choice
from credibly.files import write_json
from credibly.notebook import draw
from credibly.runtime import sigmoid
from credibly.targets import Coding, Targets, TargetsLike
from credibly.types import Array, ArrayLike, JsonObject
from credibly.untrusted.documents import read_json_object

if TYPE_CHECKING:
    from torch import Tensor, nn

    from credibly.calibrate import Calibrator
    from credibly.calibrate.auto import CalibratorCandidate
    from credibly.decide.base import Decision
    from credibly.losses import Loss

VERSION = 1
LINKS = ("own", "raw", "plateau", "probabilities")
SURE = 1e-7
"""A probability below which a link with a plateau is continued by the scores."""


class Pipeline:
    """Scores → log-odds (link, then calibrator) → probabilities → label sets.

    A run, the estimator, a calibration of scores from elsewhere, the server and the ONNX export all
    hold one pipeline, so that a score means the same everywhere.

    Args:
        loss: the loss whose link maps scores to log-odds: an object, or its name as
            ``cr.losses.from_name`` takes it. None: the scores are already log-odds. A loss
            without a link needs a calibrator, which then maps its ranking scores.
        calibrator: a fitted calibrator of log-odds, or one that ``fit`` fits. None: no calibration.
        decision: the rule from probabilities to label sets; by default a threshold of ½.
        context: what ``from_name`` needs besides the name: ``num_labels``, ``average_size``.
        labels: names of the labels, stored with the pipeline.
        link: the map from scores to the log-odds that the calibrator maps. ``"own"``: the link of
            the loss. This link may have a plateau: ASL gives probability 0 to all scores below its
            margin. The link is then continued by the scores below a probability of 1e-7, so that it
            makes no ties. ``"raw"``: the scores are unchanged. ``"plateau"``: the link without that
            continuation, as in files of version 0.2. ``"probabilities"``: there is no loss, and the
            scores are probabilities.

    Example:
        >>> import numpy as np, credibly as cr
        >>> pipeline = cr.Pipeline("spa", decision=cr.decide.TopK(1))
        >>> scores = np.array([[0.0, 0.952, 3.0]], dtype=np.float32)
        >>> pipeline.probabilities(scores).round(3)
        array([[0.054, 0.5  , 0.927]])
        >>> pipeline.sets(scores)
        array([[False, False,  True]])
    """

    def __init__(
        self,
        loss: Loss | str | None = None,
        calibrator: Calibrator | None = None,
        decision: Decision | None = None,
        *,
        context: Mapping[str, object] | None = None,
        labels: Sequence[str] | None = None,
        link: str = "own",
    ) -> None:
        self.labels = None if labels is None else list(labels)
        self.fitted_ids: list[str] = []
        """Digests of some ids of the rows that it was fitted on."""
        self.link = choice("link", link, LINKS)
        self.context = {k: v for k, v in (context or {}).items() if v is not None}
        self.loss_name = loss if isinstance(loss, str) else None
        self.loss: Loss | None = None if loss is None else self._build(loss)
        self.calibrator, self.decision = calibrator, decision
        if link == "probabilities" and loss is not None:
            raise InputError(
                "`loss` belongs to scores; with `link='probabilities'` the values are "
                "probabilities. Leave one of the two out."
            )

    def _build(self, loss: Loss | str) -> Loss:
        from credibly import losses

        if isinstance(loss, str):
            return losses.from_name(loss, **{"num_rows": 1, **self.context}).eval()
        if not isinstance(loss, losses.Loss):
            raise InputError(
                "`loss` must be a loss of `cr.losses`, its name, or None for log-odds; got "
                f"{type(loss).__name__}."
            )
        return loss

    # From scores to sets ---------------------------------------------------------------------

    def ranking_scores(self, scores: ArrayLike) -> Any:
        """Return one score per label to rank by: the scores, unless there are two heads."""
        return self._by_blocks(scores, self._ranking)

    def link_log_odds(self, scores: ArrayLike) -> Any:
        """Return log-odds before the calibrator, or the ranking scores if no link is applied."""
        return self._by_blocks(scores, self._link)

    def log_odds(self, scores: ArrayLike) -> Any:
        """Return calibrated log-odds as float64."""
        return self._by_blocks(scores, self._calibrated)

    def probabilities(self, scores: ArrayLike) -> Any:
        """Return the probability that each label is present, as float64."""
        return self._by_blocks(scores, lambda block: sigmoid(self._calibrated(block)))

    @property
    def rule(self) -> Decision:
        """Return the decision in use; by default a threshold of ½."""
        return self.decision or decide.Threshold(0.5)

    def sets(self, scores: ArrayLike) -> Any:
        """Return one label set per row, as a bool matrix."""
        return self.decide(self.probabilities(scores))

    def decide(self, probabilities: ArrayLike) -> Any:
        """Return the label sets for probabilities from this pipeline."""
        return self.rule.predict(probabilities)

    def _ranking(self, block: Array) -> Array:
        return block if self.loss is None else self._torch(block, self.loss.ranking_scores)

    def _link(self, block: Array) -> Array:
        formula = self._formula()
        if formula is None:
            assert self.loss is not None
            return self._torch(block, link_of(self.loss, self.link))
        return runtime.link_log_odds(formula, block)

    def _formula(self) -> JsonObject | None:
        """Return the link as plain values, or None if only torch can compute it."""
        loss = self.loss
        if loss is None:
            return {"link": "probabilities" if self.link == "probabilities" else "shift"}
        raw = self.link == "raw" or not loss.has_link
        formula = loss.numpy_link(ranking=raw)
        if formula is not None and not raw and _continues(loss, self.link):
            formula = {**formula, "plateau": end_of_plateau(loss)}
        return formula

    def _calibrated(self, block: Array) -> Array:
        if self.calibrator is None and self.loss is not None and not self.loss.has_link:
            raise InputError(
                f"{self.loss} has no link, so its scores become probabilities only through a "
                "calibrator; got none. Fit one: `Pipeline(loss, cr.calibrate.Affine()).fit(scores, "
                "targets)`."
            )
        odds = self._link(block)
        return odds if self.calibrator is None else self.calibrator.transform(odds)

    @staticmethod
    def _torch(block: Array, function: Callable[[Tensor], Tensor]) -> Array:
        import torch

        with torch.no_grad():
            return function(torch.from_numpy(np.require(block, requirements=["C", "W"]))).numpy()

    def _by_blocks(self, scores: ArrayLike, function: Callable[[Array], Array]) -> Any:
        """Apply ``function`` to blocks of rows; links and calibrators treat each row separately."""
        return like(runtime.by_blocks(function, to_numpy(scores)), scores)

    # Fitting ---------------------------------------------------------------------------------

    def calibrate(
        self,
        scores: ArrayLike,
        targets: TargetsLike,
        method: str = "auto",
        *,
        weights: ArrayLike | None = None,
        seed: int = 0,
        coding: Coding | None = None,
    ) -> tuple[CalibratorCandidate, ...]:
        """Fit a calibrator on held-out rows; by default, also choose it and the link.

        Args:
            scores: (rows, labels) of rows the model was not trained on.
            targets: as for ``Calibrator.fit``.
            method: the name of a calibrator, which maps the log-odds of the link, or ``"auto"``.
                ``"auto"`` compares the link and the raw scores, each alone and followed by every
                calibrator that makes no ties, on out-of-fold rows as ``cr.calibrate.choose`` does.
                Labels that exclude each other get calibrators whose rows still sum to one.
            weights: as for ``Calibrator.fit``.
            seed: the seed of the comparison.
            coding: how to read targets of only −1 and +1.

        Returns:
            The candidates that were compared; empty if ``method`` names a calibrator.

        Example:
            >>> import credibly as cr
            >>> rng = np.random.default_rng(0)
            >>> scores = rng.normal(-4, 2, (1000, 3))
            >>> targets = rng.random((1000, 3)) < 1 / (1 + np.exp(-scores))
            >>> pipeline = cr.Pipeline("asl")
            >>> candidates = pipeline.calibrate(scores, targets)
            >>> pipeline.link, pipeline.calibrator, len(candidates)
            ('raw', Identity(), 10)
        """
        loss = self.loss
        links = [name for name in LINKS[:2] if _may_use(loss, name)] if loss else [self.link]
        stages = {name: to_numpy(Pipeline(loss, link=name).link_log_odds(scores)) for name in links}
        odds = stages[links[0]]
        truth = Targets.of(
            aligned(scores, targets, "scores"), coding=coding, num_labels=odds.shape[1]
        )
        if method != "auto":
            self.link = links[0]
            self.calibrator = calibrate.from_name(method).fit(odds, truth, weights)
            return ()
        if len(links) > 1 and np.array_equal(odds, stages["raw"]):
            del stages["raw"]  # for binary cross-entropy, the link equals the raw scores
        exclusive = loss is not None and loss.exclusive
        found = calibrate.choose(stages, truth, weights, exclusive=exclusive, seed=seed)
        self.link, self.calibrator = found.stage, found.calibrator
        return found.candidates

    def plateau_share(self, scores: ArrayLike) -> float:
        """Return the share of scores that the loss's link gives a probability of exactly 0.

        Example:
            >>> import credibly as cr
            >>> cr.Pipeline("asl").plateau_share(np.array([[-4.0, -3.0, 0.0, 1.0]]))
            0.5
        """
        if self.loss is None or not self.loss.has_link:
            return 0.0
        odds = to_numpy(Pipeline(self.loss, link="plateau").link_log_odds(scores))
        return float(np.isneginf(odds).mean()) if odds.size else 0.0

    def fit(self, scores: ArrayLike, targets: ArrayLike, *, coding: Coding | None = None) -> Self:
        """Fit the calibrator and then the decision on held-out rows.

        Args:
            scores: (rows, labels) of rows the model was not trained on.
            targets: as for ``Calibrator.fit``.
            coding: how to read targets of only −1 and +1.
        """
        odds = to_numpy(self.link_log_odds(scores))
        truth = Targets.of(
            aligned(scores, targets, "scores"), coding=coding, num_labels=odds.shape[1]
        )
        if self.calibrator is not None:
            self.calibrator.fit(odds, truth)
        if self.decision is not None:
            self.decision.fit(to_numpy(self.probabilities(scores)), truth)
        return self

    # Export ----------------------------------------------------------------------------------

    def to_module(self) -> nn.Module:
        """Return the pipeline as a torch module: scores → ranking scores, probabilities, sets.

        Raises:
            InputError: if the decision or the calibrator is not fitted.
        """
        return _module(self)

    def state(self) -> JsonObject:
        """Return the pipeline as plain values, for JSON; ``from_state`` restores it.

        Raises:
            InputError: if the loss was given as an object: only a name can be stored.
        """
        rule = self.rule if self.labels is None else self.rule.for_labels(self.labels)
        return {
            "pipeline": VERSION,
            **({} if self.labels is None else {"labels": self.labels}),
            **({"fitted_ids": self.fitted_ids} if self.fitted_ids else {}),
            "loss": self._loss_state(),
            "link": self.link,
            "calibrator": None if self.calibrator is None else self.calibrator.state(),
            "decision": None if self.decision is None else self.decision.state(),
            "runtime": {"link": self._formula(), "rule": rule.comparison()},
        }

    def _loss_state(self) -> JsonObject | None:
        if self.loss is None:
            return None
        if self.loss_name is None:
            raise InputError(
                "a pipeline must know its loss by name to be stored; got the object "
                f"{self.loss}. Give the name, e.g. `cr.Pipeline('{self.loss.name}', …)`."
            )
        buffers = {name: value.tolist() for name, value in self.loss.link_state().items()}
        return {"name": self.loss_name, "context": self.context, "buffers": buffers}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Return the pipeline of a state that ``state`` returned, directly or through JSON."""
        if isinstance(state, Mapping) and isinstance(state.get("pipeline"), Mapping):
            own = state["pipeline"]  # a map of version 0.2
            link = "probabilities" if state.get("values") == "probabilities" else own.get("link")
            state = {**own, "labels": state.get("labels"), "link": link or "plateau"}
        if not isinstance(state, Mapping) or state.get("pipeline") != VERSION:
            raise InputError(
                f"a pipeline's state must be a dict with 'pipeline': {VERSION}; got {state!r:.80}."
            )
        labels = state.get("labels")
        if labels is not None and not (
            isinstance(labels, list) and labels and all(isinstance(name, str) for name in labels)
        ):
            raise InputError(f"a pipeline's 'labels' must be a list of names; got {labels!r:.80}.")
        about = state.get("loss")
        if about is not None and not _is_loss_state(about):
            raise InputError(
                f"a pipeline's 'loss' must hold its name and context; got {about!r:.80}."
            )
        calibrator, decision = state.get("calibrator"), state.get("decision")
        pipeline = cls(
            None if about is None else about["name"],
            None if calibrator is None else calibrate.from_state(calibrator),
            None if decision is None else decide.from_state(decision),
            context=None if about is None else about.get("context"),
            labels=labels,
            link=state.get("link", "plateau"),
        )
        pipeline.fitted_ids = list(map(str, state.get("fitted_ids") or ()))
        if about is not None:
            pipeline._load_buffers(about.get("buffers", {}))
        return pipeline

    def _load_buffers(self, values: object) -> None:
        import torch

        assert self.loss is not None
        expected = self.loss.link_state()
        if not isinstance(values, Mapping) or set(values) != set(expected):
            raise InputError(
                f"a pipeline's loss {self.loss_name!r} must store {sorted(expected)}; got "
                f"{values!r:.80}."
            )
        for name, buffer in expected.items():
            try:
                stored = torch.as_tensor(values[name], dtype=buffer.dtype)
                buffer.copy_(stored.reshape(buffer.shape))
            except (TypeError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"a pipeline's {name!r} must hold {tuple(buffer.shape)} numbers; {error}."
                ) from error

    def write(self, path: str | Path) -> None:
        """Write the state as JSON; the file is complete or absent."""
        write_json(path, self.state())

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the pipeline that ``write`` stored; nothing is unpickled."""
        path = Path(path)
        state = read_json_object(path)
        try:
            return cls.from_state(state)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def _repr_html_(self) -> str:
        """Return the steps from scores to label sets as a diagram, for notebooks."""
        return draw("pipeline", self)

    def __repr__(self) -> str:
        link = "" if self.link == "own" else f", link={self.link!r}"
        shown = f"{self.loss_name or self.loss}, {self.calibrator!r}, {self.decision!r}"
        return f"Pipeline({shown}{link})"


def link_of(loss: Loss, link: str) -> Callable[[Tensor], Tensor]:
    """Return the torch map from scores to float64 log-odds with the name ``link``."""
    import torch

    if link == "raw" or not loss.has_link:
        return lambda scores: loss.ranking_scores(scores).double()
    if not _continues(loss, link):
        return lambda scores: loss.log_odds(scores.double())
    first, level = end_of_plateau(loss)

    def continued(scores: Tensor) -> Tensor:
        exact = scores.double()
        return torch.where(exact < first, exact - first + level, loss.log_odds(exact))

    return continued


def _continues(loss: Loss, link: str) -> bool:
    """Return whether the link has a plateau, which the scores continue."""
    import torch

    lowest = torch.tensor([[-1e4]])
    return link == "own" and loss.labelwise and bool(torch.isneginf(loss.log_odds(lowest)).all())


@lru_cache(maxsize=4)  # called for every block of rows
def end_of_plateau(loss: Loss) -> tuple[float, float]:
    """Return the lowest score that the link maps, and the log-odds that continue it below.

    These log-odds are slightly lower than the link there, so that rounding keeps the order.
    """
    import torch

    start = loss.initial_scores(torch.tensor([SURE])).double()
    return float(start), float(loss.log_odds(start[None])) - 1e-3


def _may_use(loss: Loss, link: str) -> bool:
    """Return whether scores may be mapped by ``link``; a softmax needs its own link."""
    return loss.has_link if link == "own" else not (loss.has_link and loss.exclusive)


def _is_loss_state(about: object) -> bool:
    if not isinstance(about, Mapping) or not isinstance(about.get("name"), str):
        return False
    context = about.get("context", {})
    return isinstance(context, Mapping) and set(context) <= {"num_labels", "average_size"}


def _module(pipeline: Pipeline) -> nn.Module:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    class _WrittenOut(TorchFunctionMode):
        """Replace operators that onnxruntime lacks in float64 or computes imprecisely near 0."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            if func in (torch.sigmoid, Tensor.sigmoid):
                return 1 / (1 + torch.exp(-args[0]))
            if func in (functional.softplus, functional.logsigmoid) and args[1:] == ():
                value = args[0] if func is functional.softplus else -args[0]
                result = torch.relu(value) + torch.log(1 + torch.exp(-value.abs()))
                return result if func is functional.softplus else -result
            return func(*args, **(kwargs or {}))

    class PipelineModule(nn.Module):
        """Return ranking scores, probabilities and label sets for scores."""

        def __init__(self) -> None:
            super().__init__()
            self.loss = pipeline.loss
            self.link = None if self.loss is None else link_of(self.loss, pipeline.link)
            kept = pipeline.calibrator
            self.calibrator = nn.Identity() if kept is None else kept.to_module()
            self.decision = pipeline.rule.to_module()

        def forward(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            with _WrittenOut() if torch.onnx.is_in_onnx_export() else nullcontext():
                return self._outputs(scores)

        def _outputs(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            ranking, odds = scores, scores.double()  # float64, as in ``Pipeline.log_odds``
            if self.loss is not None and self.link is not None:
                ranking, odds = self.loss.ranking_scores(scores), self.link(scores)
            elif pipeline.link == "probabilities":
                odds = torch.log(odds) - torch.log(1 - odds)
            probabilities = torch.sigmoid(self.calibrator(odds))
            precision = torch.promote_types(scores.dtype, torch.float32)
            return ranking, probabilities.to(precision), self.decision(probabilities)

    return PipelineModule()
