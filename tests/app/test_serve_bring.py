"""Bring a file: declared as on the command line, worked on in a process with limits, taken away."""

from __future__ import annotations

import html
import io
import json
import re
import shlex
import stat
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from serve_accessibility import look_at, violations
from serve_browser import ARTIFACTS
from serve_pages import long_numbers
from starlette.testclient import TestClient

import credibly as cr
from credibly.app.pages import import_file as importing
from credibly.app.pages.import_file import suggested
from credibly.app.rendering import metric
from credibly.app.server import create_app, import_worker
from credibly.app.server import uploads as upload_store
from credibly.app.server.uploads import UploadedFile, Uploads
from credibly.checks import InputError
from credibly.child_processes import Worker
from credibly.cli import main

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(400, 3)).astype(np.float32)
TRUTH = (RNG.random(SCORES.shape) < 1 / (1 + np.exp(-2 * SCORES))).astype(np.int8)
LABELS = ["cat", "<b>dog</b>", "cow"]
IDS = [f"{row:03d}" for row in range(400)]


def table(values="pred_*", truth="true_*", scores=SCORES):
    columns = {"image_id": IDS}
    columns |= {values.replace("*", name): scores[:, t] for t, name in enumerate(LABELS)}
    return columns | {truth.replace("*", name): TRUTH[:, t] for t, name in enumerate(LABELS)}


def as_csv(columns):
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    return "\n".join(lines).encode()


def as_parquet(columns, **options):
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, **options)
    return file.getvalue()


def as_npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


CSV = as_csv(table())
DECLARED = {
    "show": "true",
    "values": "logits",
    "loss": "bce",
    "value_columns": "pred_*",
    "truth_columns": "true_*",
    "id_column": "image_id",
}


@pytest.fixture
def in_process(monkeypatch):
    """The worker's code in this process: without its start, which takes seconds."""

    class InProcess(Worker):
        def ask(self, job):
            return json.dumps(import_worker.answer(json.loads(job))).encode()

    monkeypatch.setattr(importing, "Worker", InProcess)


@pytest.fixture
def client(shelf):
    with TestClient(create_app([shelf / "ours.parquet"], hosts=["testserver"])) as client:
        yield client


def bring(client, content=CSV, name="scores.csv", truth=None):
    files = {"file": (name, content), **({} if truth is None else {"truth": truth})}
    answer = client.post("/import", files=files)
    return answer, answer.url.params.get("token")


def problem(page, field=r"\w*"):
    beside = rf'<span [^>]*data-problem-of="{field}">([^<]+)</span>'
    found = re.search(rf'{beside}|id="problem">(.*?)</pre>', page.text, re.S)
    return html.unescape(found[1] or found[2]) if found else ""


