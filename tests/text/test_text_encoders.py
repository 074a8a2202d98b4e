"""hf: text encoders and LXMERT, in an environment of their own: ``make test-text``."""

import importlib.util
import json
import multiprocessing
import os
import shutil
import signal

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.cli import main
from credibly.data import Data
from credibly.papers.datasets.vqa import vqa_counts
from credibly.train import recipe

if importlib.util.find_spec("transformers") is None:
    pytest.skip(
        "transformers is not installed here: its tests run in an environment of their own, "
        "`make test-text`",
        allow_module_level=True,
    )

from small_encoders import WORDS, edit_config, make_bert, make_lxmert, write_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours

LABELS = ["red", "dog", "fish"]


def comments(rows=60, columns=1):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 1 + row % 9)) for row in range(rows)]
    texts[3], texts[7] = "", "dog " * 400
    targets = np.array([[float(label in text) for label in LABELS] for text in texts])
    targets[5], targets[6, 0] = -1, 0.3
    split = np.array([0, 0, 0, 1, 2])[np.arange(rows) % 5]
    pairs = [[text, text[:9]][:columns] for text in texts]
    return Data(LABELS, targets, texts=pairs, split=split, source="comments")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_bert(tmp_path_factory.mktemp("bert") / "model")


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """Questions about constructed images, in the published layouts."""
    from layout_makers import make_vqa
    from test_data_vqa import write_tsv

    root = tmp_path_factory.mktemp("vqa")
    make_vqa(root / "vqa")
    write_tsv(root / "regions.tsv")
    options = {"regions": str(root / "regions.tsv"), "calibration": 0.25}
    return root, cr.data.load(f"vqa:{root / 'vqa'}", **options)


@pytest.fixture(scope="module")
def lxmert(tmp_path_factory):
    return make_lxmert(tmp_path_factory.mktemp("lxmert") / "model")


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("weights", [None, "pretrained"])
def test_an_encoder_trains_and_its_run_stands_alone(bert, tmp_path, columns, weights):
    folder = tmp_path / "moved"
    shutil.copytree(bert, folder)
    rows = comments(columns=columns)
    settings = recipe(model=f"hf:{folder}", weights=weights, epochs=2, batch_size=8)
    run = cr.train.fit(rows, settings, folder=tmp_path / "run")
    shutil.rmtree(folder)  # tokenizer and config are in the run
    again = cr.load(tmp_path / "run")
    new = comments(20, columns)
    assert np.array_equal(again.predict(new).probabilities, run.predict(new).probabilities)
    assert {p.suffix for p in (tmp_path / "run").rglob("*") if p.is_file()} <= {
        *(".toml", ".json", ".jsonl", ".safetensors", ".parquet", ".txt", ".jinja")
    }


def untrained(folder, rows, **options):
    """Return the network of a run that hardly moves its weights."""
    still = {"epochs": 1, "learning_rate": 1e-30, "weight_decay": 0.0, "select": "last"}
    return cr.train.fit(rows, recipe(f"hf:{folder}", **still, **options)).model.eval()


def test_scores_do_not_depend_on_the_batch(bert):
    rows = comments()
    model = untrained(bert, rows, weights="pretrained")
    encoded = model.encode(rows.texts)
    assert encoded.lengths.max() == 64  # cut
    with torch.no_grad():
        whole = model(encoded.batch(np.arange(len(rows))))
        alone = torch.cat([model(encoded.batch(np.array([row]))) for row in range(len(rows))])
    assert torch.allclose(whole, alone, atol=1e-5)


def test_pooling_is_the_mean_over_real_tokens(bert):
    from transformers import AutoModel, AutoTokenizer

    rows = comments()
    model = untrained(bert, rows, weights="pretrained")
    tokenizer = AutoTokenizer.from_pretrained(str(bert))
    theirs = AutoModel.from_pretrained(str(bert)).eval()
    with torch.no_grad():
        tokens = tokenizer(["red dog"], return_tensors="pt")
        expected = theirs(**tokens).last_hidden_state.mean(dim=1)
        ours = model.features(model.encode(np.array([["red dog"]], object)).batch(np.array([0])))
    assert torch.allclose(ours, expected, atol=1e-6)


