"""The harness of the claims: nothing run twice, choices by held-out rows, honest intervals."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from benchmarks.claims import (
    average_k,
    calibrated,
    defaults,
    networks,
    page,
    quasibinary,
    sets,
    two_way,
)
from benchmarks.claims.cells import Cell
from benchmarks.claims.comparisons import (
    Comparison,
    all_of,
    compare,
    finding_of,
    verdict_of,
    verdict_of_most,
)
from benchmarks.claims.findings import Finding, counted, judged, side, tally
from benchmarks.claims.plan import Method, carry_out, chosen, records
from benchmarks.claims.quotes import QUOTE, Quotes
from benchmarks.claims.runner import RESULTS, Book
from benchmarks.claims.tables import Difference, Results, Table, difference, ranks, spread
from scipy import stats

from credibly.data import Data, load, synthetic

TRAIN, TEST, CALIBRATION = 0, 1, 2  # what `split` says of a row

ROOT = Path(__file__).parents[2]
STUDIES = (calibrated, quasibinary, two_way, average_k, defaults, networks)


def record(cell: Cell, held_out: float, test: float | None = None) -> dict:
    found = {
        "data": cell.data,
        "settings": dict(cell.settings),
        "seed": cell.seed,
        "trial": cell.trial,
        "seconds": 1.0,
        "held_out": {"nll": held_out, "map": 1 - held_out},
    }
    return found if test is None else {**found, "test": {"mAP@y": test}}


@pytest.fixture
def classes() -> Data:
    """Twenty classes on a line, ten training and two test rows each."""
    labels = np.repeat(np.arange(20), 12)
    split = np.tile([TRAIN] * 8 + [CALIBRATION] * 2 + [TEST] * 2, 20)
    features = labels[:, None] + np.random.default_rng(0).normal(0, 0.01, (240, 2))
    names = [f"c{k}" for k in range(20)]
    return Data(names, np.eye(20)[labels], split=split, features=features)


# Data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["features", "images", "texts"])
def test_rows_written_as_a_file_are_read_back_as_they_are(kind, classes: Data, tmp_path) -> None:
    name = {"features": "synthetic", "images": "cifar100:50", "texts": "goemotions:1000"}[kind]
    inputs = {
        "features": classes.features,
        "images": np.arange(240 * 12, dtype=np.uint8).reshape(240, 2, 2, 3),
        "texts": np.array([[f"row {k}\nor so"] for k in range(240)], dtype=object),
    }
    labels = [*classes.labels, "a label without a row"]
    targets = np.pad(classes.targets, ((0, 0), (0, 1)))
    given = Data(labels, targets, classes.ids, classes.split, **{kind: inputs[kind]})
    path = tmp_path / f"rows.{sets.kind_of_file(name)}"
    sets.write(name, given, path)
    read = load(path)
    assert read.labels == labels
    for field in ("targets", "ids", "split", kind):
        np.testing.assert_array_equal(getattr(read, field), getattr(given, field))


def test_the_rows_for_a_search_hold_no_test_row_of_the_data(classes: Data) -> None:
    searched = sets._without_test(classes, seed=1)
    test = set(classes.part("test").ids)
    assert not test & set(searched.ids)
    assert set(searched.split) == {TRAIN, TEST, CALIBRATION}


def test_some_classes_are_nested_and_whole(classes: Data) -> None:
    five, ten = (sets._some_classes(classes, number) for number in (5, 10))
    assert set(five.labels) < set(ten.labels)
    assert len(five) == 5 * 12
    assert (five.targets.sum(axis=1) == 1).all()


def test_stripping_keeps_rows_and_takes_labels(classes: Data) -> None:
    kept = sets._kept_classes(classes)
    stripped = sets.with_labels(classes, kept)
    assert len(kept) == 12
    assert len(stripped) == len(classes)
    assert (stripped.targets.sum(axis=1) == 0).sum() == 8 * 12


def test_the_tail_falls_from_many_to_few_and_leaves_test_rows(classes: Data) -> None:
    thinned = sets._thinned(classes, seed=0, tail=(10, 2))
    counts = np.sort(thinned.targets[thinned.split != TEST].sum(axis=0))
    assert (counts[0], counts[-1]) == (2, 10)
    assert (thinned.split == TEST).sum() == (classes.split == TEST).sum()


# Runs ----------------------------------------------------------------------------------------


def test_a_finished_run_is_found_again_and_a_torn_line_is_not(tmp_path: Path) -> None:
    cell = Cell.of("scene", {"loss": "bce", "epochs": 2}, 1)
    Book(tmp_path).add(record(cell, 0.5, 0.7))
    with (tmp_path / "scene.jsonl").open("a") as file:
        file.write('{"data": "scene", "settin')
    book = Book(tmp_path)
    second = dataclasses.replace(cell, seed=2)
    assert book.get(cell) is not None
    assert book.get(second) is None
    book.add(record(second, 0.5, 0.7))
    assert Book(tmp_path).get(second) is not None


def test_the_command_of_every_record_has_its_settings() -> None:
    for found in Book().records.values():
        cell = Cell.of(found["data"], found["settings"], found["seed"], found["trial"])
        assert found["command"] == cell.command
        made, _, trained = found["command"].partition(" && ")
        program, command, source, *flags = shlex.split(trained)
        wanted = {name for name, value in cell.settings if value is not None}
        wanted |= {"seed", "split_seed", "out"}
        given = {
            flag[2:].removeprefix("no-").replace("-", "_") for flag in flags if flag[:2] == "--"
        }
        assert given - {"quiet"} == wanted
        assert (program, command) == ("credibly", "train")
        assert shlex.split(made)[-1] == source


def test_settings_in_another_order_are_the_same_run() -> None:
    one = Cell.of("scene", {"loss": "bce", "epochs": 2}, 1)
    assert one.key == Cell.of("scene", {"epochs": 2, "loss": "bce"}, 1).key


def test_trials_choose_by_held_out_rows_and_likeness_inherits(tmp_path: Path) -> None:
    grid = ({"learning_rate": 0.1}, {"learning_rate": 0.2})
    base = Method("bce", "scene", "scene", {"loss": "bce"}, grid)
    like = Method("bce, prior", "scene", "scene", {"prior_bias": True}, like="bce")
    book = Book(tmp_path)
    for rate, value in ((0.1, 0.5), (0.2, 0.4)):
        settings = {"loss": "bce", "learning_rate": rate}
        book.add(record(Cell.of("scene", settings, 0, trial=True), value))
    methods = [base, like]
    assert chosen(base, methods, book)["learning_rate"] == 0.2
    assert chosen(dataclasses.replace(base, by="map"), methods, book)["learning_rate"] == 0.2
    assert chosen(like, methods, book) == {
        "loss": "bce",
        "learning_rate": 0.2,
        "prior_bias": True,
    }


def test_runs_of_the_first_seed_serve_as_trials_where_runs_take_minutes(tmp_path: Path) -> None:
    book = Book(tmp_path)
    grid = ({"learning_rate": 0.1}, {"learning_rate": 0.2})
    method = Method("a", "s", "voc2012", {}, grid, seeds=(0, 1), own_trials=False)
    for rate, held_out, test in ((0.1, 0.5, 0.9), (0.2, 0.4, 0.1)):
        book.add(record(Cell.of("voc2012", {"learning_rate": rate}, 0), held_out, test))
    assert chosen(method, [method], book) == {"learning_rate": 0.2}  # whatever test rows say
    assert set(records(method, [method], book)) == {0}


def test_draws_of_images_share_their_test_rows_and_nothing_else() -> None:
    split = np.repeat([TRAIN, TEST], [60, 30])
    whole = Data(["a"], np.zeros((90, 1)), features=np.zeros((90, 2)), split=split)
    drawn = {seed: sets._drawn(whole, 30, seed) for seed in (0, 1)}
    for rows, parts in drawn.values():
        assert np.bincount(parts, minlength=3).tolist() == [30, 30, 10]
        assert len(set(rows.tolist())) == len(rows)
        assert (split[rows[parts == TEST]] == TEST).all()
        assert (split[rows[parts != TEST]] == TRAIN).all()
    (one, parts), (other, _) = drawn.values()
    assert set(one[parts == TEST]) == set(other[parts == TEST])
    assert set(one[parts == TRAIN]) != set(other[parts == TRAIN])


def test_a_plateau_that_no_score_reaches_is_not_a_failure_of_the_claim(tmp_path: Path) -> None:
    book = Book(tmp_path)
    method = Method("asl", "s", "voc2012", {}, seeds=(1, 2, 3))
    reading = {"link": {"mAP@y, probabilities": 0.5}}
    for seed in method.seeds:
        line = record(Cell.of("voc2012", {}, seed), 0.5, 0.5)
        book.add({**line, "test": {"mAP@y": 0.5, "readings": reading}})
    finding = calibrated.findings(Results([method], book), ("s",))["000-phi-costs-asy-accuracy"]
    assert finding.verdict == "not reached"


@pytest.mark.parametrize(
    ("times", "verdict"),
    [((1.2, 1.9), "holds"), ((1.2, 2.1), "holds in part"), ((2.2, 2.1), "not reproduced")],
)
def test_two_heads_are_cheap_below_twice_the_time_of_one(tmp_path: Path, times, verdict) -> None:
    book = Book(tmp_path)
    methods = [
        Method(f"{loss}, K = 5", "setup", "data", {"loss": loss}, seeds=(0, 1))
        for loss in ("avgk", "ce")
    ]
    for seed, time in enumerate(times):
        for method, seconds in zip(methods, (time, 1.0), strict=True):
            cell = Cell.of("data", method.settings, seed)
            book.add({**record(cell, 0.1, 0.9), "seconds": seconds})
    found = average_k.cheap(Results(methods, book), {"setup": (5,)})
    assert found.verdict == verdict
    assert average_k.cheap(Results(methods, book), {"another": (5,)}).verdict == "not run"


def test_a_study_runs_once_and_is_read_back(tmp_path: Path) -> None:
    grid = ({"learning_rate": 1e-3}, {"learning_rate": 1e-2})
    settings = {"loss": "spa", "model": "linear", "epochs": 1, "batch_size": 512}
    method = Method("spa", "synthetic", "synthetic", settings, grid, seeds=(1,))
    book = Book(tmp_path)
    carry_out([method], book, jobs=1)
    assert len(book.records) == 3
    assert [r["trial"] for r in book.records.values()].count(True) == 2
    assert all("test" not in r for r in book.records.values() if r["trial"])
    before = (tmp_path / "synthetic.jsonl").read_bytes()
    carry_out([method], Book(tmp_path), jobs=1)
    assert (tmp_path / "synthetic.jsonl").read_bytes() == before
    found = records(method, [method], Book(tmp_path))
    readings = found[1]["test"]["readings"]
    assert readings["link + affine"]["NLL"] < 0.6
    assert readings["link"]["KL"] > 0


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.__name__)
def test_methods_have_names_of_their_own_and_settings_that_exist(study) -> None:
    from credibly.train.recipes import from_table

    methods = study.methods()
    assert len({(m.name, m.setup) for m in methods}) == len(methods)
    for method in methods:
        for choice in method.grid:
            from_table({"loss": "bce", **method.settings, **choice}, method.name)
        if method.like is not None:
            assert any((m.name, m.setup) == (method.like, method.setup) for m in methods)


def test_rates_with_100_classes_are_those_that_trials_with_50_chose() -> None:
    methods = {(m.name, m.setup): m for m in networks.methods()}
    of_hundred = [method for (_, setup), method in methods.items() if setup == "cifar100:100"]
    assert of_hundred
    for method in of_hundred:
        of_fifty = methods[method.name, "cifar100:50"]
        rate = chosen(of_fifty, [of_fifty], Book())["learning_rate"]
        assert method.grid == ({"learning_rate": rate},)


def test_the_default_of_the_page_is_that_of_the_program_for_networks() -> None:
    from credibly.train import Network, resolve

    usual = Network(model="mlp")
    program = resolve(usual, synthetic(60))
    program = dataclasses.replace(program, loss=usual.loss, batch_size=usual.batch_size)
    chosen_since = {"calibrate"}
    for key in defaults.DEFAULT.keys() - chosen_since:
        assert getattr(program, key) == defaults.DEFAULT[key]


# Numbers -------------------------------------------------------------------------------------


def test_paired_intervals_are_those_of_scipy() -> None:
    generator = np.random.default_rng(3)
    one, other = generator.normal(size=(2, 6))
    gap = difference(dict(enumerate(one)), dict(enumerate(other)))
    low, high = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert (gap.low, gap.high) == pytest.approx((low, high))
    assert gap.n == 6


def test_seeds_that_only_one_side_has_do_not_count() -> None:
    assert difference({1: 2.0, 2: 4.0, 3: 9.0}, {1: 1.0, 2: 1.0}).mean == 2.0
    assert difference({1: 2.0}, {2: 1.0}).n == 0


def test_ranks_and_nemenyi_by_hand() -> None:
    blocks = [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [2.0, 1.0, 3.0]]
    found = ranks(["a", "b", "c"], blocks)
    assert found.means == {"a": 1.25, "b": 2.0, "c": 2.75}
    # Demšar (2006), table 5: q = 2.343 for three methods.
    assert found.critical == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 4)), abs=1e-3)


def test_a_verdict_needs_evidence() -> None:
    up, down, flat = (
        Difference(m, lo, hi, 5) for m, lo, hi in ((1, 0.5, 2), (-1, -2, -0.5), (0, -1, 1))
    )
    assert tally([up, up, down, flat]) == (1, 2, 1)
    assert judged(0, 0, 0) == "not run"
    assert judged(4, 0, 0) == "holds"
    assert judged(3, 1, 0) == "holds in part"
    assert judged(0, 0, 4) == "not seen"
    assert judged(2, 2, 0) == "not seen"
    assert judged(0, 1, 3) == "not seen"
    assert judged(1, 3, 0) == "not reproduced"
    assert judged(0, 2, 2) == "not reproduced"
    assert [side(gap, 0.75) for gap in (up, down, flat)] == [0, -1, 0]
    assert [side(gap, -1.5) for gap in (up, down, flat)] == [1, 0, 1]
    assert counted([1, 0, -1, 1]) == (2, 1, 1)


def test_setups_of_one_data_set_count_once(tmp_path: Path) -> None:
    data = {"coco": "coco80-images:1500", "coco, sgd": "coco80-features", "scene": "scene"}
    results = Results([Method("a", setup, data[setup], {}) for setup in data], Book(tmp_path))
    own = {"coco": {1: 1.0, 2: 3.0}, "coco, sgd": {1: 3.0, 2: 5.0}, "scene": {1: -1.0, 2: -1.1}}
    gaps = compare(results, data, own.__getitem__, lambda s: dict.fromkeys(own[s], 0.0))
    assert list(gaps.sets) == ["coco80", "scene"]
    assert gaps.sets["coco80"].mean == 3.0
    low, high = stats.ttest_1samp([2.0, 4.0], 0).confidence_interval(0.95)
    assert (gaps.sets["coco80"].low, gaps.sets["coco80"].high) == pytest.approx((low, high))
    assert gaps.pooled.mean == pytest.approx((3 - 1.05) / 2)
    assert gaps.sides() == {"coco80": 0, "scene": -1}
    assert gaps.sides(-2) == {"coco80": 0, "scene": 1}


def test_the_visible_difference_is_seen_in_four_studies_of_five() -> None:
    generator = np.random.default_rng(0)
    means = generator.normal(0, 1, 12)
    one = Comparison({f"set{k}": Difference(m, m - 1, m + 1, 5) for k, m in enumerate(means)})
    quantiles = stats.t.ppf([0.975, 0.8], 11)
    assert one.visible == pytest.approx(quantiles.sum() * stats.sem(means))


def test_a_rule_of_several_conditions_is_met_where_all_are() -> None:
    good, bad, open_ = ({"a": k, "b": k, "c": k, "d": k} for k in (1, -1, 0))
    assert verdict_of(good) == verdict_of(good, good) == "holds"
    assert verdict_of(good, bad) == verdict_of(bad, open_) == verdict_of(bad) == "not reproduced"
    assert verdict_of(good, open_) == "not seen"
    assert verdict_of({}) == "not run"
    assert verdict_of({**good, "a": -1}) == "holds in part"
    assert all_of(good, {"b": -1, "c": 0}) == {"b": -1, "c": 0}
    assert (
        verdict_of_most([good, {**good, "a": -1}]) == "holds"
    )  # most sets, whatever the rest says
    assert verdict_of_most([good, bad]) == "not seen"
    assert verdict_of_most([good, good, bad]) == "holds in part"
    assert verdict_of_most([bad, open_, bad]) == "not reproduced"


def test_a_rule_that_was_amended_later_stands_beside_the_written_one_and_never_for_it() -> None:
    good, bad = ({"a": k, "b": k, "c": k, "d": k} for k in (1, -1))
    found = finding_of("", good, bad)
    assert found.verdict == "not reproduced"
    assert [each.verdict for each in found.amended] == ["holds in part"]
    assert finding_of("", good, good).amended == finding_of("", bad).amended == ()
    book = Book()
    columns = page._findings(page._results(book), book.folder)
    moved = [f for column in columns for f in column.values() if f.amended]
    assert len(moved) > 5
    record = (ROOT / page.RECORD / "README.md").read_text(encoding="utf-8")
    table = record.partition("## Amended rules")[2].partition("## Undecided")[0]
    assert table.count("\n| [") == sum(len(finding.amended) for finding in moved)


def test_retrieval_is_judged_by_both_halves_of_its_rule(tmp_path: Path) -> None:
    def found(spa: float, bce: float, raw: float) -> str:
        book = Book(tmp_path / f"{spa}{bce}{raw}")
        values = {"spa": spa, "bce": bce, "asl, detached": raw}
        methods = [Method(name, "s", "scene", {"loss": name}, seeds=(1, 2)) for name in values]
        for method in methods:
            for seed in method.seeds:
                ranked = [values[method.name] + 0.001 * seed] * 5
                readings = {key: {"retrieval": ranked} for key in ("link", "sigmoid")}
                line = record(Cell.of("scene", method.settings, seed), 0.5, 0.5)
                book.add({**line, "test": {"mAP@y": 0.5, "readings": readings}})
        claim = "000-retrieval-needs-calibration"
        return calibrated.findings(Results(methods, book), ("s",))[claim].verdict

    assert found(0.7, 0.6, 0.5) == "holds"
    assert found(0.6, 0.7, 0.5) == "not reproduced"  # BCE is above raw ASL, SPA is not above BCE
    assert found(0.5, 0.6, 0.7) == "not reproduced"


def test_spread_is_a_students_interval() -> None:
    assert spread({1: 1.0, 2: 2.0, 3: 3.0}, 2) == "2.00 ± 2.48"
    assert spread({}) == "–"


# The pages -----------------------------------------------------------------------------------


def test_every_claim_stands_on_its_page_and_every_rule_has_a_claim(tmp_path: Path) -> None:
    book = Book(tmp_path / "records")
    page.write(book, tmp_path, long_runs=tmp_path)
    claims = tomllib.loads((page.HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    for claim in claims:
        for folder in (page.DOCS, page.RECORD):
            path = tmp_path / folder / f"{page.PAGES[claim['paper']]}.md"
            text = path.read_text(encoding="utf-8")
            assert claim["says"] in text
            assert f"{{#{claim['id']}}}" in text
    notes = page._notes()
    nothing = {"000-lpr-weight", "000-initialisation", "000-vqa"}  # gaps of the paper; not read
    assert set(notes["claimed"]) == {claim["id"] for claim in claims} - nothing
    for table in ("claim", "claimed", "coded", "shown"):
        assert set(notes[table]) <= {claim["id"] for claim in claims}
    rules = page._findings(page._results(book, long_runs=tmp_path), book.folder)
    for column in rules:
        assert set(column) <= {claim["id"] for claim in claims}
        assert all(rule.verdict in ("not run", "reported") for rule in column.values())


def test_the_page_of_a_paper_shows_every_pooled_difference_that_decides() -> None:
    book = Book()
    claims = page._claims(page._findings(page._results(book), book.folder))
    shown = page._notes()["shown"]
    for claim in claims:
        parts = shown.get(claim.entry["id"], {})
        found = [
            [page._difference(f.ours, part) for part in parts.values()] for f in claim.findings
        ]
        assert all(any(column) for column in zip(*found, strict=True)), claim.entry["id"]
        for finding, row in zip(claim.findings, found, strict=True):
            if "pooled" in finding.ours:
                assert any("[" in part for part in row), claim.entry["id"]


def test_every_number_that_prose_quotes_is_there() -> None:
    book = Book()
    results = page._results(book)
    claims = page._claims(page._findings(results, book.folder))
    quotes = page._quotes(page._tables(results, book), claims, results)
    quoted = QUOTE.findall(json.dumps(page._notes(), ensure_ascii=False).replace("\\\\", "\\"))
    assert len(quoted) > 30
    assert [quote for quote in quoted if quotes.quoted(quote) in ("–", "")] == []
    _conclusions_have_the_direction_of_their_tables(quotes)


def _conclusions_have_the_direction_of_their_tables(quotes: Quotes) -> None:
    """What the pages conclude in words, each beside the sentence."""

    def value(quote: str) -> float:
        return float(quotes.quoted(quote).replace("−", "-"))

    # LPR lowers the ACE of SPA on all three image sets and raises the log loss on each.
    for data in ("coco", "voc", "ucmerced"):
        for column, sign in (("ACE, %", -1), ("NLL × 1000", 1)):
            table = f"networks-{data}"
            assert sign * value(f"{table}|SPA+LPR|{column}") > sign * value(f"{table}|SPA|{column}")
    # On VOC features LPR lowers ACE and log loss of SPA, to no less than BCE's.
    long = "long-runs-voc-features"
    for figure in ("ACE, %, 30 epochs", "NLL × 1000, 30 epochs"):
        recipes = ("BCE, prior bias", "SPA+LPR", "SPA")
        assert [value(f"{long}|{name}|{figure}") for name in recipes] == sorted(
            value(f"{long}|{name}|{figure}") for name in recipes
        )
    # An affine map does not repair everything.
    later = "networks-coco-15epochs"
    assert value(f"{later}|SPA + affine|ACE, %") > 2 * value(f"{later}|BCE + affine|ACE, %")
    # From a random last layer networks end below a linear model of their start, with it above.
    for data in ("coco", "voc"):
        random, frozen, first = (
            value(f"networks-starts|{data}{kind}|mAP@y, %")
            for kind in ("", ", frozen", ", head start")
        )
        assert random < frozen < first
    # LPR lowers SPA's ACE, but not below BCE's; two-way is first in mAP on COCO.
    for data in ("coco", "voc", "ucmerced"):
        assert value(f"networks-{data}|SPA+LPR|ACE, %") > value(f"networks-{data}|BCE|ACE, %")
    for name in ("BCE", "SPA", "ASL detached, sigmoid", "focal, φ"):
        assert value("networks-coco|two-way + affine|mAP@y, %") > value(
            f"networks-coco|{name}|mAP@y, %"
        )
    # Classes weighed alike move the balance further than the two-head loss.
    rare = "few (< 10 rows)"
    assert value(f"average-k-frequency|ce, classes weighed alike; 10|{rare}") > 2 * value(
        f"average-k-frequency|avgk, ML head through softmax; 10|{rare}"
    )
    # ASL through its right link: as good as SPA on heads, worse on texts.
    right = r"right link: lower on \d+, higher on \d+ of \d+ data sets, pooled (\S+)"
    assert value(f"000-phi-not-enough|heads|{right}") < 0
    assert value(f"000-phi-not-enough|texts|{right}") > 0
    # SPA is better calibrated than BCE on Reuters.
    assert value("texts-reuters-tfidf|SPA|ACE, %") < value("texts-reuters-tfidf|BCE|ACE, %")
    # The ML head is below cross-entropy at every K; among heads the gap closes on CIFAR-10H alone.
    gaps: dict[str, list[float]] = {}
    for kind in ("networks", "heads"):
        text = quotes.quoted(f"003-gain-grows-with-k|{kind}|(.*)")
        for data, gap in re.findall(r"(\S+) K=\d+ (\S+?)[,;.]?(?= |$)", text):
            gaps.setdefault(f"{kind} {data}", []).append(float(gap.replace("−", "-")))
    assert len(gaps) == 4
    assert max(gap for line in gaps.values() for gap in line) < 0
    tail = "average-k-tinyimagenet-tail"
    assert value(f"{tail}|avgk, ML head|K = 10") > value(f"{tail}|ce|K = 10")
    closing = [name for name, line in gaps.items() if line[-1] > line[0] and "heads" in name]
    assert closing == ["heads cifar10h"]


SETTINGS = {"0.1", "0.03", "0.3", "0.4", "26.8"}
"""Numbers in prose that are no results: rates, weights, a share that a plan gives, a print."""


def test_results_in_prose_are_quoted_and_never_typed() -> None:
    def texts(part) -> list[str]:
        return (
            [t for each in part.values() for t in texts(each)] if isinstance(part, dict) else [part]
        )

    notes = page._notes()
    prose = {name: part for name, part in notes.items() if name not in ("shown", "claimed")}
    typed = []
    for text in texts(prose):
        lines = [line for line in QUOTE.sub("", text).splitlines() if not line.startswith("|")]
        typed += re.findall(r"(?<![\w.])\d+\.\d+(?!\w)", " ".join(lines))
    assert set(typed) <= SETTINGS


def test_a_quotation_is_the_mean_or_the_whole_of_a_cell() -> None:
    table = Table("t", "", ["set", "bias", "ACE, %"], [["a", "x", "-1.2 ± 0.3"], ["b", "y", "3"]])
    quotes = Quotes([table], {"000-claim": {"heads": Finding("holds", "lower in 3 of 4")}})
    prose = "{{t|a|ACE, %}}, {{t|a; x|ACE, %|whole}}, {{000-claim|heads|in (\\d+)}}, {{t|c|ACE, %}}"
    assert quotes.fill({"x": prose}) == {"x": "−1.2, −1.2 ± 0.3, 3, –"}
    with pytest.raises(ValueError, match="NLL"):
        quotes.fill("{{t|a|NLL}}")


@pytest.mark.parametrize("name", page.PAGES.values())
def test_the_page_of_a_paper_has_at_most_2500_words_beside_what_it_prints(name: str) -> None:
    text = (ROOT / page.DOCS / f"{name}.md").read_text(encoding="utf-8")
    claims, _, as_printed = text.partition("{#as-printed}")
    prose = [line for line in as_printed.splitlines() if not line.startswith("|")]
    words = [word for word in f"{claims} {' '.join(prose)}".split() if re.search(r"\w", word)]
    assert len(words) <= 2500
    assert (
        as_printed.count("\n| ")
        == len(page.printed()[next(k for k, v in page.PAGES.items() if v == name)]) + 2
    )


def test_rules_that_the_code_does_not_follow_are_named_for_real_claims() -> None:
    record = (ROOT / page.RECORD / "README.md").read_text(encoding="utf-8")
    assert all(f"#{claim})" in record for claim in page._notes()["coded"])


def test_every_undecided_claim_says_what_is_claimed_and_what_could_be_seen() -> None:
    record = (ROOT / page.RECORD / "README.md").read_text(encoding="utf-8")
    table = record.partition("## Undecided claims")[2].partition("## Runs")[0]
    papers = [ROOT / page.DOCS / f"{name}.md" for name in page.PAGES.values()]
    listed = "".join(path.read_text(encoding="utf-8") for path in papers)
    open_claims = re.findall(r"^\| \[.*?\]\(#(\S+)\) \|.*not seen", listed, re.MULTILINE)
    assert len(open_claims) > 5
    assert all(f"#{claim})" in table for claim in open_claims)


def test_the_pages_and_tables_are_those_of_the_records(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "records")
    page.write(Book(tmp_path / "records"), tmp_path)
    written = {path.relative_to(tmp_path) for path in tmp_path.glob("docs/papers/*.md")}
    written |= {path.relative_to(tmp_path) for path in tmp_path.glob("benchmarks/results/*.md")}
    assert len(written) == 14
    repeat = "run `python -W ignore -m benchmarks.claims --page-only`"
    for name in written:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name}: {repeat}"
    for table in (tmp_path / "records" / "tables").iterdir():
        assert table.read_bytes() == (RESULTS / "tables" / table.name).read_bytes(), repeat


@pytest.mark.parametrize(
    "path", sorted((ROOT / page.RECORD).glob("*.md")), ids=lambda path: path.stem
)
def test_links_of_the_record_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    files = [link.partition("#")[0] for link in links if "://" not in link]
    assert [name for name in files if name and not (path.parent / name).exists()] == []


def test_the_lead_of_two_heads_is_there_by_the_printed_optimizer_alone():
    from benchmarks.studies import two_heads

    lines = two_heads.records()
    for size in two_heads.SIZES:
        printed, half = two_heads.lead(lines, two_heads.HEADS, two_heads.PLAIN, size)
        assert printed > half
        chosen, half = two_heads.lead(lines, two_heads.HEADS, two_heads.CHOSEN, size)
        assert chosen < half


def test_the_page_on_vqa_shows_its_records():
    from benchmarks.studies import vqa

    records = vqa.read_records(Path(vqa.__file__).with_suffix(".jsonl"))
    page = (ROOT / "benchmarks/results/vqa.md").read_text(encoding="utf-8")
    assert vqa.table(records).strip() in page
    assert {each["seed"] for each in records} == set(range(vqa.SEEDS))


def test_the_page_on_vqa_shows_the_memory_of_its_size():
    from benchmarks.studies import vqa_size

    record = json.loads(vqa_size.RECORD.read_text(encoding="utf-8"))
    page = (ROOT / "benchmarks/results/vqa.md").read_text(encoding="utf-8")
    assert vqa_size.table(record) in page
    assert f"{record['rows']:,} questions with {record['labels']:,} answers" in page
    assert record["targets"] == "SparseTargets"


def test_the_page_on_joint_probabilities_shows_its_records():
    from benchmarks.studies import joint

    records = joint.read_records(Path(joint.__file__).with_suffix(".jsonl"))
    page = (ROOT / "benchmarks/results/joint.md").read_text(encoding="utf-8")
    assert joint.page_tables(records).strip() in page
