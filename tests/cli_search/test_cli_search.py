"""``credibly search``: what a person types, what they see, what a program reads."""

import json

import numpy as np
import pytest

from credibly import Predictions
from credibly.cli import main
from credibly.retrieve import Joint, fit_joint, search

LABELS = ["fork", "apple", "knife", "dining table"]


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    chances = rng.random((60, 4))
    truth = (rng.random((60, 4)) < chances).astype(int)
    truth[:5] = 0
    truth[5:10] = -1
    path = tmp_path / "predictions.parquet"
    Predictions.from_arrays(
        probabilities=chances, targets=truth, labels=LABELS, ids=[f"{i:02d}.jpg" for i in range(60)]
    ).write(path)
    return path


def run(*arguments):
    return main(["search", *map(str, arguments)])


def test_the_table_has_rows_conditions_and_the_hits_to_expect(file, capsys):
    assert run(file, '+fork -"dining table"', "--top", 3) == 0
    shown = capsys.readouterr().out
    answer = search(file, '+fork -"dining table"', top=3)
    for text in ("+fork", '-"dining table"', "probability", "truth", *answer.ids):
        assert text in shown
    assert f"{answer.expected_hits:.1f} hits expected among 60 rows" in shown
    assert f"{answer.known_hits} are there" in shown


def test_json_is_the_answer(file, capsys):
    assert run(file, "(fork | apple) & !knife", "--json", "--top", 2) == 0
    document = json.loads(capsys.readouterr().out)
    answer = search(file, "(fork | apple) & !knife", top=2)
    assert document == answer.to_dict()
    assert document["results"][0].keys() >= {"id", "probability", "conditions"}
    assert document["expected_hits"] == pytest.approx(answer.expected_hits)


def test_explain_shows_the_sql(file, capsys):
    assert run(file, "+fork -knife", "--explain") == 0
    shown = capsys.readouterr().out
    assert "-knife" in shown
    assert 'CAST("p:knife" AS DOUBLE)' in shown
    assert "ORDER BY probability DESC, id" in shown
    assert run(file, "+fork", "--explain", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["sql"]) == 2


def test_a_contradiction_is_said(file, capsys):
    assert run(file, "+fork -fork") == 0
    assert "contradicts itself" in capsys.readouterr().out


def test_paths_are_shown_where_the_image_is_there(file, tmp_path, capsys):
    best = search(file, "+fork", top=1).ids[0]
    (tmp_path / f"{best}.png").write_bytes(b"")
    assert run(file, "+fork", "--images", tmp_path, "--top", 2, "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["results"]
    assert first["path"] == str(tmp_path / f"{best}.png")
    assert "path" not in second


def test_joint_is_fitted_on_the_file_named_else_beside_else_on_the_truth_itself(
    file, tmp_path, capsys
):
    held_out = Predictions.read(file)[:40]
    held_out.write(tmp_path / "held-out.parquet")
    fitted = fit_joint(held_out.probabilities, held_out.targets, held_out.labels).model

    def expected(*arguments):
        assert run(file, "+fork +apple", "--json", "--joint", *arguments) == 0
        shown = capsys.readouterr()
        return json.loads(shown.out)["expected_hits"], shown.err

    def directly(joint):
        return pytest.approx(search(file, "+fork +apple", joint=joint).expected_hits)

    value, remarks = expected("--joint-from", tmp_path / "held-out.parquet")
    assert value == directly(fitted)
    assert remarks == ""
    value, remarks = expected()
    assert "fitted on the truth of" in remarks
    assert expected("--quiet") == (value, "")
    fitted = Joint().fit(held_out.probabilities, held_out.targets, held_out.labels)
    fitted.write(f"{file}.joint.json")
    assert expected() == (directly(fitted), "")
    assert expected("--joint-from", f"{file}.joint.json") == (directly(fitted), "")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("+fork -knive", "Did you mean 'knife'?"),
        ("(fork", "this bracket is never closed"),
        ('"fork', "this quote is never closed"),
        ("", "must not be empty"),
    ],
)
def test_a_bad_query_ends_with_a_reason(file, query, reason, capsys):
    assert run(file, query) == 2
    assert reason in capsys.readouterr().err


def test_joint_needs_truth_and_joint_from_needs_joint(tmp_path, capsys):
    path = tmp_path / "bare.parquet"
    Predictions.from_arrays(probabilities=[[0.5, 0.2]], labels=["a", "b"], ids=["x"]).write(path)
    assert run(path, "a", "--joint") == 2
    assert "is fitted on rows with known truth" in capsys.readouterr().err
    assert run(path, "a", "--joint-from", "x.json") == 2
    assert "--joint-from needs --joint" in capsys.readouterr().err