STEPS = {"frozen": True, "features": True, "epochs": 3, "batch_size": 8}


@pytest.mark.parametrize("options", [STEPS, {"probe": True}], ids=["steps", "probe"])
def test_cached_embeddings_train_the_head_of_a_frozen_encoder(bert, tmp_path, options):
    settings = recipe(f"hf:{bert}", weights="pretrained", **options)
    rows = comments()
    run = cr.train.fit(rows, settings, folder=tmp_path / "run")
    assert list((tmp_path / "run" / "features").glob("*.npy"))
    cached = np.load(next((tmp_path / "run" / "features").glob("*.npy")))
    model = untrained(bert, rows, weights="pretrained")
    with torch.no_grad():
        direct = model.features(model.encode(rows.texts).batch(np.arange(len(rows)))).numpy()
    assert np.allclose(cached, direct, atol=1e-5)
    assert np.isfinite(run.predict(["red", ""]).probabilities).all()


def test_export_takes_tokens_and_says_so(bert, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    settings = recipe(model=f"hf:{bert}", weights="pretrained", epochs=1)
    run = cr.train.fit(comments(), settings, folder=tmp_path / "run")
    about = cr.train.export(run, tmp_path / "m.onnx")
    assert "tokenizer stays outside" in about["encoder"]
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    texts = [["the red dog"], ["tree"], [""]]
    tokens = run.model.encode(np.array(texts, object)).batch(np.arange(3))
    inputs = {name: tokens[name].numpy() for name in about["inputs"]}
    found = session.run(["probabilities"], inputs)[0]
    assert np.allclose(found, run.predict(texts).probabilities, atol=1e-4)


# What is wrong with a folder -------------------------------------------------------------------


def without_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)


