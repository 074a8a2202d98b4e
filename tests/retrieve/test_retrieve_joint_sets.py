"""Label sets, pair counts and row weights by joint probabilities."""

import json

import numpy as np
import pytest
from test_retrieve_joint import INSIDE, JOINTS, LABELS, SETS, drawn, probabilities_of_sets

from credibly import InputError, Predictions, evaluate
from credibly.cli import main
from credibly.retrieve import (
    Index,
    Joint,
    JointCoverage,
    fit_joint,
    probability,
    search,
)

each_joint = pytest.mark.parametrize("joint", JOINTS, ids=range(len(JOINTS)))
ORDER = [LABELS.index(name) for name in sorted(LABELS)]


@each_joint
def test_contained_is_the_share_of_the_subsets(joint):
    chances = INSIDE[:, ORDER].astype(np.float64)
    order = np.argsort(-chances, axis=1, kind="stable")
    found = joint.contained(chances, order)
    shares = probabilities_of_sets(joint, INSIDE)
    for size in range(5):
        inside = np.zeros(chances.shape, bool)
        np.put_along_axis(inside, order[:, :size], True, axis=1)
        subset = (SETS[None] <= inside[:, None]).all(axis=2)
        np.testing.assert_allclose(found[:, size], (shares * subset).sum(axis=1), rtol=1e-7)


@each_joint
def test_mixture_and_marginals_are_those_of_all_label_sets(joint):
    shares = probabilities_of_sets(joint, INSIDE)
    expected = (shares @ SETS)[:, np.argsort(ORDER)]
    np.testing.assert_allclose(joint.marginals(INSIDE, LABELS), expected, rtol=1e-7, atol=1e-12)
    weights, products = joint.mixture(INSIDE, LABELS)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    assert products.shape == (len(weights), *INSIDE.shape)


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_joint_coverage_holds_whether_the_model_is_right_or_not(level):
    """Over many draws of 50 fitted rows: at least the level, and little more."""
    covered = {"true": [], "independent": [], "wrong": []}
    models = {
        "true": JOINTS[0],
        "independent": Joint.independent(LABELS),
        "wrong": JOINTS[3],
    }
    sizes = {name: [] for name in models}
    for seed in range(120):
        chances, truth, _ = drawn(JOINTS[0], 250, seed=1000 + seed)
        for name, model in models.items():
            decision = JointCoverage(model, level).for_labels(LABELS)
            sets = decision.fit(chances[:50], truth[:50]).predict(chances[50:])
            covered[name].append((truth[50:] <= sets).all(axis=1).mean())
            sizes[name].append(sets.sum(axis=1).mean())
    for values in covered.values():
        error = np.std(values) / np.sqrt(len(values))
        assert np.mean(values) >= level - 2.5 * error
    # The score has ties (a set is covered from one label to the next), so it may cover more.
    assert np.mean(covered["true"]) <= level + 0.1
    assert np.mean(sizes["true"]) <= np.mean(sizes["independent"]) + 0.05


def test_most_probable_sets_are_right_more_often_than_thresholds():
    chances, truth, _ = drawn(JOINTS[2], 3000, seed=5)
    sets, _ = JOINTS[2].most_probable(chances, LABELS)
    right = (sets == truth).all(axis=1).mean()
    assert right > ((chances >= 0.5) == truth).all(axis=1).mean() + 0.02


def test_sets_need_its_labels_and_enough_rows():
    chances, truth, _ = drawn(JOINTS[0], 30, seed=5)
    with pytest.raises(InputError, match="only in the predictions"):
        JointCoverage(JOINTS[0]).for_labels([*LABELS, "e"])
    with pytest.raises(InputError, match="one column per label of `joint`, 4; got 3"):
        JointCoverage(JOINTS[0]).fit(chances[:, :3], truth[:, :3])
    with pytest.raises(InputError, match="needs at least 99 held-out rows"):
        JointCoverage(JOINTS[0], 0.99).fit(chances, truth)
    with pytest.raises(InputError, match="needs `targets`"):
        JointCoverage(JOINTS[0]).fit(chances)
    with pytest.raises(InputError, match="cannot be stored or exported"):
        JointCoverage(JOINTS[0]).fit(*drawn(JOINTS[0], 100, seed=5)[:2]).to_module()


def written(path, chances, truth=None, start=0):
    ids = [f"r{row:04d}" for row in range(start, start + len(chances))]
    table = Predictions.from_arrays(
        probabilities=chances, targets=truth, labels=LABELS, ids=ids, coding="unknown"
    )
    table.write(path)
    return path


