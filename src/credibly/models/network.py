"""Networks: standardisation, backbone, dropout, head; ``build`` makes them by name.

First layers accept sparse rows (``Tensors`` of terms, values and starts) as well as dense rows.
Their weights have the layout of torch's layers, so a network trained on sparse rows is loaded,
exported and applied to dense rows like any other network.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from credibly import checks, names
from credibly.checks import InputError, nearest
from credibly.data import Data, SparseRows
from credibly.data.token_rows import Tensors
from credibly.data.torch_datasets import DEFAULT_SIZE
from credibly.models.trees import TREES
from credibly.types import Array

Inputs: TypeAlias = Tensor | Tensors
"""Dense rows, or sparse ones."""


class Flatten(nn.Flatten):
    """``nn.Flatten``; sparse rows are already flat."""

    def forward(self, input: Inputs) -> Any:
        return input if isinstance(input, Tensors) else super().forward(input)


class Dropout(nn.Dropout):
    """``nn.Dropout``; for sparse rows it drops values, because dropping a zero changes nothing."""

    def forward(self, input: Inputs) -> Any:
        if not isinstance(input, Tensors):
            return super().forward(input)
        return with_values(input, super().forward(input["values"]))


class SparseLinear(nn.Linear):
    """``nn.Linear``; for sparse rows it reads only the weights of the terms that occur.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> from credibly.data import SparseRows
        >>> layer, rows = SparseLinear(4, 2), csr_matrix([[0, 3.0, 0, 1.0]], dtype="float32")
        >>> dense = layer(torch.from_numpy(rows.toarray()))
        >>> bool(torch.allclose(layer(SparseRows(rows).batch(torch.arange(1).numpy())), dense))
        True
    """

    def forward(self, input: Inputs) -> Tensor:
        if not isinstance(input, Tensors):
            return super().forward(input)
        product: Any = _Product.apply(
            self.weight, input["terms"], input["values"].to(self.weight.dtype), input["starts"]
        )
        return product + self.bias


class _Product(torch.autograd.Function):
    """Sparse rows times the transpose of a (outputs, terms) weight.

    The columns of the terms that occur are copied next to each other: a batch has thousands of
    terms, the weight hundreds of thousands.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, terms: Tensor, values: Tensor, starts: Tensor) -> Tensor:  # type: ignore[override]
        occurring, places = torch.unique(terms.long(), return_inverse=True)
        columns = weight.detach()[:, occurring].t().contiguous()
        ctx.save_for_backward(occurring, places, values, starts)
        ctx.terms = weight.shape[1]
        if not len(places):
            return weight.new_zeros(len(starts), len(weight))
        return nn.functional.embedding_bag(
            places, columns, starts.long(), mode="sum", per_sample_weights=values
        )

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        occurring, places, values, starts = ctx.saved_tensors
        starts, device = starts.long(), gradient.device
        ends = torch.cat([starts[1:], torch.tensor([len(places)], device=device)])
        rows = torch.arange(len(starts), device=device).repeat_interleave(ends - starts)
        sums = gradient.new_zeros(len(occurring), gradient.shape[1])
        sums.index_add_(0, places, gradient[rows] * values[:, None])
        whole = gradient.new_zeros(gradient.shape[1], ctx.terms)
        whole[:, occurring] = sums.t()
        return whole, None, None, None


def with_values(inputs: Tensors, values: Tensor) -> Tensors:
    """Return the same terms with other values."""
    changed = Tensors(len(inputs), **inputs)
    changed["values"] = values
    return changed


# The network ------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from credibly.losses import Loss
    from credibly.targets import SparseTargets, Targets

SPARSE = ("linear", "mlp")
"""Networks that take sparse features."""

LIMIT = 3.0
"""Largest standardised value of a feature, in deviations (benchmarks/results/limits.md)."""

TAILS = 40.0
"""Deviations above this many interquartile ranges are those of outliers; docs/guide/training.md."""

REACH = 5.0
"""How far beyond the quartiles values of such columns count, in interquartile ranges."""

