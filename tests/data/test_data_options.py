"""The table of readers and options is what the readers take, and what the command line offers."""

import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from layout_makers import LAYOUTS, make_coco, make_nuswide, paint, write

import credibly as cr
from credibly import names
from credibly.cli import main
from credibly.data import Data
from credibly.data.readers import EMBEDDED, KINDS, LAYOUT, OPTIONS, SHARED, all_readers
from credibly.data.splits import TEST, TRAIN
from credibly.data.tables import TableLayout

ROOT = Path(__file__).parents[2]

PUBLISHED = [kind for kind in all_readers() if kind not in KINDS]
READERS = {**EMBEDDED, **all_readers()}
each_reader = pytest.mark.parametrize("name", READERS)


def test_the_readers_of_the_papers_are_the_entry_points_of_the_distribution():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["credibly.readers"] == names.READERS


@each_reader
def test_a_reader_documents_each_of_its_own_options(name):
    options = READERS[name].options()
    assert all(option.kind in (bool, int, float, str) for option in options.values())
    if name in PUBLISHED:
        assert all(option.help for option in options.values()), inspect.getdoc(
            READERS[name].function
        )


def test_the_flags_of_the_help_are_the_options_of_the_general_formats():
    declared = {name: option for kind in KINDS.values() for name, option in kind.options().items()}
    assert set(declared) - set(SHARED) == set(OPTIONS)
    for name, option in declared.items():
        listed = SHARED.get(name) or OPTIONS[name]
        assert (listed.kind, listed.many, listed.choices) == (
            option.kind,
            option.many,
            option.choices,
        )


def read_rows(path: Path, *, repeats: int = 1, drop: Literal["a", "b"] | None = None) -> Data:
    """Read a file of one feature per line.

    Args:
        path: the file.
        repeats: how often each row is there.
        drop: what to leave out.
    """
    lines = path.read_text().split() * repeats
    values = np.array([line for line in lines if line != drop], dtype=float)
    return Data(["big"], (values[:, None] > 2).astype(int), features=values[:, None])


@pytest.fixture
def another_package(tmp_path, monkeypatch):
    """Install a distribution that registers ``mine``."""
    info = tmp_path / "packages" / "mine-1.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    write(info / "entry_points.txt", "[credibly.readers]\nmine = test_data_options:read_rows\n")
    monkeypatch.syspath_prepend(info.parent)
    all_readers.cache_clear()
    yield
    all_readers.cache_clear()


@pytest.mark.usefixtures("another_package")
def test_another_package_adds_a_reader_with_its_flags(tmp_path, capsys):
    write(tmp_path / "rows.txt", "\n".join(["1", "2", "3", "4"]))
    source = f"mine:{tmp_path / 'rows.txt'}"
    assert len(cr.data.load(source, repeats=3)) == 12
    with pytest.raises(cr.InputError, match="mine has no option 'year'; it has repeats, drop"):
        cr.data.load(source, year=3)
    with pytest.raises(cr.InputError, match="`repeats` of mine must be a whole number; got 'x'"):
        cr.data.load(source, repeats="x")
    code, _, error = run(
        capsys, "train", source, "--repeats", 12, "--out", tmp_path / "run", *QUICK
    )
    assert (code, error) == (0, "")
    write(tmp_path / "t.toml", f'data = "{source}"\nrepeats = 12\n')
    arguments = ("--config", tmp_path / "t.toml", "--out", tmp_path / "again", *QUICK)
    assert run(capsys, "train", *arguments)[0] == 0
    with pytest.raises(SystemExit):
        main(["train", source, "--help"])
    assert "how often each row is there" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["train", "predict", "compare"])
