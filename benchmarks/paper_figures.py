"""The figures of the papers, drawn from small runs: ``python -m benchmarks.paper_figures``.

Trains small networks on the embedded digits (about two minutes of CPU), draws every figure by the
call that the page shows, and writes ``docs/img/papers/*.svg`` and ``docs/papers/figures.md``.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import credibly as cr

ROOT = Path(__file__).resolve().parents[1]
PAGE, IMAGES = ROOT / "docs/papers/figures.md", ROOT / "docs/img/papers"
SEVERAL = ("bce", "asl", "spa", "softmax", "quasibinary")
ROWS, EPOCHS, AVERAGE = 2000, 8, 2.0

HEAD = """---
search:
  boost: 0.3
---

# Figures

The figures of the papers that show results, each with the call that draws it. These are drawn from
small networks on the embedded digit scenes and on a constructed long tail, so they show what a
figure looks like, not what the papers found. `python -m benchmarks.paper_figures` trains the
networks, draws the figures and writes this page.

`p["spa"]` are the probabilities of a run with the loss `spa`, and `y` is the truth.
`sets["softmax"]` are label sets of average size 2. `log["softmax"]` is
`cr.train.read_log("RUN/log.jsonl")`.

Retrieved images (SPA, Figure 4) and the four most confident labels of an image (quasibinary,
Figure 4) are pages of the web app: `credibly serve PREDICTIONS --images DIR`.
"""


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: its file, what it shows, and the lines that draw it."""

    file: str
    title: str
    lines: str


FIGURES = (
    Figure(
        "spa-1",
        "SPA, Figure 1: reliability of networks trained with ASY and SPA",
        'ax = cr.plot.reliability(p["asl"], y, name="asl")\n'
        'ax = cr.plot.reliability(p["spa"], y, name="spa", ax=ax)',
    ),
    Figure("spa-2", "SPA, Figure 2: partial losses and inverse link", 'ax = cr.plot.link("spa")'),
    Figure(
        "spa-3",
        "SPA, Figure 3: retrieval mAP by the number of conditions",
        "ax = None\n"
        'for name in ("bce", "asl", "spa"):\n'
        "    found = cr.metrics.retrieval_map(p[name], y, max_conditions=4)\n"
        "    ax = cr.plot.retrieval(found, name=name, ax=ax)",
    ),
    Figure(
        "quasibinary-2",
        "Quasibinary, Figure 2: the normalizers of quasibinary and softmax",
        'ax = cr.plot.normalizer({name: log[name] for name in ("quasibinary", "softmax")})',
    ),
    Figure(
        "quasibinary-3",
        "Quasibinary, Figure 3: reliability of the four most confident labels in ten bins",
        "ax = None\n"
        'for name in ("bce", "softmax", "quasibinary"):\n'
        "    ax = cr.plot.reliability(p[name], y, bins=10, top=4, name=name, ax=ax)",
    ),
    Figure(
        "average-k-4a",
        "Average-K, Figure 4a: set sizes of cross-entropy and of two heads",
        'ax = cr.plot.set_sizes({"cross-entropy": sets["softmax"], "two heads": sets["avgk"]})',
    ),
    Figure(
        "average-k-4b",
        "Average-K, Figure 4b: set sizes by how often the class was seen in training",
        'ax = cr.plot.set_sizes(sets["avgk"], targets=classes, train_counts=counts)',
    ),
)


def page() -> str:
    """Return the page."""
    parts = [
        f"## {each.title}\n\n<!-- not run: benchmarks.paper_figures runs it -->\n"
        f"```python\n{each.lines}\n```\n\n"
        f"![{each.title}](../img/papers/{each.file}.svg)"
        for each in FIGURES
    ]
    return "\n".join([HEAD, *(part + "\n" for part in parts)])


def runs(folder: Path) -> dict[str, Any]:
    """Train the networks; return what the calls of the page name."""
    rows = cr.data.load("digits", n=ROWS)
    test = rows.part("test")
    names: dict[str, Any] = {"cr": cr, "p": {}, "log": {}, "sets": {}, "y": test.dense_targets}
    for loss in SEVERAL:
        # As their authors read them: ASL by the sigmoid, no calibration, biases at zero.
        recipe = cr.train.Network(
            model="cnn",
            loss=cr.papers.preset("spa-coco").loss(loss),
            epochs=EPOCHS,
            calibrate="none",
            prior_bias=False,
            probe_first=False,
        )
        run = cr.train.fit(rows, recipe, folder=folder / loss)
        names["p"][loss] = run.predict(test).probabilities
        names["log"][loss] = cr.train.read_log(folder / loss / "log.jsonl")
    rows, names["counts"] = one_label()
    test = rows.part("test")
    names["classes"] = test.dense_targets
    for loss in ("softmax", "avgk"):
        recipe = cr.train.Network(
            model="mlp",
            loss=cr.papers.preset("avgk-cifar100").loss(loss),
            average_size=AVERAGE,
            epochs=EPOCHS,
            calibrate="none",
        )
        p = cr.train.fit(rows, recipe).predict(test).probabilities
        names["sets"][loss] = cr.decide.AverageSize(AVERAGE).fit(p).predict(p)
    return names


def one_label() -> tuple[cr.data.Data, np.ndarray]:
    """Return classes of which some are rare and all overlap, and their training rows."""
    counts = np.array([300, 200, 150, 110, 80, 50, 30, 18, 12, 8])
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(len(counts), 6))
    parts = [(0, counts), (2, counts // 4 + 2), (1, np.full(len(counts), 60))]
    classes = np.concatenate([np.repeat(np.arange(len(own)), own) for _, own in parts])
    split = np.concatenate([np.full(own.sum(), part) for part, own in parts])
    features = centres[classes] + 1.2 * generator.normal(size=(len(classes), 6))
    names = [f"class {number}" for number in range(len(counts))]
    targets = np.eye(len(counts))[classes]
    return cr.data.Data(names, targets, features=features, split=split), counts


def main() -> None:
    """Train, draw, and write the page."""
    mpl.rcParams["svg.hashsalt"] = "credibly"
    mpl.rcParams["svg.fonttype"] = "none"
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        names = runs(Path(folder))
    for each in FIGURES:
        exec(each.lines, names)
        metadata = {"Date": None, "Title": each.title}
        figure = names["ax"].get_figure(root=True)
        figure.savefig(IMAGES / f"{each.file}.svg", bbox_inches="tight", metadata=metadata)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