QUARTILE_ROWS = 4096
"""About how many rows quartiles are taken from."""


class Standardize(nn.Module):
    """(input − mean) / scale for each column or channel; fixed, and saved with the model.

    Values beyond ±``limit`` deviations are clipped, so an outlier that training did not see cannot
    dominate the scores of a row. A missing feature (NaN) becomes 0, the mean. Mean and scale are
    buffers, not parameters: they are fitted once on training rows, are moved and exported with the
    model, and no optimizer updates them.

    Example:
        >>> layer = Standardize(2).fit(np.array([[1.0, 5.0], [3.0, 5.0]]), limit=5.0)
        >>> layer(torch.tensor([[3.0, 5.0], [99.0, torch.nan]]))
        tensor([[1., 0.],
                [5., 0.]])
    """

    mean: Tensor
    scale: Tensor
    limit: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))
        self.register_buffer("limit", torch.tensor(math.inf))

    def fit(self, values: Any, limit: float = math.inf) -> Standardize:
        """Set mean and deviation of each column, as ``column_moments`` returns them.

        Columns of sparse values are only scaled, see ``fit_sparse``.
        """
        if not isinstance(values, np.ndarray):
            return self.fit_sparse(SparseRows(values), limit)
        return self.set(*column_moments(values, heavy_tails=limit < math.inf), limit)

    def set(self, mean: object, scale: object, limit: float = math.inf) -> Standardize:
        """Set one mean and one scale per column or channel."""
        self.mean.copy_(torch.as_tensor(np.asarray(mean)))
        self.scale.copy_(torch.as_tensor(np.asarray(scale)))
        self.limit.fill_(limit)
        return self

    def fit_sparse(self, rows: SparseRows, limit: float = math.inf) -> Standardize:
        """Set each scale to the root mean square of non-zero values, and the mean to 0.

        Zeros then remain zeros. The deviation over all rows would instead amplify rare columns.
        """
        matrix = rows.matrix
        known = np.flatnonzero(np.nan_to_num(matrix.data))
        columns, values = matrix.indices[known], matrix.data[known].astype(np.float64)
        count = np.bincount(columns, minlength=rows.shape[1])
        square = np.bincount(columns, values**2, minlength=rows.shape[1])
        scale = np.sqrt(square / np.maximum(count, 1))
        return self.set(np.zeros(rows.shape[1]), np.where(scale > 0, scale, 1.0), limit)

    def forward(self, inputs: Inputs) -> Any:
        if isinstance(inputs, Tensors):
            return self._sparse(inputs)
        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        standard = (inputs - self.mean.view(shape)) / self.scale.view(shape)
        standard = standard.clamp(-self.limit, self.limit)
        return standard if inputs.ndim > 2 else torch.where(standard.isnan(), 0.0, standard)

    @torch.no_grad()
    def applied(self, values: Any) -> Any:
        """Return standardised features in float64, as an array or, for CSR input, as CSR."""
        if isinstance(values, np.ndarray):
            own = np.require(values, np.float64, ["C", "W"])
            return copy.deepcopy(self).double()(torch.from_numpy(own)).numpy()
        scaled = values.astype(np.float64)
        limit = float(self.limit)
        scaled.data = (scaled.data / self.scale.numpy()[scaled.indices]).clip(-limit, limit)
        scaled.data[np.isnan(scaled.data)] = 0.0
        return scaled

    def _sparse(self, inputs: Tensors) -> Tensors:
        terms = inputs["terms"].long()
        if int(terms.max() if len(terms) else 0) >= len(self.mean):
            raise InputError(
                f"feature numbers must be below {len(self.mean):,}; got {int(terms.max()):,}."
            )
        if bool(self.mean.any()):
            raise InputError(
                "the network was trained on dense features, whose zeros mean something else; got "
                "sparse ones. Give a dense matrix: `SparseRows.dense`."
            )
        values = (inputs["values"] / self.scale[terms]).clamp(-self.limit, self.limit)
        return with_values(inputs, torch.where(values.isnan(), 0.0, values))

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *rest: object, **named: object
    ) -> None:
        """Also read runs of version 0.2 and before, which have no limit."""
        state_dict.setdefault(prefix + "limit", torch.tensor(math.inf))
        super()._load_from_state_dict(state_dict, prefix, *rest, **named)