def test_help_lists_the_options_of_general_formats_alone(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert "--coding" in shown
    own = {option for kind in PUBLISHED for option in all_readers()[kind].options()}
    listed = {flag.replace("-", "_") for flag in re.findall(r"--([\w-]+)", shown)}
    assert not (own - {"labels"}) & listed


def test_the_table_lists_what_a_layout_holds():
    fields = {field.name for field in dataclasses.fields(TableLayout)}
    of_the_model = {"preparation", "to_predict"}
    assert fields - {"first_row"} - of_the_model == set(LAYOUT) == set(KINDS["parquet"].options())


@each_reader
def test_an_option_a_reader_does_not_have_is_named_with_those_it_has(name):
    from credibly.data.loading import check_options

    every = {option for reader in READERS.values() for option in reader.options()}
    for option in every - set(READERS[name].options()):
        with pytest.raises(cr.InputError, match=f"has no option '{option}'; it has .*labels"):
            check_options(name, READERS[name], {option: None})


@pytest.mark.parametrize("kind", all_readers())
def test_every_reader_is_listed_in_the_documentation(kind):
    page = Path(__file__).parents[2] / "docs" / "guide" / "data.md"
    written = [f"`{kind}:PATH`", *(f"`x{ending}`" for ending in all_readers()[kind].endings[:1])]
    assert any(words in page.read_text(encoding="utf-8") for words in written), (
        f"add a row for {written[-1]} to the table of docs/guide/data.md"
    )


@pytest.mark.parametrize("kind", [k for k, reader in all_readers().items() if not reader.endings])
def test_every_published_layout_has_a_tiny_copy(kind):
    assert kind in LAYOUTS or kind == "cifar60+40", (  # made from the copy of cifar100
        f"add make_{kind} to LAYOUTS in tests/data/layout_makers.py"
    )


def test_every_ending_is_read_without_its_kind_and_named_where_none_fits(tmp_path):
    endings = [ending for reader in KINDS.values() for ending in reader.endings]
    with pytest.raises(cr.InputError, match=re.escape(", ".join(endings))):
        cr.data.load(tmp_path / "x.doc")
    for ending in endings:
        with pytest.raises(cr.InputError, match="does not exist"):
            cr.data.load(tmp_path / f"x{ending}")
    for kind in ("coco", "voc"):
        with pytest.raises(cr.InputError, match="data must be one of"):
            cr.data.load(tmp_path / f"x.{kind}")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("labels", "cat,dog", "`labels` must be a list of names"),
        ("ignore", 3, "`ignore` of csv must be a list of texts"),
        ("separator", 3, "`separator` of csv must be text; got 3"),
    ],
)
def test_an_option_of_another_type_is_refused(option, value, words, tmp_path):
    write(tmp_path / "t.csv", "x,labels\n1,a\n")
    with pytest.raises(cr.InputError, match=words):
        cr.data.load(tmp_path / "t.csv", **{option: value})


@pytest.fixture
def planet(tmp_path):
    """The layout of a competition: names without a suffix, tags joined by spaces."""
    for name in ("t_0", "t_1", "t_2", "t_3"):
        paint(tmp_path / f"jpg/{name}.jpg")
    lines = ["haze primary", "clear", "clear primary", "haze"]
    rows = "\n".join(f"t_{k},{tags},x" for k, tags in enumerate(lines))
    write(tmp_path / "train.csv", f"image_name,tags,note\n{rows}\n")
    return tmp_path


PLANET = {"separator": " ", "suffix": ".jpg", "ignore": ["note"]}


def test_suffix_is_appended_to_image_names(planet):
    data = cr.data.load(planet / "train.csv", images=str(planet / "jpg"), **PLANET)
    assert data.labels == ["clear", "haze", "primary"]
    assert data.image(0).shape == (16, 20, 3)
    assert data.ids.tolist() == ["t_0", "t_1", "t_2", "t_3"]


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


QUICK = ("--epochs", 1, "--model", "linear", "--loss", "bce", "--calibrate", "none", "--quiet")


def signed_table(folder):
    generator = np.random.default_rng(0)
    lines = [
        f"{x:.3f},{1 if x > 0 else -1},{generator.choice([-1, 1])}"
        for x in generator.normal(size=60)
    ]
    write(folder / "faces.csv", "\n".join(["x,smile,hat", *lines]) + "\n")
    return folder / "faces.csv"


def test_the_command_line_offers_both_codings_in_its_own_words(tmp_path, capsys):
    table = signed_table(tmp_path)
    out = ("--labels", "smile,hat", "--out", tmp_path / "run", *QUICK)
    code, _, error = run(capsys, "train", table, *out)
    assert code == 2
    assert "faces.csv" in error
    assert "Pass --coding signed if" in error
    assert "or --coding unknown if" in error
    assert not (tmp_path / "run").exists()
    code, _, error = run(capsys, "train", table, "--coding", "signed", *out)
    assert (code, error) == (0, "")
    wanted = tmp_path / "p.parquet"
    code, _, error = run(
        capsys, "predict", tmp_path / "run", table, "--coding", "signed", "--out", wanted, "--quiet"
    )
    assert (code, error) == (0, "")
    truth = cr.Predictions.read(wanted).targets
    assert set(np.unique(truth)) == {0, 1}


def test_predictions_go_into_a_csv_file_that_is_asked_for(tmp_path, capsys):
    table = signed_table(tmp_path)
    data = (table, "--coding", "signed")
    out = ("--labels", "smile,hat", "--out", tmp_path / "run", *QUICK)
    assert run(capsys, "train", *data, *out)[0] == 0
    for name in ("p.csv", "p.parquet"):
        command = ("predict", tmp_path / "run", *data, "--out", tmp_path / name, "--quiet")
        assert run(capsys, *command) == (0, "", "")
    written, expected = pd.read_csv(tmp_path / "p.csv"), cr.Predictions.read(tmp_path / "p.parquet")
    assert written["id"].astype(str).tolist() == expected.ids.tolist()
    np.testing.assert_allclose(written[["p:smile", "p:hat"]], expected.probabilities, rtol=1e-5)
    np.testing.assert_array_equal(written[["y:smile", "y:hat"]], expected.targets)
    code, _, error = run(capsys, *command[:-3], "--out", tmp_path / "q.csv", "--shards", 2)
    assert code == 2
    assert "2 shards by 1 processes need a folder" in error
    assert {path.name for path in tmp_path.iterdir()} == {"faces.csv", "run", "p.csv", "p.parquet"}


