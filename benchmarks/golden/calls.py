"""The commands and calls of the record, by data set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.golden import data
from benchmarks.golden.world import Calls, World, parquet, tidy

RULES = {
    "average size": ["--average-size", "2"],
    "average size, probability": ["--average-size", "2", "--guarantee", "0.1"],
    "recall": ["--recall", "0.8", "--guarantee", "0.2"],
    "recall per label": ["--recall", "0.7", "--per", "label", "--guarantee", "none"],
    "precision": ["--precision", "0.5", "--guarantee", "0.3"],
    "best f": ["--best-f", "1"],
    "top k": ["--top-k", "2"],
    "threshold": ["--threshold", "0.5,cat=0.3"],
    "cost": ["--cost", "miss=5,false-alarm=1,review=0.5"],
}
"""Rules of ``credibly sets``, with their flags."""


def review() -> str:
    """Return the name of the command that lists labels that are probably wrong."""
    from credibly.cli import COMMANDS

    return "review" if "review" in COMMANDS else "inspect"


def trained(world: World, source: object, run: str, *flags: object) -> Any:
    """Train, and return what was printed and what was predicted."""
    printed = world.command("train", source, "--out", world / run, "--quiet", *flags)
    return {"printed": printed, "predictions": parquet(world / run / "predictions.parquet")}


def tables(world: World) -> Calls:
    """Features in a table: every kind of model, then what is done with a run."""
    path = data.table(world.folder)
    for name, options in {
        "linear": ["--model", "linear"],
        "mlp": ["--model", "mlp", "--loss", "spa+lpr", "--epochs", "3"],
        "forest": ["--model", "forest"],
        "boosting": ["--model", "boosting"],
        "auto": ["--model", "auto", "--budget", "2s"],
    }.items():
        yield (
            f"train {name}",
            lambda name=name, options=options: trained(world, path, f"run-{name}", *options),
        )
    yield (
        "predict",
        lambda: {
            "printed": world.command(
                "predict",
                world / "run-mlp",
                path,
                "--shards",
                3,
                "--out",
                world / "shards",
                "--quiet",
            ),
            "rows": [parquet(each) for each in sorted((world / "shards").glob("*.parquet"))],
        },
    )
    yield (
        "evaluate",
        lambda: world.command(
            "evaluate", world / "run-linear" / "predictions.parquet", "--by-label", "--quiet"
        ),
    )
    yield (
        "evaluate, intervals",
        lambda: world.command(
            "evaluate", world / "run-mlp" / "predictions.parquet", "--intervals", "--quiet"
        ),
    )
    yield "evaluate shards", lambda: world.command("evaluate", world / "shards", "--quiet")
    yield (
        "compare",
        lambda: world.command(
            *("compare", path, "--losses", "bce,asl", "--seeds", 1, "--model", "mlp"),
            *("--epochs", 2, "--out", world / "compared", "--quiet"),
        ),
    )
    yield "export", lambda: world.command("export", world / "run-mlp", "--out", world / "mlp.onnx")
    yield "check run", lambda: world.command("check", world / "run-mlp", "--quiet")
    yield "load and predict", lambda: loaded(world / "run-mlp", path)
    for model in ("linear", "mlp", "auto"):
        yield f"CredibleClassifier {model}", lambda model=model: classifier(model)
    yield "CalibratedMultiLabel", calibrated_estimator
    yield "folds", folds


def loaded(run: Path, path: Path) -> Any:
    """Probabilities of the rows of a table by a run that is read again."""
    import credibly as cr

    rows = cr.data.load(str(path))
    found = cr.load(run).predict(rows.part("test"))
    return {"probabilities": tidy(found.probabilities), "ids": len(found.ids)}


def matrix() -> tuple[np.ndarray, np.ndarray]:
    """Features and targets for the scikit-learn estimators."""
    import credibly as cr

    rows = cr.data.synthetic(260, num_labels=4, num_features=6, seed=2)
    return np.asarray(rows.features), np.asarray(rows.targets)


def classifier(model: str) -> Any:
    """Probabilities and sets of a fitted ``CredibleClassifier``."""
    import credibly as cr

    features, targets = matrix()
    fitted = cr.CredibleClassifier(model=model)
    fitted.fit(features[:200], targets[:200])
    return {
        "probabilities": tidy(np.asarray(fitted.predict_proba(features[200:]))),
        "sets": tidy(np.asarray(fitted.predict_sets(features[200:], average_size=1.5))),
    }


def calibrated_estimator() -> Any:
    """Probabilities of a forest, calibrated."""
    from sklearn.ensemble import RandomForestClassifier

    import credibly as cr

    features, targets = matrix()
    fitted = cr.CalibratedMultiLabel(RandomForestClassifier(20, random_state=0))
    return tidy(np.asarray(fitted.fit(features, targets).predict_proba(features[:60])))


def folds() -> Any:
    """Rows of each fold."""
    import credibly as cr

    features, targets = matrix()
    return [
        tidy(np.asarray(test)) for _, test in cr.data.StratifiedFolds(5).split(features, targets)
    ]


def files(world: World) -> Calls:
    """Predictions files: import, calibrate, evaluate, sets, search, review. No training."""
    source = data.scores(world.folder)
    record = data.predictions()
    record.write(world / "p.parquet")
    held_out = data.predictions(seed=8)
    held_out.write(world / "held-out.parquet")
    yield "written predictions", lambda: world.files("p.parquet")
    yield (
        "evaluate",
        lambda: world.command("evaluate", world / "p.parquet", "--by-label", "--quiet"),
    )
    yield (
        "evaluate, intervals",
        lambda: world.command("evaluate", world / "p.parquet", "--intervals", "--quiet"),
    )
    yield (
        "evaluate, few bins",
        lambda: world.command(
            "evaluate", world / "p.parquet", "--bins", 5, "--min-count", 3, "--quiet"
        ),
    )
    for method in ("default", "none", "temperature", "affine", "beta", "per-label", "isotonic"):
        yield f"calibrate {method}", lambda method=method: calibrated(world, source, method)
    yield (
        "calibrate, apply",
        lambda: {
            "printed": world.command(
                *("calibrate", source, "--apply", world / "map-affine.json", "--quiet"),
                *("--out", world / "applied.parquet"),
            ),
            "columns": parquet(world / "applied.parquet"),
        },
    )
    yield (
        "import",
        lambda: {
            "printed": world.command(
                *("import", source, "--as", "logits", "--loss", "asl", "--quiet"),
                *("--out", world / "imported.parquet"),
            ),
            "columns": parquet(world / "imported.parquet"),
        },
    )
    for name, flags in RULES.items():
        yield (
            f"sets, {name}",
            lambda name=name, flags=flags: {
                "printed": world.command(
                    *("sets", world / "p.parquet", "--fit-on", world / "held-out.parquet", *flags),
                    *("--out", world / f"sets {name}.csv", "--quiet"),
                ),
                **world.files(f"sets {name}.csv"),
            },
        )
    yield (
        "sets, a share fitted",
        lambda: {
            "printed": world.command(
                *("sets", world / "p.parquet", "--recall", "0.8", "--guarantee", "0.2"),
                *("--out", world / "sets.parquet", "--quiet"),
            ),
            "columns": parquet(world / "sets.parquet"),
        },
    )
    for query in ("+dog -beach", "(dog | cat) & !fork", "+dog +cat -fork -apple"):
        yield (
            f"search {query}",
            lambda query=query: world.command(
                "search", world / "p.parquet", query, "--top", 5, "--quiet"
            ),
        )
    yield (
        "review",
        lambda: {
            "printed": world.command(
                review(), world / "p.parquet", "--out", world / "queue.csv", "--top", 20, "--quiet"
            ),
            **world.files("queue.csv"),
        },
    )
    yield "check", lambda: world.command("check", world / "p.parquet", "--quiet")
    for loss in ("spa", "asl", "twl", "softmax", "avgk"):
        yield f"audit {loss}", lambda loss=loss: world.command("audit", loss)
    yield "metrics", lambda: measured(record)
    yield "pipeline", lambda: piped(world, record)
    yield "calibrators", lambda: calibrators(record)


def calibrated(world: World, source: Path, method: str) -> Any:
    """Printed table, map and file of ``credibly calibrate``."""
    flags = [] if method == "default" else ["--method", method]
    names = f"calibrated-{method}.parquet", f"map-{method}.json"
    printed = world.command(
        *("calibrate", source, "--loss", "bce", *flags, "--quiet"),
        *("--out", world / names[0], "--save", world / names[1]),
    )
    return {"printed": printed, "columns": parquet(world / names[0])}


def measured(record: Any) -> Any:
    """Every metric function on one set of rows."""
    from credibly import metrics

    p, y = np.asarray(record.probabilities, float), np.asarray(record.targets)
    sets, hard, top = p >= 0.4, np.maximum(y, 0), np.argsort(-p, axis=1, kind="stable")
    functions = {
        "average_precision": lambda: metrics.average_precision(p, y),
        "sample_average_precision": lambda: metrics.sample_average_precision(p, y),
        "mean_average_precision": lambda: metrics.mean_average_precision(p, y),
        "ranking_loss": lambda: metrics.ranking_loss(p, y),
        "one_error": lambda: metrics.one_error(p, y),
        "coverage_error": lambda: metrics.coverage_error(p, y),
        **{
            kind: lambda kind=kind: metrics.calibration_error(p, y, kind=kind)
            for kind in ("ace", "mce", "ece")
        },
        "log_loss": lambda: metrics.log_loss(p, y),
        "brier": lambda: metrics.brier(p, y),
        "precision": lambda: metrics.precision(sets, y),
        "recall": lambda: metrics.recall(sets, y),
        "f1": lambda: metrics.f1(sets, y),
        "top_k_f1": lambda: metrics.top_k_f1(p, y),
        "hamming": lambda: metrics.hamming(sets, y),
        "exact_match": lambda: metrics.exact_match(sets, y),
        "set_size": lambda: metrics.set_size(sets),
        "precision_at_k": lambda: metrics.precision_at_k(top, hard, k=3),
        "ndcg_at_k": lambda: metrics.ndcg_at_k(top, hard, k=3),
        "recall_at_k": lambda: metrics.recall_at_k(top, hard, k=3),
        "retrieval_map": lambda: vars_of(metrics.retrieval_map(p, y)),
        "summary": lambda: metrics.summary(p, y),
        "zero float32": lambda: metrics.log_loss(
            np.array([[0.0, 0.5]], np.float32), np.array([[1, 0]])
        ),
    }
    return {name: tidy(attempt(function)) for name, function in functions.items()}


def attempt(function: Any) -> Any:
    """Return the result, or the name of the error that is raised instead."""
    try:
        return function()
    except Exception as error:
        return f"refused: {type(error).__name__}"


def vars_of(value: Any) -> Any:
    """Return a result as a document."""
    return value.to_dict() if hasattr(value, "to_dict") else vars(value)


def piped(world: World, record: Any) -> Any:
    """A pipeline fitted, written, read and applied."""
    import credibly as cr

    scores, targets = np.asarray(record.scores), np.asarray(record.targets)
    pipeline = cr.Pipeline("asl", cr.calibrate.Affine(), cr.decide.AverageSize(2))
    pipeline.fit(scores, targets)
    pipeline.write(world / "pipeline.json")
    read = cr.Pipeline.read(world / "pipeline.json")
    return {
        "log-odds": tidy(np.asarray(read.log_odds(scores))),
        "probabilities": tidy(np.asarray(read.probabilities(scores))),
        "sets": tidy(np.asarray(read.sets(scores))),
    }


def calibrators(record: Any) -> Any:
    """Every calibrator fitted on one set of rows."""
    import credibly as cr

    log_odds, targets = 2 * np.asarray(record.scores, float) + 1, np.asarray(record.targets)
    kinds = ("Identity", "Temperature", "Affine", "Beta", "PerLabel", "Isotonic")
    return {
        kind: tidy(getattr(cr.calibrate, kind)().fit(log_odds, targets).transform(log_odds))
        for kind in kinds
    }


def images(world: World) -> Calls:
    """Embedded digits: a small network of images."""
    import credibly as cr

    rows = cr.data.load("digits")
    yield "rows", lambda: {"targets": tidy(rows.targets), "images": tidy(np.asarray(rows.images))}
    few = world / "few.npz"
    np.savez(
        few,
        images=np.asarray(rows.images)[:360],
        targets=np.asarray(rows.targets)[:360],
        split=np.arange(360) % 3,
    )
    yield (
        "train cnn",
        lambda: trained(world, few, "run", "--model", "cnn", "--epochs", 2, "--loss", "spa"),
    )
    yield (
        "train cnn, shifted",
        lambda: trained(
            *(world, few, "shifted", "--model", "cnn", "--epochs", 1, "--loss", "bce"),
            *("--augment", "shift", "--calibrate", "affine"),
        ),
    )
    yield (
        "evaluate",
        lambda: world.command("evaluate", world / "run" / "predictions.parquet", "--quiet"),
    )
    yield (
        "predict",
        lambda: {
            "printed": world.command(
                "predict",
                world / "run",
                few,
                "--part",
                "all",
                "--out",
                world / "all.parquet",
                "--quiet",
            ),
            "columns": parquet(world / "all.parquet"),
        },
    )


def texts(world: World) -> Calls:
    """Texts in a JSONL file."""
    path = data.texts(world.folder)
    yield "train tfidf", lambda: trained(world, path, "run", "--model", "tfidf")
    yield "train auto", lambda: trained(world, path, "auto")
    yield (
        "predict",
        lambda: {
            "printed": world.command(
                "predict", world / "run", path, "--out", world / "all.parquet", "--quiet"
            ),
            "columns": parquet(world / "all.parquet"),
        },
    )


def top(world: World) -> Calls:
    """Files that hold the most probable labels of each row, and sparse rows."""
    data.top_labels().write(world / "top.parquet")
    path = data.many_labels(world.folder)
    yield "written", lambda: world.files("top.parquet")
    yield "evaluate", lambda: world.command("evaluate", world / "top.parquet", "--quiet")
    yield (
        "evaluate, intervals",
        lambda: world.command("evaluate", world / "top.parquet", "--intervals", "--quiet"),
    )
    yield (
        "search",
        lambda: world.command(
            "search", world / "top.parquet", "+label-3 -label-5", "--top", 5, "--quiet"
        ),
    )
    yield (
        "sets, threshold",
        lambda: {
            "printed": world.command(
                *("sets", world / "top.parquet", "--threshold", "0.5"),
                *("--out", world / "sets.csv", "--quiet"),
            ),
            **world.files("sets.csv"),
        },
    )
    yield (
        "sets, average size",
        lambda: {
            "printed": world.command(
                *("sets", world / "top.parquet", "--average-size", "2"),
                *("--out", world / "sized.csv", "--quiet"),
            ),
            **world.files("sized.csv"),
        },
    )
    yield (
        "calibrate",
        lambda: {
            "printed": world.command(
                *("calibrate", world / "top.parquet", "--method", "affine"),
                *("--out", world / "calibrated.parquet", "--quiet"),
            ),
            "columns": parquet(world / "calibrated.parquet"),
        },
    )
    yield (
        "review",
        lambda: world.command(
            review(), world / "top.parquet", "--out", world / "queue.csv", "--top", 20, "--quiet"
        ),
    )
    yield (
        "train sparse features",
        lambda: trained(world, f"xc:{path}", "run", "--model", "linear", "--test", 0.3),
    )


def joint(world: World) -> Calls:
    """Labels that depend on each other."""
    data.predictions().write(world / "test.parquet")
    data.predictions(seed=8).write(world / "held-out.parquet")
    model = world / "joint.json"
    yield (
        "fit",
        lambda: {
            "printed": world.command(
                "joint", "fit", world / "held-out.parquet", "--out", model, "--quiet"
            ),
            **world.files("joint.json"),
        },
    )
    for query in ("+dog +cat", "+dog -cat -fork", "(dog | cat) & !beach"):
        yield (
            f"search {query}",
            lambda query=query: world.command(
                *("search", world / "test.parquet", query, "--joint", "--joint-from", model),
                *("--also", 3, "--top", 5, "--quiet"),
            ),
        )
    yield (
        "evaluate",
        lambda: world.command("evaluate", world / "test.parquet", "--joint-from", model, "--quiet"),
    )
    for name, rule in {
        "coverage": ["--joint-coverage", "0.8"],
        "most probable": ["--most-probable"],
    }.items():
        yield (
            f"sets, {name}",
            lambda name=name, rule=rule: {
                "printed": world.command(
                    *("sets", world / "test.parquet", *rule, "--joint-from", model),
                    *("--fit-on", world / "held-out.parquet"),
                    *("--out", world / f"{name}.csv", "--quiet"),
                ),
                **world.files(f"{name}.csv"),
            },
        )


def spark(world: World) -> Calls:
    """The same commands on Spark, which needs Java and pyspark."""
    from importlib.util import find_spec
    from shutil import which

    if find_spec("pyspark") is None or which("java") is None:
        return
    record = data.predictions()
    (world / "shards").mkdir()
    for number in range(2):
        record[np.arange(number, len(record), 2)].write(world / "shards" / f"{number}.parquet")
    shards, flags = world / "shards", ["--engine", "spark", "--quiet"]
    yield "evaluate", lambda: world.command("evaluate", shards, *flags)
    yield "search", lambda: world.command("search", shards, "+dog -beach", "--top", 5, *flags)
    yield (
        "sets",
        lambda: world.command("sets", shards, "--average-size", 2, "--out", world / "sets", *flags),
    )
    yield (
        "review",
        lambda: world.command(review(), shards, "--top", 5, "--out", world / "queue.csv", *flags),
    )


def stored(world: World) -> Calls:
    """Evaluation sets, where ``CREDIBLY_DATA`` names their folder."""
    del world
    root = Path(os.environ.get("CREDIBLY_DATA", ""))
    for name in ("emotions.npz", "scene.npz"):
        if os.environ.get("CREDIBLY_DATA") and (root / name).exists():
            yield f"linear on {name}", lambda name=name: stored_linear(root / name)


def stored_linear(path: Path) -> Any:
    """Log-odds of the linear estimator on a stored set."""
    import credibly as cr

    rows = cr.data.load(str(path))
    train, test = rows.part("train"), rows.part("test")
    fitted = cr.CredibleClassifier(model="linear").fit(train.features, np.asarray(train.targets))
    return tidy(np.asarray(fitted.predict_proba(test.features)))


DATA_SETS = {
    "tables": tables,
    "files": files,
    "images": images,
    "texts": texts,
    "top": top,
    "joint": joint,
    "spark": spark,
    "stored": stored,
}