BROKEN = {
    "no config": (lambda f: (f / "config.json").unlink(), "config.json"),
    "no tokenizer": (without_tokenizer, "tokenizer"),
    "another model's tokenizer": (
        lambda f: write_tokenizer(f, [f"word{n}" for n in range(500)]),
        "tokenizer belongs to another model",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors"),
    "weights of another size": (lambda f: edit_config(f, hidden_size=8), "fits its config"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_is_refused_by_name(case, bert, tmp_path):
    change, words = BROKEN[case]
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    change(folder)
    settings = recipe(model=f"hf:{folder}", weights="pretrained", epochs=1)
    with pytest.raises(cr.InputError, match=words):
        cr.train.fit(comments(), settings, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_texts_that_a_damaged_tokenizer_cannot_read_are_refused(bert, tmp_path):
    for change, words in (
        (lambda vocabulary: vocabulary.pop("[UNK]"), r"Missing \[UNK\] token"),
        (lambda vocabulary: vocabulary.update(red=10**6), "past the .* of `vocab_size`"),
    ):
        folder = tmp_path / words[:4]
        shutil.copytree(bert, folder)
        file = json.loads((folder / "tokenizer.json").read_text())
        change(file["model"]["vocab"])
        file["added_tokens"] = []
        (folder / "tokenizer.json").write_text(json.dumps(file))
        rows = comments()
        rows = Data(LABELS, rows.targets, texts=[["red zebra é"]] * len(rows), split=rows.split)
        with pytest.raises(cr.InputError, match=f"must have a tokenizer .*{words}"):
            untrained(folder, rows)


def test_too_many_tokens_are_refused(bert):
    with pytest.raises(cr.InputError, match="at most 64, its positions; got 65"):
        untrained(bert, comments(), max_length=65)


# LXMERT ----------------------------------------------------------------------------------------


def lxmert_settings(folder, **more):
    quick = {"epochs": 1, "batch_size": 4, "loss": "spa", "checkpoint_seconds": 0.0}
    return recipe(model=f"hf:{folder}", **{**quick, **more})


def test_lxmert_trains_one_epoch_on_questions_and_regions(questions, lxmert, tmp_path):
    root, data = questions
    run = cr.train.fit(data, lxmert_settings(lxmert), folder=tmp_path / "run")
    test = data.part("test")
    predictions = cr.load(tmp_path / "run").predict(test)
    counts = vqa_counts(root / "vqa", predictions.ids, predictions.labels)
    assert 0 <= cr.papers.vqa.vqa_accuracy(predictions.probabilities, counts) <= 1
    stored = cr.Predictions.read(run.folder / "predictions.parquet")
    assert np.allclose(stored.probabilities, predictions.probabilities)
    assert np.allclose(stored.targets, test.targets, atol=1e-6)  # soft


def test_regions_matter_to_lxmert(questions, lxmert):
    _, data = questions
    model = untrained(lxmert, data)
    rows = data.encoded_by(model.encode).torch_dataset(train=False)
    inputs = rows.batch([0, 1])[0]
    with torch.no_grad():
        before = model(inputs)
        inputs["visual_feats"] = inputs["visual_feats"] + 1
        after = model(inputs)
    assert not torch.allclose(before, after)


def test_the_preset_of_the_paper_trains_by_the_command(questions, lxmert, tmp_path, capsys):
    root = questions[0]
    command = ["train", f"vqa:{root / 'vqa'}", "--regions", str(root / "regions.tsv")]
    command += ["--preset", "spa-vqa", "--model", f"hf:{lxmert}", "--weights", "none"]
    command += ["--epochs", "1", "--quiet", "--out", str(tmp_path / "run")]
    assert main(command) == 0, capsys.readouterr().err
    found, printed = cr.load(tmp_path / "run").recipe, cr.papers.preset("spa-vqa").settings
    for name in set(printed) - {"model", "weights", "epochs", "probe_first", "fixed_norms"}:
        assert getattr(found, name) == printed[name], name


def _train(root, model, out, kill):
    options = {"regions": str(root / "regions.tsv"), "calibration": 0.25}
    data = cr.data.load(f"vqa:{root / 'vqa'}", **options)

    class Kill(cr.train.Callback):
        def on_update(self, done, total):
            if kill and done == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    settings = lxmert_settings(model, epochs=2)
    cr.train.fit(data, settings, folder=out, resume=True, callback=Kill())


def test_lxmert_goes_on_after_a_kill_to_the_same_bits(questions, lxmert, tmp_path):
    torch.set_num_threads(1)
    context = multiprocessing.get_context("spawn")
    for name, kills in (("whole", [False]), ("killed", [True, False])):
        for kill in kills:
            arguments = (questions[0], lxmert, tmp_path / name, kill)
            process = context.Process(target=_train, args=arguments)
            process.start()
            process.join()
            assert process.exitcode == (-signal.SIGKILL if kill else 0)
    for file in ("model.safetensors", "predictions.parquet"):
        whole, killed = (tmp_path / name / file for name in ("whole", "killed"))
        assert whole.read_bytes() == killed.read_bytes(), file


def test_lxmert_exports(questions, lxmert, tmp_path):
    run = cr.train.fit(questions[1], lxmert_settings(lxmert), folder=tmp_path / "run")
    about = cr.train.export(run, tmp_path / "m.onnx")
    assert {"input_ids", "visual_feats", "visual_pos"} <= set(about["inputs"])
    assert "tokenizer stays outside" in about["encoder"]


def test_texts_alone_and_regions_of_another_width_are_refused(questions, lxmert, bert, tmp_path):
    wide = make_lxmert(tmp_path / "wide", width=2048)
    for data, folder, words in (
        (comments(), lxmert, "takes questions with regions"),
        (questions[1], bert, "takes texts; the data also hold regions"),
        (questions[1], wide, "takes regions of width 2048; those of the data have width 16"),
    ):
        with pytest.raises(cr.InputError, match=words):
            untrained(folder, data)
    with pytest.raises(cr.InputError, match="Name a network that takes both"):
        cr.train.fit(questions[1], folder=tmp_path / "run")
