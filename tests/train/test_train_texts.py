"""Training on texts with tfidf: from a file to probabilities, resumed, exported, refused."""

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

import credibly as cr
from credibly.cli import main
from credibly.data import Data
from credibly.train import linear, recipe

TEST = 1  # what `split` says of a row

WORDS = ["red", "green", "dog", "cat", "東京都", "привет", "tree", "of", "the", "car"]
LABELS = ["red", "dog", "東京都", "never"]


def comments(rows=240, columns=1, seed=0):
    """Texts whose words are the labels, with empty texts, unknown and soft targets."""
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, 5)) for _ in range(rows)]
    texts[3], texts[7] = "", "of the " * 3000
    targets = np.array([[float(label in text) for label in LABELS] for text in texts])
    targets[5], targets[6, 0], targets[8, 1] = -1, -1, 0.3
    split = np.array([0, 0, 0, 1, 2])[np.arange(rows) % 5]
    matrix = [[text, text[::-1]][:columns] for text in texts]
    return Data(LABELS, targets, texts=matrix, split=split, source="comments")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return cr.train.fit(comments(), folder=tmp_path_factory.mktemp("text") / "run")


def test_tfidf_is_the_default_and_learns_its_words(run):
    assert isinstance(run.recipe, cr.train.TextLinear)
    assert run.metrics["mAP@y"] > 0.99
    p = run.predict(["a red car", "東京都 tree", ""]).probabilities
    assert p[0, 0] > 0.9 > 0.1 > p[0, 1]
    assert p[1, 2] > 0.9 > 0.1 > p[1, 0]
    assert np.isfinite(p).all()


def test_a_run_loads_without_pickle_and_predicts_the_same(run):
    files = {path.suffix for path in run.folder.rglob("*") if path.is_file()}
    assert files <= {".toml", ".json", ".jsonl", ".safetensors", ".parquet"}
    again, rows = cr.load(run.folder), comments(seed=1)
    assert np.array_equal(again.predict(rows).probabilities, run.predict(rows).probabilities)
    terms = json.loads((run.folder / "encoder" / "vocabulary.json").read_text())["columns"][0]
    assert {"東京", "red"} <= set(terms)


def test_the_weights_of_terms_are_those_of_scikit_learn():
    texts = np.array([["the cat sat"], ["the dog, the cat"], [""], ["dog dog dog"]], dtype=object)
    data = Data(["x"], np.eye(4)[:, :1], texts=texts, split=np.zeros(4))
    model = cr.train.fit(data, cr.train.TextLinear(l2=1.0, calibrate="none")).model
    ours = model.encode(texts).matrix.toarray()
    theirs = TfidfVectorizer(sublinear_tf=True).fit_transform(texts[:, 0]).toarray()
    assert np.allclose(ours, theirs, atol=1e-6)


def test_the_gradient_of_sparse_rows_is_that_of_dense_ones():
    rows = comments(30)
    model = cr.train.fit(rows, recipe("tfidf", epochs=1)).model.float()
    encoded = model.encode(rows.texts)
    torch.nn.init.normal_(model.head.weight)
    weight = model.head.weight
    pull = torch.randn(30, len(LABELS))
    dense = torch.from_numpy(encoded.matrix.toarray())
    gradients = []
    for inputs in (dense, encoded.batch(np.arange(30))):
        weight.grad = None
        scores = model(inputs)
        (scores * pull).sum().backward()
        gradients.append((scores.detach(), weight.grad.clone()))
    for scores, gradient in gradients[1:]:
        assert torch.allclose(scores, gradients[0][0], atol=1e-5)
        assert torch.allclose(gradient, gradients[0][1], atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"folds": 3}, {"epochs": 3}], ids=str)
def test_an_interrupted_run_goes_on_to_the_same_bits(settings, tmp_path):
    rows, wanted = comments(), recipe(checkpoint_seconds=0.0, **settings)
    rows = dataclasses.replace(rows, drawn="folds" in settings)
    whole = cr.train.fit(rows, wanted, folder=tmp_path / "whole")

    class Stop(cr.train.Callback):
        def on_update(self, done, total):
            if done == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cr.train.fit(rows, wanted, folder=tmp_path / "cut", callback=Stop())
    resumed = cr.train.fit(rows, wanted, folder=tmp_path / "cut", resume=True)
    for name in ("model.safetensors", "predictions.parquet"):
        one, two = (folder / name for folder in (whole.folder, resumed.folder))
        assert one.read_bytes() == two.read_bytes(), name


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.2, "epochs": 2},
        {"loss": "role", "average_size": 2.0, "epochs": 2},
        {"loss": "quasibinary", "epochs": 2},
    ],
    ids=str,
)
def test_steps_train_what_the_solver_cannot(settings, tmp_path):
    run = cr.train.fit(comments(), recipe(**settings), folder=tmp_path / "run")
    assert np.isfinite(run.predict(["red", ""]).probabilities).all()