def test_a_file_is_calibrated_as_the_command_line_does_it(client, tmp_path, monkeypatch, capsys):
    """In a process of its own, as the server does it."""
    page, token = bring(client)
    assert page.status_code == 200
    assert "400 rows, 7 columns" in page.text
    for name, value in {"value_columns": "pred_*", "truth_columns": "true_*"}.items():
        assert f'name="{name}" value="{value}"' in page.text
    assert "&lt;b&gt;dog" in page.text
    shown = client.get("/import", params={"token": token, **DECLARED})
    assert problem(shown) == ""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scores.csv").write_bytes(CSV)
    command = html.unescape(re.search(r'id="command">(.*?)</code>', shown.text)[1])
    words = shlex.split(command)
    assert words[:3] == ["credibly", "calibrate", "scores.csv"]
    assert main([*words[1:], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    for stage in said["stages"].values():
        for name in ("NLL", "ACE", "ECE", "Brier"):
            assert f"<td>{metric(stage[name], name)}</td>" in shown.text
    values = re.compile(r'<table id="preview">.*?</table>', re.S)  # as they stand in the file
    assert long_numbers(values.sub("", shown.text)) == []
    taken = client.get("/import/file", params={"token": token, **DECLARED, "format": "parquet"})
    (tmp_path / "taken.parquet").write_bytes(taken.content)
    ours, theirs = (
        cr.Predictions.read(tmp_path / f"{n}.parquet") for n in ("taken", "predictions")
    )
    np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)
    assert ours.labels == LABELS
    assert ours.ids.tolist() == IDS
    assert ours.metadata["source"] == "scores.csv"
    taken = client.get("/import/file", params={"token": token, **DECLARED, "format": "map"})
    assert taken.json() == json.loads((tmp_path / "map.json").read_text())
    taken = client.get("/import/file", params={"token": token, **DECLARED, "format": "csv"})
    lines = taken.text.splitlines()
    assert lines[0] == "id," + ",".join(LABELS)
    values = np.array([line.split(",")[1:] for line in lines[1:]], dtype=float)
    np.testing.assert_allclose(values, ours.probabilities, rtol=1e-6)


FILES = {
    "parquet": ("x.parquet", as_parquet(table()), {}),
    "usual names": (
        "x.csv",
        as_csv(table("s:*", "y:*")),
        {"value_columns": "", "truth_columns": ""},
    ),
    "npz": (
        "x.npz",
        as_npz(scores=SCORES, targets=TRUTH, labels=LABELS, ids=IDS),
        {"value_columns": "", "truth_columns": "", "id_column": ""},
    ),
    "npz with other names": (
        "x.npz",
        as_npz(logits=SCORES, gold=TRUTH),
        {"value_columns": "logits", "truth_columns": "gold", "id_column": ""},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_numbers(client, in_process, name):
    _, token = bring(client)
    expected = client.get("/import", params={"token": token, **DECLARED}).text
    file, content, changes = FILES[name]
    page, token = bring(client, content, file)
    found = client.get("/import", params={"token": token, **DECLARED, **changes})
    assert problem(found) == ""
    stages = [
        re.search(r'<table id="stages">.*?</table>', t, re.S)[0] for t in (expected, found.text)
    ]
    assert stages[0] == stages[1]
    for field in ("value_columns", "truth_columns"):  # the names told it
        assert f'name="{field}" value="{changes.get(field, DECLARED[field])}"' in page.text or (
            name == "usual names"
        )


def test_probabilities_and_a_truth_apart(client, in_process):
    given = {"id": IDS, **dict(zip(LABELS, (1 / (1 + np.exp(-SCORES))).T, strict=True))}
    truth = as_csv(
        {"id": [f"{name}.jpg" for name in IDS], **dict(zip(LABELS, TRUTH.T, strict=True))}
    )
    page, token = bring(client, as_csv(given), "p.csv", ("y.csv", truth))
    assert "truth in <strong>y.csv</strong>" in page.text
    asked = {"token": token, "show": "true", "values": "probabilities", "suffix": ".jpg"}
    found = client.get("/import", params=asked)
    assert problem(found) == ""
    assert "probabilities as given" in found.text
    assert "--truth y.csv" in html.unescape(found.text)
    page, token = bring(client, as_csv(given), "p.csv")
    asked["token"] = token
    assert "it has no targets" in problem(client.get("/import", params=asked))
    added = client.post("/import", data={"token": token}, files={"truth": ("y.csv", truth)})
    assert "truth in <strong>y.csv</strong>" in added.text
    assert problem(client.get("/import", params=asked)) == ""


def test_a_loss_that_does_not_fit_and_turned_columns_are_told(client, in_process):
    _, token = bring(client)
    found = client.get("/import", params={"token": token, **DECLARED, "loss": "asl"})
    assert "does not fit these scores" in found.text
    _, token = bring(client, as_csv(table(scores=-SCORES)))
    found = client.get("/import", params={"token": token, **DECLARED})
    assert "Check the sign of the scores" in found.text


NAN = SCORES.copy()
NAN[7, 1] = np.nan
DECLARATIONS = [
    ("values", {"values": ""}, CSV, "logits or probabilities. This is not guessed"),
    ("loss", {"loss": "bec"}, CSV, "unknown loss 'bec'. Did you mean 'bce'?"),
    ("loss", {"loss": "asl(gamma_neg=__import__('os'))"}, CSV, "asl"),
    ("method", {"method": "magic"}, CSV, "the calibrator must be one of"),
    (
        "value_columns",
        {"value_columns": "prd_*"},
        CSV,
        "scores.csv: there must be columns called 'prd_*'",
    ),
    ("truth_columns", {"truth_columns": "true_c*"}, CSV, "there must be a column"),
    ("id_column", {"id_column": "name"}, CSV, "there must be a column 'name'"),
    ("values", {"values": "probabilities"}, CSV, "must lie in [0, 1]"),
    ("", {}, as_csv(table(scores=NAN)), "must have a number in every row; row 7 has none"),
    ("values", {}, as_csv(table(scores=1 / (1 + np.exp(-SCORES)))), "all values lie in [0, 1]"),
    ("", {"truth_columns": "pred_*"}, CSV, "scores.csv"),
    ("", {}, as_csv({k: v[:1] for k, v in table().items()}), "at least 2"),
    ("coding", {"coding": "x"}, CSV, "got x"),
]


@pytest.mark.parametrize(
    ("field", "changes", "content", "words"), DECLARATIONS, ids=range(len(DECLARATIONS))
)
def test_what_is_declared_wrongly_is_told_beside_the_field(
    client, in_process, field, changes, content, words
):
    _, token = bring(client, content)
    found = client.get("/import", params={"token": token, **DECLARED, **changes})
    assert found.status_code == 400
    assert words in problem(found, field)
    assert "'y:" not in problem(found, field)  # the file has no such column
    assert ('id="problem"' in found.text) == (not field)
    assert "/tmp" not in problem(found)
    assert "show before and after" in found.text  # the form is there to mend it


WRONG = [
    ("x.csv", b"", "x.csv"),
    ("x.csv", b"\xff\xfe\x00\x01", "x.csv"),
    ("x.csv", b"a,a\n1,2\n", None),
    ("x.parquet", b"PAR1 nothing", "x.parquet must be complete Parquet"),
    ("x.npz", b"PK\x03\x04 nothing", "x.npz"),
    ("x.npy", b"\x93NUMPY", "x.npy"),
    ("x.feather", b"ARROW1", "x.feather must be a complete Arrow file"),
    ("x.exe", b"MZ", "x.exe must end in .csv"),
    ("x.pt", b"PK", "x.pt must end in .csv"),
    ("noending", b"1", "noending must end in .csv"),
]


@pytest.mark.parametrize(("name", "content", "words"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_file_is_told_in_the_page(client, in_process, name, content, words):
    page, _ = bring(client, content, name)
    if words is None:
        assert page.status_code == 200
        return
    assert page.status_code == 400
    assert words in problem(page)
    assert "/tmp" not in problem(page)
    assert 'type="file" id="file"' in page.text


def test_files_that_unpack_to_too_much_are_refused_by_the_real_worker(client):
    long = pa.array(["x" * 1_000_000]).dictionary_encode()
    column = pa.DictionaryArray.from_arrays(np.zeros(8000, dtype=np.int32), long.dictionary)
    bomb = as_parquet({"id": column, "a": np.zeros(8000)}, store_schema=False)
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("scores.npy", b"\x93NUMPY\x01\x00" + b"\0" * 10_000_000)
    for name, content in (("x.parquet", bomb), ("x.npz", zeros.getvalue())):
        assert len(content) < 3_000_000
        page, _ = bring(client, content, name)
        assert page.status_code == 400
        assert name in problem(page)


def test_a_worker_that_takes_too_long_is_ended(client, monkeypatch):
    monkeypatch.setattr(importing, "SECONDS", 0.01)
    page, _ = bring(client, b"a,b\n1,2\n", "x.csv")
    assert page.status_code == 400
    assert "x.csv could not be processed within 45 seconds and 3 GB" in problem(page)


def test_more_values_than_the_api_takes_are_refused(client, in_process, monkeypatch):
    monkeypatch.setattr(import_worker, "MOST_VALUES", 1000)
    _, token = bring(client)
    found = client.get("/import", params={"token": token, **DECLARED})
    assert "must hold at most 1,000 values; it holds 400 × 3" in problem(found)


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_are_refused_kindly(tmp_path, seed):
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 256, int(rng.integers(0, 300)), dtype=np.uint8).tobytes()
    whole = {".csv": CSV, ".parquet": as_parquet(table()), ".npz": as_npz(scores=SCORES)}
    for ending, content in whole.items():
        at = int(rng.integers(0, len(content)))
        path = tmp_path / f"x{ending}"
        for damaged in (noise, content[:at], content[:at] + noise + content[at + len(noise) :]):
            path.write_bytes(damaged)
            found = import_worker.answer({"work": "preview", "path": str(path)})
            assert "error" in found or found["names"] is not None


def test_other_sites_cannot_bring(client):
    answer = client.post(
        "/import", files={"file": ("x.csv", CSV)}, headers={"origin": "http://evil.example"}
    )
    assert answer.status_code == 403


def test_a_file_is_deleted_on_request_and_unknown_ones_are_told(client, in_process):
    _, token = bring(client)
    folder = client.app.app.state.served.uploads.find(token).folder
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    answer = client.post("/import", data={"token": token, "forget": "true"})
    assert answer.status_code == 200
    assert not folder.exists()
    for path in ("/import", "/import/file"):
        gone = client.get(path, params={"token": token, **DECLARED})
        assert gone.status_code == 400
        assert "no longer here" in gone.text
    for other in ("../../etc", "a" * 99, "%2e%2e"):
        assert client.get("/import", params={"token": other}).status_code == 400


def test_files_of_a_server_are_deleted_when_it_stops(shelf):
    app = create_app([shelf / "ours.parquet"], hosts=["testserver"])
    with TestClient(app) as client:
        bring(client, b"nonsense", "x.npz")
        kept = app.app.state.served.uploads.add(UploadedFile("x.csv", CSV), None)
        assert kept.path.exists()
    assert not kept.folder.parent.exists()


def small(number=0):
    return UploadedFile(f"x{number}.csv", b"1" * 1000)


def test_the_store_is_bounded_in_number_bytes_and_age(monkeypatch):
    uploads = Uploads()
    try:
        kept = [uploads.add(small(n), None) for n in range(upload_store.MOST_UPLOADS + 3)]
        assert [each.folder.exists() for each in kept] == [False] * 3 + [True] * (
            upload_store.MOST_UPLOADS
        )
        uploads.find(kept[3].token)  # looked at: the others are older now
        monkeypatch.setattr(upload_store, "MOST_BYTES", 2500)
        uploads.tidy()
        assert [each.folder.exists() for each in kept[3:]] == [True] + [False] * 6 + [True]
        with pytest.raises(InputError, match="no longer here"):
            uploads.find(kept[4].token)
        monkeypatch.setattr(upload_store, "KEPT_SECONDS", -1.0)
        uploads.tidy()
        assert not any(each.folder.exists() for each in kept)
    finally:
        uploads.close()


def test_results_of_a_file_are_few(client, in_process):
    _, token = bring(client)
    for method in ("none", "temperature", "affine", "beta", "affine"):
        page = client.get("/import", params={"token": token, **DECLARED, "method": method})
        assert problem(page) == ""
    folder = client.app.app.state.served.uploads.find(token).folder / "results"
    assert len(list(folder.iterdir())) <= importing.MOST_RESULTS


@pytest.mark.parametrize(
    "name",
    ["../../evil.csv", "a/b\\c.csv", "é ü.csv", "x" * 300 + ".csv", ".csv", "..csv", "a\0b.csv"],
)
def test_names_of_files_stay_inside(name):
    uploads = Uploads()
    try:
        kept = uploads.add(UploadedFile(name, b"1"), UploadedFile(name, b"2"))
        assert kept.path.resolve().is_relative_to(kept.folder.resolve())
        assert kept.truth.read_bytes() == b"2"
        assert kept.path.suffix == ".csv"
    finally:
        uploads.close()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["id", "s:a", "y:a"], ["id", "s:*", "y:*", "logits"]),
        (["Image_ID", "p_a", "p_b", "y_a", "y_b"], ["Image_ID", "p_*", "y_*", "probabilities"]),
        (["a_score", "a_true", "b_score", "b_true"], ["", "*_score", "*_true", "logits"]),
        (["a", "b", "gold a", "gold b"], ["", "*", "gold *", ""]),
        (["a", "b"], ["", "", "", ""]),
        ([], ["", "", "", ""]),
        (["true_a", "true_b"], ["", "", "true_*", ""]),
    ],
)
def test_names_tell_which_columns_belong_together(names, expected):
    fields = ("id_column", "value_columns", "truth_columns", "values")
    told = suggested(names)
    assert [told.get(field, "") for field in fields] == expected


# In a browser -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_bytes(CSV)
    return path


@pytest.mark.browser
def test_bringing_in_a_browser(open_page, file, in_process, tmp_path):
    page = open_page()
    page.goto("/")
    page.get_by_role("link", name="Import", exact=True).click()
    page.wait_for_url("**/import")
    look_at(page, "bring")
    page.set_input_files("#file", file)
    page.get_by_role("button", name="Import", exact=True).click()
    page.wait_for_url("**token=**")
    assert page.input_value("[name=value_columns]") == "pred_*"
    look_at(page, "bring-mapping")
    page.get_by_label("logits: scores").check()
    page.fill("form.mapping [name=loss]", "bce")
    page.get_by_role("button", name="show before and after").click()
    page.wait_for_selector("#stages")
    assert page.evaluate("document.activeElement.id") == "result"
    rows = page.locator("#stages tbody tr")
    assert rows.count() == 3
    first, last = (float(rows.nth(n).locator("td").first.inner_text()) for n in (0, 2))
    assert last < first
    assert page.locator("#result.stale").count() == 0
    look_at(page, "bring-result")
    with page.expect_download() as event:
        page.get_by_role("link", name="Predictions file").click()
    event.value.save_as(tmp_path / "taken.parquet")
    assert len(cr.Predictions.read(tmp_path / "taken.parquet")) == 400
    assert event.value.suggested_filename == "scores-calibrated.parquet"
    page.fill("form.mapping [name=loss]", "asl")
    page.wait_for_selector("#result.stale")


@pytest.mark.browser
def test_bringing_without_scripts_and_what_is_wrong(open_page, file, in_process):
    page = open_page(java_script_enabled=False)
    page.goto("/import")
    page.set_input_files("#file", file)
    page.get_by_role("button", name="Import", exact=True).click()
    page.wait_for_url("**token=**")
    page.get_by_label("probabilities", exact=True).check()
    page.get_by_role("button", name="show before and after").click()
    page.wait_for_selector("[data-problem-of=values]:not(:empty)")
    assert "must lie in [0, 1]" in page.locator("[data-problem-of=values]").inner_text()
    page.get_by_label("logits: scores").check()
    page.fill("form.mapping [name=loss]", "bce")
    page.get_by_role("button", name="show before and after").click()
    page.wait_for_selector("#stages")
    assert page.locator("#result svg[role=img]").count()
    page.get_by_role("button", name="Delete it").click()
    page.wait_for_url("**/import")


@pytest.mark.browser
def test_bringing_by_keyboard_and_by_dropping(open_page, in_process):
    page = open_page()
    page.goto("/import")
    dropped = page.evaluate_handle(
        """(text) => {
            const data = new DataTransfer();
            data.items.add(new File([text], "scores.csv", { type: "text/csv" }));
            return data;
        }""",
        CSV.decode(),
    )
    page.dispatch_event("[data-drop] >> nth=0", "drop", {"dataTransfer": dropped})
    page.wait_for_url("**token=**")
    page.focus("[name=values]")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.type("bce")
    page.get_by_role("button", name="show before and after").press("Enter")
    page.wait_for_selector("#stages")
    assert violations(page) == []
    page.screenshot(path=ARTIFACTS / "bring-keyboard.png")
