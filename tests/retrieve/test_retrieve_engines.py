"""Properties of search: every engine gives the same ids, the same bits, the same expectation."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from credibly import InputError, Predictions
from credibly.retrieve import Index, Query, parse, probability, search

LABELS = ["fork", "apple", "knife", "dining table", "never"]
QUERIES = [
    "+fork",
    "-knife",
    "+fork +apple -knife",
    '+apple -"dining table" -knife -fork',
    "(fork | apple) & !knife",
    "fork & apple | knife & !fork | !apple & never",
    "fork | !fork",
    "+never",
]
each_query = pytest.mark.parametrize("query", QUERIES)


def table(rows=700, labels=LABELS, seed=0, ids=None):
    """Ties, 0s and 1s; zero-label rows, all-unknown rows, and a label that is never present."""
    rng = np.random.default_rng(seed)
    chances = np.round(rng.random((rows, len(labels))) ** 2, 1).astype(np.float32)
    truth = (rng.random(chances.shape) < chances).astype(np.int8)
    truth[:, -1] = 0
    truth[:20] = 0
    truth[rng.random(truth.shape) < 0.05] = -1
    truth[20:30] = -1
    names = [f"é{i:04d}" if i % 3 else f"Z{i:04d}" for i in rng.permutation(rows)]
    return (names if ids is None else ids), chances, truth


def write(where, ids, chances, truth=None, labels=LABELS, **extra):
    columns = {"id": pa.array(ids), **{name: pa.array(value) for name, value in extra.items()}}
    columns |= {f"p:{x}": pa.array(c) for x, c in zip(labels, chances.T.copy(), strict=True)}
    if truth is not None:
        columns |= {
            f"y:{x}": pa.array(y, mask=y < 0) for x, y in zip(labels, truth.T.copy(), strict=True)
        }
    pq.write_table(pa.table(columns), where, compression="zstd", use_dictionary=False)


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def file(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "predictions.parquet"
    write(path, *data)
    return path


def ranked(query, ids, chances, labels=LABELS):
    """Ids and probabilities by (probability down, id up), the definition."""
    scores = probability(query, chances, labels)
    order = sorted(range(len(ids)), key=lambda row: (-scores[row], ids[row]))
    return [ids[row] for row in order], [float(scores[row]) for row in order], scores


@each_query
@pytest.mark.parametrize("top", [1, 17, 700, 1000, 10_001])
def test_every_engine_gives_the_same_ids_and_bits(query, top, data, file):
    ids, chances, truth = data
    order, values, scores = ranked(query, ids, chances)
    index = Index(chances, LABELS, ids, truth)
    for answer in (
        search(file, query, top=top),
        index.search(query, top=top),
        Index.read(file).search(parse(query), top=top),
    ):
        assert answer.ids == order[:top]
        assert answer.probabilities == values[:top]
        assert answer.rows == len(ids)
        assert answer.expected_hits == pytest.approx(scores.sum(), rel=1e-12)


@each_query
@pytest.mark.parametrize("between", [(0.1, 0.5), (0.0, 0.2), (0.9, 1.0), (0.97, 0.98)])
def test_a_range_of_probabilities_is_a_search_of_the_rows_in_it(query, between, data):
    ids, chances, truth = data
    p = probability(query, chances, LABELS).astype(np.float32)
    inside = np.flatnonzero((p >= np.float32(between[0])) & (p <= np.float32(between[1])))
    answer = Index(chances, LABELS, ids, truth).search(query, top=50, between=between)
    assert answer.rows == len(inside)
    if not len(inside):
        assert (answer.hits, answer.expected_hits, answer.known_rows) == ([], 0, 0)
        return
    names = [ids[row] for row in inside]
    few = Index(chances[inside], LABELS, names, truth[inside]).search(query, top=50)
    assert answer.hits == few.hits
    for name in ("expected_hits", "known_rows", "known_expected", "known_hits"):
        assert getattr(answer, name) == pytest.approx(getattr(few, name), rel=1e-12)


@each_query
def test_hits_count_only_rows_whose_truth_is_known_for_the_query(query, data, file):
    ids, chances, truth = data
    places = [LABELS.index(name) for name in parse(query).labels]
    known = (truth[:, places] >= 0).all(axis=1)
    real = probability(query, np.maximum(truth, 0), LABELS) == 1
    _, _, scores = ranked(query, ids, chances)
    rows = {name: row for row, name in enumerate(ids)}
    for answer in (search(file, query, top=50), Index(chances, LABELS, ids, truth).search(query)):
        assert answer.known_rows == known.sum()
        assert answer.known_hits == (real & known).sum()
        assert answer.known_expected == pytest.approx(scores[known].sum(), rel=1e-12)
        for hit in answer.hits:
            row = rows[hit.id]
            assert hit.truth == (bool(real[row]) if known[row] else None)


@pytest.mark.parametrize("top", [1, 7, 40])
def test_ties_at_the_last_place_go_by_id_over_many_files(top, tmp_path):
    rng = np.random.default_rng(3)
    ids = [f"r{number:04d}" for number in rng.permutation(400)]
    chances = rng.choice(np.float32([0.1, 0.3, 1 / 3]), (400, 2))
    truth = rng.integers(-1, 2, (400, 2)).astype(np.int8)
    for file in range(25):
        own = slice(16 * file, 16 * file + 16)
        known = None if file % 5 == 4 else truth[own]
        write(tmp_path / f"{file:02d}.parquet", ids[own], chances[own], known, ["a", "b"])
    truth[[row for row in range(400) if row // 16 % 5 == 4]] = -1
    order, values, scores = ranked("+a -b", ids, chances, ["a", "b"])
    assert values[top - 1] == values[top]  # the last place is shared
    answer = search(tmp_path, "+a -b", top=top)
    assert (answer.ids, answer.probabilities) == (order[:top], values[:top])
    assert answer.expected_hits == pytest.approx(scores.sum(), rel=1e-12)
    known = (truth >= 0).all(axis=1)
    real = {name: bool(y[0] == 1 and y[1] == 0) for name, y in zip(ids, truth, strict=True)}
    unknown = {name for name, is_known in zip(ids, known, strict=True) if not is_known}
    assert answer.known_rows == known.sum()
    assert answer.known_hits == sum(real[name] for name in ids if name not in unknown)
    for hit in answer.hits:
        assert hit.truth == (None if hit.id in unknown else real[hit.id])


def test_soft_truth_is_no_truth_to_count_by(tmp_path):
    chances = np.array([[0.5], [0.5], [0.5]], np.float32)
    path = tmp_path / "soft.parquet"
    truth = np.array([[1.0], [0.4], [0.0]], np.float32)
    write(path, ["a", "b", "c"], chances, truth, ["dog"])
    for answer in (
        search(path, "dog"),
        Index(chances, ["dog"], ["a", "b", "c"], truth).search("dog"),
    ):
        assert (answer.known_rows, answer.known_hits) == (2, 1)
        assert [hit.truth for hit in answer.hits] == [True, None, False]


def test_conditions_carry_their_own_probability(data, file):
    ids, chances, _ = data
    answer = search(file, '+fork -"dining table"', top=3)
    for hit in answer.hits:
        row = chances[ids.index(hit.id)].astype(float)
        assert hit.conditions == {"+fork": row[0], '-"dining table"': 1 - row[3]}
    assert answer.to_dict()["results"][0]["conditions"] == dict(answer.hits[0].conditions)


def test_a_contradiction_finds_nothing_and_says_so(data, file):
    ids, chances, _ = data
    for answer in (search(file, "+fork -fork"), Index(chances, LABELS, ids).search("+fork -fork")):
        assert answer.contradiction
        assert answer.hits == []
        assert answer.expected_hits == 0
        assert answer.to_dict()["contradiction"] is True


def test_parts_together_are_the_whole(data, file, tmp_path):
    ids, chances, truth = data
    for start in range(0, len(ids), 200):
        rows = slice(start, start + 200)
        write(tmp_path / f"part-{start:04d}.parquet", ids[rows], chances[rows], truth[rows])
    (tmp_path / ".part-9.parquet.abc.part").write_bytes(b"half")
    (tmp_path / "_temporary.parquet").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not a part")
    for query in QUERIES:
        one, many = search(file, query, top=40), search(tmp_path, query, top=40)
        assert one.hits == many.hits
        assert (one.known_hits, one.rows) == (many.known_hits, many.rows)
        assert Index.read(tmp_path).search(query, top=40).hits == one.hits


# Large enough for the scan to refill its candidates.
@pytest.mark.parametrize("rows", [5_000, 60_000])
@pytest.mark.parametrize("coarse", [False, True])
def test_the_scan_agrees_with_sorting(rows, coarse):
    rng = np.random.default_rng(rows)
    chances = rng.random((rows, 6)).astype(np.float32) ** np.array([1, 8, 20, 3, 2, 1], np.float32)
    if coarse:
        chances = np.round(chances, 1)
    labels, ids = list("abcdef"), rng.permutation(rows)
    index = Index(chances, labels, ids)
    for query in ("+a", "+c -a", "+b +d -f", "-a -b", "+a +b +c +d +e +f", "(a|b) & !c"):
        scores = probability(query, chances, labels)
        order = np.lexsort((ids, -scores))[:100]
        answer = index.search(query, top=100)
        assert answer.ids == ids[order].tolist()
        assert answer.probabilities == scores[order].tolist()


def test_rows_without_ids_are_called_by_number():
    assert Index([[0.1], [0.9]], ["a"]).search("a").ids == [1, 0]


names = st.lists(
    st.one_of(
        st.text(
            st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from(
            ["select", "id", 'a"b', "a'b", "x; DROP TABLE y", "50%", "p:1", "`", "Dog", "dog", "--"]
        ),
    ),
    min_size=1,
    max_size=4,
    unique=True,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(labels=names, seed=st.integers(0, 99))
def test_no_label_name_reaches_the_engine_as_code(labels, seed, tmp_path):
    ids, chances, truth = table(30, labels, seed)
    path = tmp_path / "fuzzed.parquet"
    write(path, ids, chances, truth, labels)
    query = Query(tuple(labels[:2]), tuple(labels[2:]))
    order, values, _ = ranked(query, ids, chances, labels)
    for asked in (query, str(query)):
        answer = search(path, asked, top=30)
        assert (answer.ids, answer.probabilities) == (order, values)


@pytest.mark.parametrize("name", ["we[i]rd*?.parquet", "qu'ote\"s.parquet", "ü {x}.parquet"])
def test_no_file_name_reaches_the_engine_as_code(name, data, tmp_path):
    write(tmp_path / name, *data)
    write(tmp_path / "weird.parquet", *table(5, seed=1))
    assert search(tmp_path / name, "+fork").rows == len(data[0])


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, -0.1, 1.5])
def test_a_probability_that_is_none_is_named(wrong, tmp_path):
    ids, chances, _ = table(50)
    chances[7, 1] = wrong
    path = tmp_path / "p.parquet"
    write(path, ids, chances)
    with pytest.raises(
        InputError, match=rf"p\.parquet.*('p:apple' .* id '{ids[7]}'|row 7, .*'p:apple')"
    ):
        search(path, "+fork -apple")
    assert search(path, "+fork -knife").rows == 50  # the column was not asked for
    with pytest.raises(InputError, match=r"NaN|must lie in \[0, 1\]"):
        Index.read(path)


def test_a_missing_probability_is_named(tmp_path):
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"id": ["x", "y"], "p:a": pa.array([0.5, None], pa.float32())}), path)
    with pytest.raises(InputError, match="'p:a' of the row with id 'y'"):
        search(path, "a")


def test_an_unknown_label_gets_the_nearest(file):
    with pytest.raises(InputError, match=r"unknown label 'nife'\. Did you mean 'knife'"):
        search(file, "+fork -nife")
    with pytest.raises(InputError, match="no label 'nife'"):
        Index.read(file, labels=["nife"])
    with pytest.raises(InputError, match="unknown label 'apple'"):
        Index.read(file, labels=["fork"]).search("+fork -apple")


def test_parts_with_different_labels_are_told_apart(tmp_path):
    write(tmp_path / "1.parquet", *table(5), LABELS)
    write(tmp_path / "2.parquet", *table(5, LABELS[:-1]), LABELS[:-1])
    with pytest.raises(InputError, match=r"2\.parquet lacks 'never'"):
        search(tmp_path, "+fork")


@each_query
def test_shards_may_differ_in_all_but_their_labels(query, data, tmp_path):
    """Truth, types and the order of columns may differ; the rows are those of one file."""
    ids, chances, truth = data
    order = np.arange(len(LABELS))[::-1]
    wide, names = chances[:, order].astype(np.float64), [LABELS[place] for place in order]
    lacking = truth.copy()
    lacking[:200] = lacking[600:] = -1
    write(tmp_path / "0.parquet", ids[:200], chances[:200])
    write(tmp_path / "1.parquet", ids[200:400], wide[200:400], truth[200:400, order], names)
    soft = np.where(truth < 0, np.nan, truth).astype(np.float32)
    write(tmp_path / "2.parquet", ids[400:600], chances[400:600], soft[400:600])
    write(tmp_path / "3.parquet", ids[600:], chances[600:])
    expected = Index(chances, LABELS, ids, lacking).search(query, top=50)
    found = search(tmp_path, query, top=50)
    assert found.hits == expected.hits
    assert (found.rows, found.known_rows, found.known_hits) == (
        expected.rows,
        expected.known_rows,
        expected.known_hits,
    )
    assert Index.read(tmp_path).search(query, top=50).hits == expected.hits


def test_labels_that_differ_by_case_are_not_mixed_up_between_shards(tmp_path):
    write(tmp_path / "0.parquet", ["a"], np.float32([[0.1, 0.9]]), labels=["Dog", "dog"])
    write(tmp_path / "1.parquet", ["b"], np.float32([[0.8, 0.2]]), labels=["dog", "Dog"])
    found = search(tmp_path, "+dog -Dog")
    assert [hit.conditions["+dog"] for hit in found.hits] == pytest.approx([0.9, 0.8])
    assert found.hits == Index.read(tmp_path).search("+dog -Dog").hits


def test_a_folder_named_like_a_partition_changes_nothing(data, tmp_path):
    folder = tmp_path / "id=5" / "p:fork=0"
    folder.mkdir(parents=True)
    write(folder / "p.parquet", *data)
    assert search(folder, "+fork", top=3).ids == ranked("+fork", data[0], data[1])[0][:3]


def test_ids_that_are_numbers_are_read_as_text(tmp_path):
    chances = np.full((12, 1), 0.5, np.float32)
    write(tmp_path / "p.parquet", list(range(12)), chances, labels=["dog"])
    expected = sorted(map(str, range(12)))
    assert search(tmp_path / "p.parquet", "dog").ids == expected
    assert Index.read(tmp_path / "p.parquet").search("dog").ids == expected
    assert sorted(Predictions.read(tmp_path / "p.parquet").ids) == expected


def test_a_part_still_being_written_is_named(data, file, tmp_path):
    whole = Path(file).read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole)
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"b\.parquet must be a complete Parquet file.*wait until"):
        search(tmp_path, "+fork")


def test_what_is_not_there_or_not_predictions_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        search(tmp_path / "no.parquet", "+fork")
    with pytest.raises(InputError, match=r"must hold Parquet files \(\*\.parquet\); it has none"):
        search(tmp_path, "+fork")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="not a predictions file"):
        search(tmp_path / "x.parquet", "+fork")


@pytest.mark.parametrize("top", [0, -1, 2.5, True])
def test_top_must_be_a_whole_number(top, file):
    with pytest.raises(InputError, match="`top` must be a whole number"):
        search(file, "+fork", top=top)


def test_executors_are_known_by_name(file):
    with pytest.raises(InputError, match="`executor` must be one of 'local', 'spark'"):
        search(file, "+fork", executor="sqlite")


def test_an_index_needs_one_name_a_column_and_one_id_a_row():
    with pytest.raises(InputError, match="2 names, 1 different"):
        Index([[0.1, 0.2]], ["a", "a"])
    with pytest.raises(InputError, match="must name 1 rows; got 2"):
        Index([[0.1]], ["a"], ids=["x", "y"])
    with pytest.raises(InputError, match="must have rows and labels"):
        Index(np.empty((0, 1)), ["a"])


def test_files_are_opened_once_and_again_when_they_change(tmp_path, monkeypatch):
    from credibly.retrieve import sql

    opened = []

    class Counted(sql.Dataset):
        def __init__(self, *arguments, **options):
            opened.append(arguments)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(sql, "Dataset", Counted)
    folder = tmp_path / "shards"
    folder.mkdir()
    for name, low in (("a", 0.25), ("b", 0.75)):
        probabilities = np.array([[low], [low / 2]], np.float32)
        Predictions.from_arrays(
            probabilities=probabilities, labels=["fork"], ids=[f"{name}0", f"{name}1"]
        ).write(tmp_path / f"{name}.parquet")
    shutil.copy(tmp_path / "a.parquet", folder / "a.parquet")
    assert [search(folder, "+fork").ids[0] for _ in range(3)] == ["a0"] * 3
    assert len(opened) == 1
    shutil.copy(tmp_path / "b.parquet", folder / "b.parquet")
    assert search(folder, "+fork").ids[0] == "b0"
    (folder / "a.parquet").unlink()
    answer = search(folder, "+fork")
    assert answer.rows == 2
    assert len(opened) == 3