@each_joint
def test_joint_metrics_equal_brute_force_however_rows_are_batched(joint, tmp_path):
    chances, truth, shares = drawn(joint, 60, seed=8)
    truth = truth.copy()
    truth[:10, 1] = -1
    path = written(tmp_path / "p.parquet", chances, truth)
    found = evaluate(path, joint=joint, batch_rows=25).joint
    names = list(joint.labels)
    known = truth >= 0
    for i, first in enumerate(LABELS):
        for j, second in enumerate(LABELS):
            if i == j:
                continue
            both = SETS[:, names.index(first)] & SETS[:, names.index(second)]
            rows = known[:, i] & known[:, j]
            assert found.expected_pairs[i, j] == pytest.approx((shares @ both)[rows].sum())
            assert found.real_pairs[i, j] == ((truth[:, i] == 1) & (truth[:, j] == 1)).sum()
    assert found.pairs == pytest.approx(found.expected_pairs.sum() / found.real_pairs.sum())
    scores = joint.log_likelihood(chances, truth, LABELS, coding="unknown")
    assert found.log_score == pytest.approx(scores.mean())
    assert {first for first, *_ in found.pairs_missed(3)} <= set(LABELS)


@each_joint
def test_labels_that_appear_with_a_query_are_ranked_by_expected_hits(joint, tmp_path, capsys):
    chances, truth, _ = drawn(joint, 40, seed=8)
    path, model = written(tmp_path / "p.parquet", chances, truth), str(tmp_path / "joint.json")
    joint.write(model)

    def also(query):
        given = ["search", str(path), query, "--joint", "--joint-from", model, "--also", "4"]
        assert main([*given, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["also"]

    listed = also("+a -b")
    alone = probability("+a -b", chances, LABELS, joint).sum()
    assert [each["label"] for each in listed] == sorted(
        ["c", "d"], key=lambda name: -probability(f"+a -b +{name}", chances, LABELS, joint).sum()
    )
    for each in listed:
        both = probability(f"+a -b +{each['label']}", chances, LABELS, joint).sum()
        assert each["expected"] == pytest.approx(both, rel=1e-5)
        assert each["share"] == pytest.approx(both / alone, rel=1e-5)
        place = LABELS.index(each["label"])
        real = (truth[:, 0] == 1) & (truth[:, 1] == 0) & (truth[:, place] == 1)
        assert each["known_real"] == real.sum()
    assert also("+a -a") == []


@each_joint
def test_files_are_searched_like_an_index(joint, tmp_path):
    chances, truth, _ = drawn(joint, 300, seed=8)
    folder = tmp_path / "parts"
    folder.mkdir()
    for place in range(3):
        part = slice(100 * place, 100 * place + 100)
        written(folder / f"part-{place}.parquet", chances[part], truth[part], 100 * place)
    for query in ("+a -b", "(a | b) & !c", "-a -b -c -d"):
        expected = Index.read(folder).search(query, joint=joint)
        found = search(folder, query, joint=joint)
        assert found.hits == expected.hits
        assert found.expected_hits == pytest.approx(expected.expected_hits)
        assert (found.known_rows, found.known_hits) == (expected.known_rows, expected.known_hits)
    with pytest.raises(InputError, match="only in `joint`"):
        search(folder, "+a", joint=Joint.independent([*LABELS, "e"]))


def test_a_model_fitted_again_is_another_one():
    chances, truth, _ = drawn(JOINTS[2], 300, seed=8)
    index, joint = Index(chances, LABELS), Joint(1).fit(chances, truth, LABELS)
    first = index.search("+a +b", joint=joint).expected_hits
    joint.fit(chances, 1 - truth, LABELS)
    assert index.search("+a +b", joint=joint).expected_hits != first


def test_the_choice_keeps_the_log_loss_of_single_labels():
    for seed, true in enumerate(JOINTS[:4]):
        chances, truth, _ = drawn(true, 600, seed=seed)
        fitted = fit_joint(chances, truth, LABELS)
        assert fitted.log_losses[fitted.chosen] <= 1.02 * fitted.log_losses["independent"]
        assert isinstance(fitted.model, Joint)


def test_a_candidate_that_loses_on_single_labels_is_left_out():
    """Eight copies of one label: few rows make the mixture too sure of each of them."""
    rng = np.random.default_rng(0)
    chances = np.repeat(1 / (1 + np.exp(-rng.normal(size=(120, 1)))), 8, axis=1)
    truth = np.repeat(rng.random((120, 1)) < chances[:, :1], 8, axis=1).astype(int)
    fitted = fit_joint(chances, truth, list("abcdefgh"), components=(3,))
    assert fitted.log_scores["mixture-3"] > fitted.log_scores["independent"] + 1
    assert fitted.log_losses["mixture-3"] > 1.1 * fitted.log_losses["independent"]
    assert fitted.chosen == "independent"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("joint")
    chances, truth, _ = drawn(JOINTS[0], 900, seed=3)
    written(folder / "held-out.parquet", chances[:400], truth[:400])
    written(folder / "test.parquet", chances[400:], truth[400:], 400)
    assert (
        main(["joint", "fit", f"{folder}/held-out.parquet", "--out", f"{folder}/joint.json"]) == 0
    )
    return folder


def test_sets_of_the_command_hold_all_labels(files, capsys, tmp_path):
    arguments = ["sets", f"{files}/test.parquet", "--joint-from", f"{files}/joint.json", "--json"]
    out = str(tmp_path / "sets.parquet")
    assert main([*arguments, "--joint-coverage", "0.8", "--out", out]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (
        "contains all its true labels with a probability of at least 0.8" in document["statement"]
    )
    assert main([*arguments, "--most-probable", "--out", out]) == 0
    assert json.loads(capsys.readouterr().out)["decision"]["decision"] == "most-probable-set"


def test_evaluate_and_also_of_the_command(files, capsys):
    test, model = f"{files}/test.parquet", f"{files}/joint.json"
    capsys.readouterr()
    assert main(["evaluate", test, "--joint-from", model, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["files"]
    numbers = document["numbers"]
    assert numbers["joint log score"] > numbers["joint log score, independent"]
    assert 0 <= numbers["subset accuracy"] <= 1
    assert document["pairs"][0].keys() == {"labels", "expected", "real"}
    assert main(["evaluate", test, "--joint-from", model]) == 0
    assert "pairs of labels whose expected and real counts differ most" in capsys.readouterr().out
    search_also = ["search", test, "+a", "--joint", "--joint-from", model, "--also", "2"]
    assert main([*search_also, "--json"]) == 0
    also = json.loads(capsys.readouterr().out)["also"]
    assert len(also) == 2
    assert also[0]["share"] >= also[1]["share"]
    assert main(search_also) == 0
    assert "labels that appear with the query" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sets", "TEST", "--most-probable", "--out", "OUT"], "--most-probable needs --joint-from"),
        (
            ["sets", "TEST", "--top-k", "1", "--joint-from", "MODEL", "--out", "OUT"],
            "--joint-from needs",
        ),
        (
            ["sets", "TEST", "--joint-coverage", ".8", "--joint-from", "TEST", "--out", "OUT"],
            "other rows",
        ),
        (["evaluate", "TEST", "--joint-from", "TEST"], "other rows"),
        (["joint", "fit", "TEST", "--out", "OUT"], "--out must end in .json"),
        (["joint", "fit", "TEST", "--out", "OUT.json", "--components", "0"], "at least 1"),
    ],
)
def test_commands_say_what_is_missing(files, tmp_path, capsys, arguments, message):
    places = {
        "TEST": f"{files}/test.parquet",
        "MODEL": f"{files}/joint.json",
        "OUT": str(tmp_path / "sets.csv"),
        "OUT.json": str(tmp_path / "joint.json"),
    }
    assert main([places.get(each, each) for each in arguments]) == 2
    assert message in capsys.readouterr().err


def test_contradictions_and_other_orders_of_labels_in_every_engine(tmp_path):
    chances, truth, _ = drawn(JOINTS[2], 60, seed=5)
    path = written(tmp_path / "p.parquet", chances, truth)
    for engine in (Index.read(path).search, lambda *a, **k: search(path, *a, **k)):
        answer = engine("+a -a", joint=JOINTS[2])
        assert answer.contradiction
        assert answer.hits == []
        assert answer.expected_hits == 0
    turned = Predictions.from_arrays(
        probabilities=chances[:, ::-1], labels=LABELS[::-1], ids=[str(row) for row in range(60)]
    )
    turned.write(tmp_path / "turned.parquet")
    found = search(tmp_path / "turned.parquet", "+a -b", joint=JOINTS[2]).expected_hits
    assert found == pytest.approx(search(path, "+a -b", joint=JOINTS[2]).expected_hits, rel=1e-6)
