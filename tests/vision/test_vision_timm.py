"""timm and transformers networks, in an environment of their own (`make test-vision`)."""

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.data import Data

pytest.importorskip("timm", reason="runs in make test-vision")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, not ours

NETWORKS = {
    "timm:resnet18": 64,
    "timm:ecaresnet50t": 64,
    "timm:vit_base_patch32_224": 64,
}
each_network = pytest.mark.parametrize(("name", "size"), NETWORKS.items(), ids=NETWORKS)


def photos(size, rows=8):
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, size=(rows, size, size, 3), dtype=np.uint8)
    targets = (generator.random((rows, 4)) < 0.4).astype(np.float32)
    targets[0], targets[1] = 0, -1
    split = np.array([0, 0, 0, 0, 2, 2, 1, 1])
    labels = ["ant", "bee", "cat", "dog"]
    return Data(labels, targets, images=images, split=split, augmentation="crop+flip")


@each_network
def test_one_step_changes_head_and_backbone(name, size):
    torch.manual_seed(0)
    data = photos(size)
    model = cr.models.build(name, data).train()
    inputs, targets, _ = data.part("train").torch_dataset(train=True).batch(range(4))
    first = next(model.backbone.parameters())
    before = [first.detach().clone(), model.head.weight.detach().clone()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    known = targets >= 0
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        model(inputs)[known], targets[known]
    )
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert not torch.equal(first, before[0])
    assert not torch.equal(model.head.weight, before[1])
    assert model.standardize.mean.shape == (3,)
    assert not torch.equal(model.standardize.mean, torch.zeros(3))


def test_frozen_features_are_cached(tmp_path):
    data = photos(64)
    model = cr.models.build("timm:resnet18", data, frozen=True)
    assert cr.models.cache_features(model, data, tmp_path).features.shape == (8, 512)


def test_weights_of_a_whole_network_load_without_its_classifier(tmp_path):
    import timm
    from safetensors.torch import save_file

    whole = timm.create_model("resnet18", num_classes=7)
    save_file(whole.state_dict(), tmp_path / "w.safetensors")
    model = cr.models.build("timm:resnet18", photos(64), weights=tmp_path / "w.safetensors")
    assert torch.equal(model.backbone.conv1.weight, whole.conv1.weight)


def test_an_unknown_network_is_named():
    with pytest.raises(cr.InputError, match=r"timm has no model 'resnet81'\. Did you mean"):
        cr.models.build("timm:resnet81", (3, 64, 64), 4)


@each_network
def test_train_and_export(name, size, tmp_path):
    """One epoch of the real loop, and an ONNX file that gives the same probabilities."""
    pytest.importorskip("onnxruntime", reason="the export extra is not installed")
    import onnxruntime

    data = photos(size)
    settings = cr.train.recipe(loss="spa", model=name, epochs=1, batch_size=4, calibrate="none")
    run = cr.train.fit(data, settings, folder=tmp_path / "run")
    run = cr.load(tmp_path / "run")
    cr.train.export(run, tmp_path / "m.onnx")
    test = data.part("test")
    inputs = test.torch_dataset(train=False).batch(range(2))[0].numpy()
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    found = dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, {session.get_inputs()[0].name: inputs}),
            strict=True,
        )
    )
    expected = run.predict(test).probabilities
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-4)


def test_transformers_model_from_a_local_folder(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
    )
    source = transformers.ViTModel(config)
    source.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3]}'
    )
    data = photos(32)
    fresh = cr.models.build(f"hf:{tmp_path}", data)
    loaded = cr.models.build(f"hf:{tmp_path}", data, weights="pretrained").eval()
    inputs = data.torch_dataset(train=False).batch(range(3))[0]
    assert fresh(inputs).shape == (3, 4)
    assert loaded.standardize.mean.tolist() == pytest.approx([0.5, 0.4, 0.3])
    standard = (inputs - loaded.standardize.mean.view(3, 1, 1)) / loaded.standardize.scale.view(
        3, 1, 1
    )
    expected = source.eval()(pixel_values=standard).pooler_output
    torch.testing.assert_close(loaded.features(inputs), expected)
    with pytest.raises(cr.InputError, match="must be a folder with"):
        cr.models.build(f"hf:{tmp_path / 'nowhere'}", data)


def test_the_transfer_protocol_solves_a_linear_layer_on_cached_features(tmp_path):
    """`--preset twl-probe --model timm:NAME --probe`: L-BFGS, 45 weights."""
    generator = np.random.default_rng(1)
    classes = np.arange(48) % 3
    images = generator.integers(0, 60, size=(48, 64, 64, 3), dtype=np.uint8)
    images[np.arange(48), :, :, classes] += 120
    split = np.repeat([0, 2, 1], [30, 9, 9])
    data = Data(
        ["red", "green", "blue"], np.eye(3, dtype=np.float32)[classes], images=images, split=split
    )
    recipe = dict(cr.papers.preset("twl-probe").settings) | {
        "model": "timm:resnet18",
        "probe": True,
        "image_size": 64,
        "loss": "softmax",
    }
    run = cr.train.fit(data, cr.train.recipe(**recipe), folder=tmp_path / "run")
    assert (tmp_path / "run" / "features").exists()
    assert run.metrics["mAP@y"] > 0.9