@pytest.mark.parametrize("loss", ["bce", "softmax", "spa", "twl"])
def test_folds_train_on_all_rows_and_calibrate_on_rows_not_seen(loss, tmp_path, monkeypatch):
    """The calibrator is that of out-of-fold scores; the model has all rows."""
    rows = comments(120)
    single = np.eye(2)[(rows.targets[:, 0] == 1).astype(int)]
    targets = single if loss == "softmax" else rows.targets[:, :2]
    rows = Data(["a", "b"], targets, texts=rows.texts, split=rows.split, drawn=True)
    solutions, solve = [], linear.solve
    monkeypatch.setattr(
        linear, "solve", lambda *a, **k: solutions.append(solve(*a, **k)) or solutions[0]
    )
    run = cr.train.fit(rows, recipe(loss=loss, folds=4), folder=tmp_path / "run")
    train = rows.take(np.flatnonzero(rows.split != TEST))
    assert run.data["train_rows"] == len(train)
    (found,) = solutions
    own = run.scores(train).numpy()
    encoded = run.model.encode(train.texts).matrix
    np.testing.assert_allclose(own, found.layer.scores(encoded), atol=1e-4)
    assert (np.abs(found.scores - own).max(axis=1) > 1e-4).mean() > 0.9
    again = cr.Pipeline(run.criterion)
    again.calibrate(found.scores, train.targets, coding="unknown")
    assert (again.link, again.calibrator.state()) == (run.pipeline.link, run.calibrator.state())


@pytest.mark.parametrize("given", [0, 1, 2])
def test_rows_that_the_file_holds_out_stay_held_out(given, tmp_path):
    """Folds are the default only where the rows to hold out were drawn; else they are refused."""
    rows = comments()
    parts = ["train", "test", "calibration"]
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for text, part in zip(rows.texts[:, 0], rows.split, strict=True):
            name = parts[part] if given == 2 or (given == 1 and part < 2) else "train"
            labels = [label for label in LABELS if label in text]
            file.write(json.dumps({"text": text, "labels": labels, "split": name}) + "\n")
    data = cr.data.load(path)
    run = cr.train.fit(data, folder=tmp_path / "run")
    assert run.recipe.folds == (0 if given == 2 else 3)
    assert run.data["train_rows"] == (data.split != 1).sum() - 48 * (given == 2)
    if given == 2:
        run.check_part(data, "calibration")
        with pytest.raises(cr.InputError, match="has held-out rows"):
            cr.train.fit(data, recipe(folds=3), folder=tmp_path / "folds")
    else:
        with pytest.raises(cr.InputError, match="--folds 0"):
            run.check_part(data, "calibration")
        held = cr.train.fit(data, recipe(folds=0), folder=tmp_path / "held")
        held.check_part(data, "calibration")
        assert held.data["train_rows"] == (data.split == 0).sum()


def test_pairs_have_a_vocabulary_for_each_column(tmp_path):
    run = cr.train.fit(comments(columns=2), recipe(), folder=tmp_path / "run")
    assert len(cr.load(run.folder).model.vocabularies) == 2
    assert run.predict([["red", "der"], ["dog", "god"]]).probabilities.shape == (2, 4)
    with pytest.raises(cr.InputError, match=r"shape \(2,\).*has \(1,\)"):
        run.predict(["red"])