def test_a_config_file_holds_reader_options(tmp_path, capsys):
    table = signed_table(tmp_path)
    write(tmp_path / "run.toml", 'coding = "signed"\nlabels = ["hat", "smile"]\ntest = 0.5\n')
    config = ("--config", tmp_path / "run.toml", "--out", tmp_path / "run", "--json", *QUICK)
    code, _, error = run(capsys, "train", table, *config)
    assert (code, error) == (0, "")
    assert len(cr.Predictions.read(tmp_path / "run" / "predictions.parquet")) == 30
    write(tmp_path / "run.toml", 'codng = "signed"\n')
    code, _, error = run(capsys, "train", table, *config)
    assert code == 2
    assert "Did you mean 'coding'?" in error


def test_an_option_that_belongs_to_another_reader_is_refused(tmp_path, capsys):
    table = signed_table(tmp_path)
    rest = ("--out", tmp_path / "run", *QUICK)
    code, _, error = run(capsys, "train", table, "--xml", "x.xml", *rest)
    assert code == 2
    assert "csv has no option 'xml'; it has labels, label_column, separator" in error
    with pytest.raises(SystemExit, match="2"):
        run(capsys, "train", table, "--year", 2014, *rest)
    assert "unrecognized arguments: --year 2014" in capsys.readouterr().err


def test_two_years_of_coco_are_asked_about_and_told_apart(tmp_path, capsys):
    make_coco(tmp_path)
    for part in ("train", "val"):
        content = (tmp_path / f"annotations/instances_{part}2014.json").read_text()
        write(tmp_path / f"annotations/instances_{part}2017.json", content)
        (tmp_path / f"{part}2014").rename(tmp_path / f"{part}2017")
    code, _, error = run(capsys, "train", f"coco:{tmp_path}", "--out", tmp_path / "run")
    assert code == 2
    assert "--year 2017" in error
    assert len(cr.data.load(f"coco:{tmp_path}", year=2017)) == 4


# The split of Gong et al. ------------------------------------------------------------------------


def test_gong_split_draws_its_share_of_the_images_with_a_concept(tmp_path):
    make_nuswide(tmp_path)
    names = [f"zoo/{k:04d}.jpg" for k in range(40)]
    for name in names:
        paint(tmp_path / "Flickr" / name)
    write(tmp_path / "ImageList/TrainImagelist.txt", "\n".join(names))
    flags = "\n".join("0" if k % 10 == 0 else "1" for k in range(40))
    for label in ("airport", "zebra"):
        write(tmp_path / f"Groundtruth/TrainTestLabels/Labels_{label}_Train.txt", flags)
    data = cr.data.load(f"nuswide:{tmp_path}", split="gong", calibration=0)
    assert len(data) == 37
    assert np.bincount(data.split).tolist() == [27, 10]
    again = cr.data.load(f"nuswide:{tmp_path}", split="gong", calibration=0, seed=7)
    np.testing.assert_array_equal(again.split, data.split)
    with pytest.raises(cr.InputError, match="`split` must be one of 'published', 'gong'"):
        cr.data.load(f"nuswide:{tmp_path}", split="other")


def test_gong_split_of_all_images_is_150_000_to_59_347():
    from credibly.papers.datasets.nuswide import _gong

    parts = _gong(209_347)
    assert (int((parts == TRAIN).sum()), int((parts == TEST).sum())) == (150_000, 59_347)


def test_calibrate_asks_what_minus_one_means(tmp_path, capsys):
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(80, 2)).astype(np.float32)
    targets = np.where(scores + generator.normal(size=scores.shape) > 0, 1, -1)
    np.savez(tmp_path / "s.npz", scores=scores, targets=targets, labels=["a", "b"])
    command = ("calibrate", tmp_path / "s.npz", "--loss", "bce", "--out", tmp_path / "p.parquet")
    code, _, error = run(capsys, *command)
    assert code == 2
    assert "s.npz" in error
    assert "--coding signed" in error
    code, _, error = run(capsys, *command, "--coding", "signed", "--quiet")
    assert (code, error) == (0, "")
    assert set(np.unique(cr.Predictions.read(tmp_path / "p.parquet").targets)) == {0, 1}