def column_moments(
    values: Array, *, heavy_tails: bool, tolerance: float = 1e-6
) -> tuple[Array, Array]:
    """Return mean and deviation of each column's known values, in float64.

    A column whose deviation is at most ``tolerance`` times its mean is constant and has scale 1.
    With ``heavy_tails``, if the deviation of a column exceeds 40 interquartile ranges, the moments
    are those of its values clipped to five interquartile ranges beyond the quartiles. Otherwise a
    few huge values would make all other values nearly equal.

    Example:
        >>> column = np.append(np.arange(100.0), 1e30)[:, None]
        >>> [float(moment[0].round()) for moment in column_moments(column, heavy_tails=True)]
        [52.0, 40.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = _moments(values)
    if heavy_tails and len(values):
        low, high = _quartiles(values[:: -(-len(values) // QUARTILE_ROWS)])
        width = high - low
        # Not `>`: the squares of the largest numbers overflow.
        heavy = np.flatnonzero((width > 0) & ~(deviation <= TAILS * width))
        if len(heavy):
            reach = REACH * width[heavy]
            inside = values[:, heavy].astype(np.float64)
            inside = inside.clip(low[heavy] - reach, high[heavy] + reach)
            mean[heavy], deviation[heavy] = _moments(inside)
    constant = deviation <= tolerance * np.maximum(np.abs(mean), 1e-30)
    return mean, np.where(constant, 1.0, deviation)


def _moments(values: Array) -> tuple[Array, Array]:
    # In blocks, in float64: exact enough, without a copy of the whole array.
    width = values.shape[1]
    total, square, count = np.zeros(width), np.zeros(width), np.zeros(width)
    shift = np.nan_to_num(values[:1].astype(np.float64).reshape(-1)) if len(values) else 0.0
    for start in range(0, len(values), 65536):
        block = values[start : start + 65536].astype(np.float64) - shift
        missing = np.isnan(block)
        block[missing] = 0
        total += block.sum(axis=0)
        square += (block**2).sum(axis=0)
        count += len(block) - missing.sum(axis=0)
    mean = total / np.maximum(count, 1)
    deviation = np.sqrt(np.maximum(square / np.maximum(count, 1) - mean**2, 0))
    return mean + shift, deviation


def _quartiles(values: Array) -> tuple[Array, Array]:
    """Return the first and third quartile of each column's known values; 0 if none is known."""
    ordered = np.sort(values.astype(np.float64), axis=0)  # missing values last
    known = (~np.isnan(ordered)).sum(axis=0)
    places = (known // 4, (3 * known) // 4)
    low, high = (np.take_along_axis(ordered, place[None], axis=0)[0] for place in places)
    return np.where(known > 0, low, 0.0), np.where(known > 0, high, 0.0)


VIEWS = ("one", "flip", "crops")
"""Whole image; also mirrored; also four corners and the middle of it, each also mirrored."""

CROP = 7 / 8
"""Side of a view of ``crops``, as a share of the image's side."""


class HeadedModule(nn.Module, ABC):
    """A network whose scores are the last layer, ``head``, applied to the output of ``hidden``.

    With very many labels, the trainer calls ``hidden`` and computes last layer and loss together
    (``cr.losses.fused_linear``).
    """

    head: Any

    @abstractmethod
    def hidden(self, inputs: Inputs) -> Tensor:
        """Return the inputs of the last layer: (rows, features)."""

    @torch.no_grad()
    def start_at_rates(self, criterion: Loss, targets: Targets | SparseTargets) -> None:
        """Set the last biases so that probabilities start at the rates of the labels.

        The rates are smoothed by half a row with the label and half a row without it.
        """
        rates = (targets.label_counts() + 0.5) / (targets.known_counts() + 1.0)
        # Without a link, any increasing map of the rates works: only differences matter.
        start = criterion.initial_scores if criterion.has_link else torch.logit
        initial = start(torch.from_numpy(rates))
        if initial.shape == self.head.bias.shape:
            self.head.bias.copy_(initial)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.head(self.hidden(inputs))


class Head(HeadedModule):
    """The last layers of ``model``, with shared weights. The inputs are backbone features."""

    def __init__(self, model: NetworkModule) -> None:
        super().__init__()
        self.dropout, self.head = model.dropout, model.head

    def hidden(self, inputs: Inputs) -> Tensor:
        return self.dropout(inputs)


class NetworkModule(HeadedModule):
    """Scores of a batch, through ``standardize``, ``backbone``, ``dropout`` and ``head``.

    ``head`` is the last ``nn.Linear``. Its outputs are the scores of all labels, followed by the
    second scores of all labels for losses with two scores per label. A frozen backbone stays in
    evaluation mode and gets no gradient. Its output can be cached (``cache_features``).

    Args:
        name: the name of the model in errors.
        input_shape: of one input.
        standardize: the first layer.
        backbone: maps standardised inputs to (rows, ``num_features``).
        num_features: number of features per row.
        num_scores: number of outputs of the head.
        dropout: before the head.
        frozen: train only the head.
        fixed_norms: batch norms of the backbone keep their initial statistics in training too.
            Their weights are trained.
        views: in evaluation mode, average the scores over these views of each image.
    """

    def __init__(
        self,
        name: str,
        input_shape: tuple[int, ...],
        standardize: Standardize,
        backbone: nn.Module,
        num_features: int,
        num_scores: int,
        *,
        dropout: float = 0.0,
        frozen: bool = False,
        fixed_norms: bool = False,
        views: str = "one",
    ) -> None:
        super().__init__()
        self.name, self.input_shape, self.frozen = name, tuple(input_shape), frozen
        self.num_features, self.fixed_norms, self.views = num_features, fixed_norms, views
        self.standardize, self.backbone = standardize, backbone
        self.dropout = Dropout(dropout)
        self.head = self._head(num_features, num_scores)
        if frozen:
            self.freeze()

    def _head(self, num_features: int, num_scores: int) -> nn.Module:
        # The head of a linear model reads the inputs, which may be sparse.
        return (SparseLinear if self.name == "linear" else nn.Linear)(num_features, num_scores)

    def freeze(self, frozen: bool = True) -> None:
        """Exclude the backbone from training, or include it again."""
        self.frozen = frozen
        self.backbone.requires_grad_(not frozen)
        self.train(self.training)

    def train(self, mode: bool = True) -> NetworkModule:
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        elif self.fixed_norms:
            for module in self.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self

    def layers(self) -> list[list[nn.Parameter]]:
        """Return the backbone's parameters by layer, from the input to the features.

        A layer is a child of the backbone, or of a sequence of layers inside it. Parameters that
        belong directly to the backbone (tokens, positions) are part of the first layer.
        """
        found = [list(module.parameters()) for module in _unrolled(self.backbone)]
        inside = {id(each) for parameters in found for each in parameters}
        own = [each for each in self.backbone.parameters() if id(each) not in inside]
        first, *others = [parameters for parameters in found if parameters] or [[]]
        return [each for each in (own + first, *others) if each]

    def features(self, inputs: Inputs) -> Any:
        """Return the inputs of the head, (rows, num_features). ``linear`` keeps rows sparse."""
        size, columns = len(self.input_shape), self.input_shape[0]
        if isinstance(inputs, Tensor) and (inputs.ndim != 1 + size or inputs.shape[1] != columns):
            shape = ", ".join(map(str, self.input_shape))
            raise InputError(
                f"{self.name} takes inputs of shape (rows, {shape}); got {tuple(inputs.shape)}."
            )
        with torch.no_grad() if self.frozen else nullcontext():
            return self.backbone(self.standardize(inputs))

    def hidden(self, inputs: Inputs) -> Tensor:
        return self.dropout(self.features(inputs))

    def forward(self, inputs: Inputs) -> Tensor:
        if self.training or self.views == "one":
            return super().forward(inputs)
        assert isinstance(inputs, Tensor)  # only images have views
        views = [inputs, *(_crops(inputs) if self.views == "crops" else [])]
        both = [each for view in views for each in (view, view.flip(-1))]
        return torch.stack([self.head(self.hidden(each)) for each in both]).mean(dim=0)


def _unrolled(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a module, with sequences replaced by their children."""
    for child in module.children():
        yield from _unrolled(child) if isinstance(child, nn.Sequential) else [child]


def _crops(images: Tensor) -> list[Tensor]:
    """Return the four corners and the centre, scaled to the size of the image."""
    height, width = images.shape[2:]
    tall, wide = max(round(CROP * height), 1), max(round(CROP * width), 1)
    down, right = height - tall, width - wide
    corners = ((0, 0), (0, right), (down, 0), (down, right), (down // 2, right // 2))
    return [
        nn.functional.interpolate(
            images[:, :, top : top + tall, left : left + wide], (height, width), mode="bilinear"
        )
        for top, left in corners
    ]


class Stack(nn.Module):
    """The weighted sum of the scores of models.

    Scores of ``bce`` are log-odds, and those of ``softmax`` are log-probabilities up to a constant.
    With weights 1/N, the sum is therefore the mean of N members in log-odds.

    Args:
        members: models that take the same inputs and return scores of the same shape.
        weights: one per member; by default equal weights that sum to 1.

    Example:
        >>> stack = Stack([nn.Identity(), nn.Identity()], [1.0, 0.5])
        >>> stack(torch.ones(1, 2))
        tensor([[1.5000, 1.5000]])
    """

    weights: Tensor

    def __init__(
        self, members: Sequence[nn.Module], weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        even = [1 / max(len(members), 1)] * len(members)
        self.register_buffer("weights", torch.tensor(even if weights is None else list(weights)))

    def forward(self, inputs: Tensor) -> Tensor:
        pairs = zip(self.weights, self.members, strict=True)
        return torch.stack([weight * member(inputs) for weight, member in pairs]).sum(dim=0)


# From a name to the network ---------------------------------------------------------------------

OUTSIDE = ("timm", "hf")
"""Libraries of other networks."""

CONVOLUTIONAL = (*names.NETWORKS, "efficientnet-lite0")
"""Networks for images."""

MODELS = ("linear", "mlp", *TREES, "tfidf", "cnn", *CONVOLUTIONAL, "timm:NAME", "hf:NAME")
"""Names for ``build``; NAME stands for one of that library's."""

DROPOUT = {"mlp": 0.5, "cnn": 0.2, "efficientnet-lite0": 0.2}
HIDDEN = {"mlp": 512, "cnn": 16}
"""What ``dropout`` and ``hidden`` are when not given."""

SMALLEST = {"vgg16": 32, "efficientnet-lite0": 32}
"""Fewest pixels per side; 4 for the other convolutional networks."""


def build(
    name: str,
    inputs: Data | Sequence[int],
    num_labels: int | None = None,
    *,
    num_outputs: int | None = None,
    dropout: float | None = None,
    hidden: int | None = None,
    frozen: bool = False,
    weights: str | Path | None = None,
    image_size: int | None = None,
    fixed_norms: bool = False,
    views: str = "one",
) -> NetworkModule:
    """Build a model by name, with its standardisation fitted on the training rows of ``inputs``.

    Args:
        name: one of ``MODELS``; see docs/guide/training.md.
        inputs: the data, or the shape of one input, (features,) or (channels, height, width).
            With a shape, the standardisation is the identity until weights are loaded.
        num_labels: number of labels; by default that of the data.
        num_outputs: ``loss.num_outputs(num_labels)``, for losses with more than one score per
            label.
        dropout: before the head; the default depends on the model.
        hidden: width of the hidden layer of ``mlp`` or of the first stage of ``cnn``.
        frozen: train only the head.
        weights: weights of the backbone: a local ``.safetensors`` file (for ``hf:`` a folder);
            ``"pretrained"`` for those that the library has under this name; ``"auto"`` for the
            ImageNet weights of ``efficientnet-lite0`` that ``credibly[images]`` installs.
        image_size: side of the images, if they are read from files.
        fixed_norms: keep the statistics of batch norms in training, for small batches.
        views: ``one``; ``flip`` or ``crops`` average the scores of several views of an image in
            evaluation mode.

    Example:
        >>> build("linear", (3,), num_labels=2, num_outputs=4).head
        SparseLinear(in_features=3, out_features=4, bias=True)
    """
    data = inputs if isinstance(inputs, Data) else None
    if data is not None and data.texts is not None:
        raise InputError(
            "networks for texts are built from the texts they train on; use `cr.train.fit`."
        )
    if name == "tfidf":
        what = f"inputs of shape {inputs}" if data is None else data.kind
        raise InputError(f"tfidf takes texts; the data hold {what}. Use mlp or linear.")
    if name in TREES:
        raise InputError(f"{name} is not a network. Choose it with `--model` or a recipe.")
    shape = _shape(inputs, image_size)
    if num_labels is None:
        if data is None:
            raise InputError("`num_labels` must be given when the model is built by input shape.")
        num_labels = data.num_labels
    num_labels = int(checks.at_least("num_labels", num_labels, 1))
    num_scores = num_labels if num_outputs is None else num_outputs
    dropout = DROPOUT.get(name, 0.0) if dropout is None else dropout
    checks.fraction("dropout", dropout, high_open=True)
    hidden = HIDDEN.get(name, 1) if hidden is None else int(checks.at_least("hidden", hidden, 1))
    if checks.choice("views", views, VIEWS) != "one":
        _images_only(f"`views` {views}", shape)
    standardize, train = Standardize(shape[0]), None
    if data is not None:
        train = data.part("train")
        train = train if len(train) else data
        if data.sparse_features is not None:
            _check_sparse(name, shape, num_scores if name == "linear" else hidden)
        _fit(standardize, train)
    backbone, width = _backbone(name, shape, hidden, dropout, weights, standardize)
    if weights is not None:
        _load(backbone, weights, name)
    network = NetworkModule(
        *(name, shape, standardize, backbone, width, num_scores),
        dropout=dropout,
        frozen=frozen,
        fixed_norms=fixed_norms,
        views=views,
    )
    if train is not None and train.sparse_features is not None:
        _start_sparse(network, train.sparse_features)
    return network


def _check_sparse(name: str, shape: tuple[int, ...], outputs: int) -> None:
    if name not in SPARSE:
        raise InputError(
            f"`model` {name} takes dense inputs; the data hold {shape[0]:,} sparse features. Use "
            f"{' or '.join(SPARSE)}."
        )
    # Weights, gradient and two moments of the optimizer.
    checks.fits_memory(f"the first layer of {name}", shape[0], outputs, itemsize=16)


@torch.no_grad()
def _start_sparse(network: NetworkModule, rows: SparseRows) -> None:
    """Scale the first weights for the non-zero values of a row, because most columns are zero.

    The weights of columns without training rows start at 0, and so do all weights of ``linear``:
    the data contain no information about them.
    """
    filled = max(rows.matrix.nnz / max(len(rows), 1), 1.0)
    seen = np.bincount(rows.matrix.indices, minlength=rows.shape[1]) > 0
    first = next(each for each in network.modules() if isinstance(each, SparseLinear))
    scale = 0.0 if network.name == "linear" else (rows.shape[1] / filled) ** 0.5
    first.weight.mul_(torch.from_numpy(np.where(seen, scale, 0.0).astype(np.float32)))


def _shape(inputs: Data | Sequence[int], image_size: int | None) -> tuple[int, ...]:
    if isinstance(inputs, Data):
        shape = inputs.input_shape or (3, DEFAULT_SIZE, DEFAULT_SIZE)
        inputs = shape if image_size is None or len(shape) == 1 else (shape[0], *[image_size] * 2)
    shape = tuple(int(side) for side in inputs)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise InputError(
            f"an input must have shape (features,) or (channels, height, width); got {shape}."
        )
    return shape


def _fit(standardize: Standardize, train: Data) -> None:
    if train.features is not None:
        standardize.fit(train.features, LIMIT)
    elif train.sparse_features is not None:
        standardize.fit_sparse(train.sparse_features, LIMIT)
    elif isinstance(train.images, np.ndarray):
        # A thousand images determine the mean and deviation of a channel well enough.
        sample = train.images[:: max(1, len(train) // 1000)]
        standardize.fit(sample.reshape(-1, sample.shape[3]) / np.float32(255))


def _backbone(
    name: str,
    shape: tuple[int, ...],
    hidden: int,
    dropout: float,
    weights: str | Path | None,
    standardize: Standardize,
) -> tuple[nn.Module, int]:
    """Return a backbone, without weights from a file, and the number of its features."""
    library, _, inner = name.partition(":")
    size = int(np.prod(shape))
    if name == "linear":
        return Flatten(), size
    if name == "mlp":
        # The dropout on the inputs is half of that before the head.
        layers = nn.Sequential(Dropout(dropout / 2), SparseLinear(size, hidden), nn.ReLU())
        return nn.Sequential(Flatten(), layers), hidden
    if name != "cnn" and name not in CONVOLUTIONAL and not (library in OUTSIDE and inner):
        known = ", ".join(MODELS)
        raise InputError(f"`model` must be one of {known}; got {name!r}. {nearest(name, MODELS)}")
    from credibly.models import backbones, efficientnet

    _images_only(name, shape)
    if library in OUTSIDE:
        make = backbones.timm_backbone if library == "timm" else backbones.huggingface_backbone
        backbone = make(inner, shape, weights, standardize)
        return backbone, backbones.output_size(backbone, shape, name)
    smallest = SMALLEST.get(name, 4)
    if min(shape[1:]) < smallest:
        raise InputError(
            f"{name} takes images of at least {smallest} × {smallest} pixels; got {shape[1:]}. "
            f"Give `image_size` {smallest} or more."
        )
    if name == "cnn":
        backbone = backbones.Convolutions(shape[0], hidden)
        return backbone, backbone.num_features
    if name == "efficientnet-lite0":
        mean, scale = (np.full(shape[0], each) for each in efficientnet.INPUT)
        standardize.set(mean, scale)
        network: Any = efficientnet.EfficientNetLite0
    else:
        module, _, function = names.NETWORKS[name].partition(":")
        network = getattr(import_module(module), function)
    # A third faster on CPUs, and the layout that tensor cores prefer.
    backbone = network(shape[0]).to(memory_format=torch.channels_last)
    return backbone, backbone.num_features


def _load(backbone: nn.Module, weights: str | Path, name: str) -> None:
    """Load weights from a file, or the published ones."""
    from credibly.models import backbones, efficientnet

    library = name.partition(":")[0]
    if weights == "auto":
        if name != "efficientnet-lite0":
            raise InputError(
                f"`weights` auto means the ImageNet weights of efficientnet-lite0; got {name}. "
                "Give a file, or for networks of timm and transformers `weights` pretrained."
            )
        backbone.load_state_dict(efficientnet.published_weights())
    elif weights == names.PRETRAINED and library not in OUTSIDE:
        raise InputError(
            "`weights` pretrained stands for weights that timm or transformers have; the built-in "
            f"{name} comes without. Give a file, --weights FILE.safetensors, for "
            "efficientnet-lite0 auto, or start from random weights, --weights none."
        )
    elif weights != names.PRETRAINED and library != "hf":  # others have loaded theirs
        backbones.load_weights(backbone, weights, name)


def _images_only(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3:
        raise InputError(f"{name} takes images; the data hold {shape[0]} features. Use mlp.")