def test_export_takes_weights_of_terms_and_says_so(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    about = cr.train.export(run, tmp_path / "m.onnx")
    assert "vocabulary" in about["encoder"]
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    texts = np.array([["the red dog"], ["tree"]], dtype=object)
    dense = run.model.encode(texts).matrix.toarray()
    found = session.run(["probabilities"], {"inputs": dense})[0]
    assert np.allclose(found, run.predict(texts.tolist()).probabilities, atol=1e-5)


def test_one_command_trains_on_a_file(tmp_path, capsys):
    rows = comments(200)
    table = ["comment,red,dog"]
    table += [
        f'"{text}",{int(a > 0.5)},{int(b > 0.5)}'
        for (text,), (a, b, *_) in zip(rows.texts, np.maximum(rows.targets, 0), strict=True)
    ]
    (tmp_path / "c.csv").write_text("\n".join(table), encoding="utf-8")
    out = tmp_path / "run"
    options = ["--text", "comment", "--labels", "red,dog", "--out", str(out), "--quiet"]
    assert main(["train", str(tmp_path / "c.csv"), *options]) == 0
    new = tmp_path / "new.jsonl"
    new.write_text('{"comment": "a red dog"}\n{"comment": ""}\n', encoding="utf-8")
    done = [
        "predict",
        str(out),
        str(new),
        "--text",
        "comment",
        "--out",
        str(tmp_path / "p.parquet"),
    ]
    assert main([*done, "--quiet"]) == 0
    assert cr.Predictions.read(tmp_path / "p.parquet").probabilities[0].min() > 0.5
    capsys.readouterr()


def test_what_texts_cannot_do_is_refused(tmp_path):
    rows = comments()
    for settings, words in {
        "mixup": (recipe(mixup=0.2), "mixes features or images"),
        "mlp": (recipe(model="mlp"), "one for text: tfidf"),
        "features": (recipe(model="tfidf", frozen=True, features=True), "tfidf has no backbone"),
        "views": (recipe(views="flip"), "needs images"),
    }.values():
        with pytest.raises(cr.InputError, match=words):
            cr.train.fit(rows, settings, folder=tmp_path / "run")
    with pytest.raises(cr.InputError, match="tfidf takes texts"):
        cr.train.fit(cr.data.synthetic(100), recipe(model="tfidf"), folder=tmp_path / "run")
    blank = Data(["x"], np.arange(20)[:, None] % 2, texts=[""] * 20, split=np.arange(20) % 3)
    with pytest.raises(cr.InputError, match="texts with words; got none"):
        cr.train.fit(blank, folder=tmp_path / "run")


def test_a_damaged_vocabulary_is_named(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()  # which would name the file first
    file = tmp_path / "run" / "encoder" / "vocabulary.json"
    for content, words in {
        "{}": "must hold `columns`",
        '{"columns": [["a", "a"]]}': "different terms",
        '{"columns": [["a", "b"]]}': "does not fit",
    }.items():
        file.write_text(content)
        with pytest.raises(cr.InputError, match=words):
            cr.load(tmp_path / "run")
    os.remove(file)
    with pytest.raises(cr.InputError, match=r"vocabulary\.json"):
        cr.load(tmp_path / "run")


# A network of the user's own --------------------------------------------------------------------

OWN = """
import json

import numpy as np
import torch
from credibly.data.token_rows import TokenRows


class Both(torch.nn.Module):
    def __init__(self, shape, num_scores):
        super().__init__()
        self.words = {}
        self.embed = torch.nn.Embedding(50, 8, padding_idx=0)
        self.head = torch.nn.Linear(8 + shape[2], num_scores)

    def encode(self, texts):
        rows = [text.split() for text in texts[:, 0]]
        for word in (word for row in rows for word in row):
            self.words.setdefault(word, len(self.words) % 49 + 1)
        ids = np.array([self.words[word] for row in rows for word in row])
        starts = np.cumsum([0, *(len(row) for row in rows)])
        return TokenRows({"input_ids": ids}, starts, {"input_ids": 0})

    def write_encoder(self, folder):
        (folder / "words.json").write_text(json.dumps(self.words))

    def read_encoder(self, folder):
        self.words = json.loads((folder / "words.json").read_text())

    def forward(self, inputs):
        question = self.embed(inputs["input_ids"]).mean(dim=1)
        return self.head(torch.cat([question, inputs["visual_feats"].mean(dim=1)], dim=1))


class Deaf(torch.nn.Module):
    def __init__(self, shape, num_scores):
        super().__init__()
"""


def test_a_network_of_ones_own_takes_question_and_regions(tmp_path, monkeypatch):
    sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
    from layout_makers import make_vqa
    from test_data_vqa import write_tsv

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_network.py").write_text(OWN)
    make_vqa(tmp_path / "vqa")
    write_tsv(tmp_path / "regions.tsv")
    data = cr.data.load(
        f"vqa:{tmp_path / 'vqa'}", regions=str(tmp_path / "regions.tsv"), calibration=0.25
    )
    settings = recipe(model="python:own_network:Both", epochs=2, loss="spa")
    run = cr.train.fit(data, settings, folder=tmp_path / "run")
    again = cr.load(tmp_path / "run", allow_python=True)
    test = data.part("test")
    assert np.array_equal(again.predict(test).probabilities, run.predict(test).probabilities)
    with pytest.raises(cr.InputError, match="Both is your own"):
        cr.train.export(run, tmp_path / "x.onnx")
    deaf = recipe(model="python:own_network:Deaf", epochs=2)
    with pytest.raises(cr.InputError, match=r"`encode\(texts\)`.*Deaf lacks one"):
        cr.train.fit(data, deaf, folder=tmp_path / "other")
    with pytest.raises(cr.InputError, match="takes questions with regions"):
        run.predict(["what?"])
