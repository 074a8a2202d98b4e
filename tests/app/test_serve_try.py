"""Try it: an image, a text or features go in; labels, how often they are right, rows like it."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from PIL import Image
from serve_accessibility import look_at, violations
from serve_browser import listening
from starlette.testclient import TestClient

import credibly as cr
from credibly.app.server import create_app
from credibly.data import Data
from credibly.train import fit, recipe

LABELS = ["bright", "<b>left</b>", "top"]
HOSTS = ["testserver", "127.0.0.1"]
BODY_LIMIT = 10 * 2**20
"""Bytes of a request."""


def world(kind, folder):
    """A run of a kind, its predictions of 300 rows, and pictures where rows have them."""
    rng = np.random.default_rng(0)
    x = rng.random((300, 5)).astype(np.float32)
    truth = (rng.random((300, 3)) < 1 / (1 + np.exp(-9 * (x[:, :3] - 0.5)))).astype(np.int8)
    ids = [f"r{row}" for row in range(300)]
    split = np.arange(300) % 3
    common = {"labels": LABELS, "targets": truth, "ids": ids, "split": split}
    images = None
    if kind == "features":
        data = Data(features=x, **common)
        chosen = recipe(model="mlp", epochs=40)
    elif kind == "images":
        pixels = rng.integers(0, 90, (300, 16, 16), dtype=np.uint8)
        for label in range(3):
            pixels[:, 5 * label : 5 * label + 5] += 150 * truth[:, label, None, None].astype(
                np.uint8
            )
        data = Data(images=pixels, **common)
        chosen = recipe(model="cnn", hidden=4, epochs=3)
        images = folder / "images"
        images.mkdir()
        for row in range(0, 300, 2):
            Image.fromarray(pixels[row]).save(images / f"r{row}.png")
    else:
        words = np.array(["grey", "red", "dog", "tree"])
        texts = [" ".join(words[1:][row.astype(bool)]) or "grey" for row in truth]
        data = Data(texts=[[text] for text in texts], **common)
        chosen = recipe()
    run = fit(data, chosen, folder=folder / "run")
    run.predict(data).write(folder / "all.parquet")
    return create_app([folder / "all.parquet"], run=folder / "run", images=images, hosts=HOSTS)


@pytest.fixture(scope="module")
def apps(tmp_path_factory):
    return {
        kind: world(kind, tmp_path_factory.mktemp(kind)) for kind in ("features", "images", "text")
    }


@pytest.fixture(scope="module")
def clients(apps):
    return {kind: TestClient(app, follow_redirects=True) for kind, app in apps.items()}


def test_a_server_with_a_run_alone_opens_on_try_it(apps, tmp_path):
    run = apps["features"].app.state.served.model.run.folder
    assert create_app([], run=run, hosts=HOSTS).first_page == "/try"
    assert create_app([run], run=run, hosts=HOSTS).first_page == "/compare"


def png(width=20, height=30, value=128):
    file = io.BytesIO()
    Image.new("L", (width, height), value).save(file, "PNG")
    return file.getvalue()


def shown(page):
    """Probabilities by label as the page shows them."""
    found = re.findall(r'<th scope="row"><a [^>]*>(.*?)</a></th><td>([\d.]+) %</td>', page)
    return {label: float(value) for label, value in found}


ROW = [0.9, 0.1, 0.5, 0.5, 0.5]


def test_every_way_to_give_features_shows_the_same_prediction(clients):
    client = clients["features"]
    answer = client.post("/api/predict", json={"features": [ROW]}).json()
    line = ", ".join(map(str, ROW))
    names = "a,b,c,d,e\n" + line + "\n" + line
    given = [
        client.get("/try", params={"features": line}),
        client.post("/try", data={"features": line}, files={}),
        client.post("/try", data={"features": json.dumps(ROW)}),
        client.post("/try", data={"features": line.replace(",", ";")}),
    ]
    for name, content in {
        "x.csv": names.encode(),
        "x.json": json.dumps({"features": [ROW]}).encode(),
        "x.txt": line.replace(",", "\t").encode(),
    }.items():
        given.append(client.post("/try", files={"file": (name, content)}))
    for page in given:
        assert page.status_code == 200, page.text
        values = shown(page.text)
        assert list(values) == sorted(values, key=lambda label: -values[label])
        for label, value in zip(LABELS, answer["probabilities"][0], strict=True):
            escaped = label.replace("<", "&lt;").replace(">", "&gt;")
            assert values[escaped] == pytest.approx(100 * value, abs=0.051)
    assert "first of 2 rows" in given[4].text
    assert "features=0.9" in str(given[1].url)  # what is short goes into the address


def test_the_page_says_how_often_the_label_was_right_and_links_known_rows(clients, apps):
    page = clients["features"].get("/try", params={"features": " ".join(map(str, ROW))}).text
    rows = cr.Predictions.read(apps["features"].app.state.served.files[0].path)
    answer = clients["features"].post("/api/predict", json={"features": [ROW]}).json()
    apart = np.abs(rows.probabilities[:, 0].astype(float) - answer["probabilities"][0][0])
    nearest = apart <= min(0.1, np.sort(apart)[199])
    share = rows.targets[nearest, 0].mean()
    assert f"<td>{100 * share:.1f} %</td>" in page
    assert f"{nearest.sum()} rows, " in page
    ids = re.findall(r'<li class="tile" data-id="(r\d+)">', page)
    assert len(ids) == 8
    assert f'href="/row?id={ids[0]}"' in page
    apart = np.sqrt(rows.probabilities) - np.sqrt(np.float32(answer["probabilities"][0]))
    total = rows.probabilities.sum(1) + sum(answer["probabilities"][0])
    distance = np.sqrt((apart**2).sum(1) / total)
    by_id = dict(zip(map(str, rows.ids), distance, strict=True))
    assert [by_id[id] for id in ids] == pytest.approx(np.sort(distance)[:8], abs=1e-3)


@pytest.mark.parametrize(
    ("rule", "words", "chosen"),
    [
        ({}, "Rule: the one saved with the run", None),
        ({"threshold": 0}, "a probability of 0 % or more", LABELS),
        ({"threshold": 1}, "a probability of 100 % or more", []),
        ({"average_size": 3}, "3 labels per row", LABELS),
        ({"miss": 1, "false_alarm": 1000}, "the lowest cost, if a miss costs 1", []),
    ],
    ids=["own", "all", "none", "size", "cost"],
)
def test_the_set_is_that_of_the_rule_in_the_address(clients, rule, words, chosen):
    page = clients["features"].get("/try", params={"features": " ".join(map(str, ROW)), **rule})
    assert words in page.text
    if chosen is not None:
        sets = page.text.partition('id="set">')[2].partition("</p>")[0]
        assert sets.count("chip want") == len(chosen)


def test_an_image_is_shown_as_the_network_sees_it(clients):
    page = clients["images"].post("/try", files={"file": ("a.png", png(200, 100))})
    assert page.status_code == 200
    assert "data:image/png;base64," in page.text
    assert "img-src 'self' data:;" in page.headers["content-security-policy"]
    answer = clients["images"].post("/api/predict/image", content=png(200, 100)).json()
    assert shown(page.text)["bright"] == pytest.approx(
        100 * answer["probabilities"][0][0], abs=0.051
    )
    other = clients["images"].get("/labels")
    assert "data:" not in other.headers["content-security-policy"]


def test_long_and_short_texts_are_taken(clients):
    client = clients["text"]
    short = client.post("/try", data={"text": "red dog"}, files={"file": ("", b"")})
    assert "text=red+dog" in str(short.url)
    long = client.post("/try", data={"text": "red dog " * 1000})
    assert long.status_code == 200
    assert shown(long.text)
    assert client.post("/try", files={"file": ("a.txt", b"red dog")}).status_code == 200


WRONG = [
    ("features", {"data": {"features": "1 2 3"}}, "the 5 features that the run was trained on"),
    ("features", {"data": {"features": "1 2 x 4 5"}}, "must hold numbers; row 0, column 2"),
    ("features", {"data": {"features": "1 2 1e99 4 5"}}, "finite numbers; row 0, column 2"),
    ("features", {"data": {"features": "[1, [2], 3]"}}, "must hold numbers"),
    ("features", {"data": {"features": "[[1, 2], [3]]"}}, "rows of one length"),
    ("features", {"data": {"features": "[" * 1500}}, "JSON"),
    ("features", {"data": {"features": '{"x": 1}'}}, "does not store the names of its features"),
    ("features", {"files": {"file": ("x.npy", b"\x93NUMPY\x01\x00")}}, "must be text"),
    (
        "features",
        {"data": {"features": "a,b\n1,2\n3"}},
        "must have rows of one length, 2 as the names",
    ),
    ("features", {"files": {"file": ("x.csv", b"\xff\xfe\x00")}}, "must be text"),
    ("features", {"files": {"file": ("x.csv", png())}}, "must be text"),
    ("features", {"data": {"features": "  "}}, "this run takes features"),
    ("images", {"files": {"file": ("a.png", b"GIF89a")}}, "a.png"),
    ("images", {"files": {"file": ("a.png", png()[:40])}}, "a.png"),
    ("images", {"files": {"file": ("a.png", b"")}}, "a.png"),
    ("images", {"files": {"file": ("bomb.png", png(8000, 8000))}}, "25,000,000 pixels"),
    ("images", {"data": {"text": "red"}}, "takes images"),
    ("text", {"data": {"text": "x" * 1_000_001}}, "1,000,000 characters"),
    ("text", {"files": {"file": ("a.txt", b"\xff\xfe")}}, "UTF-8"),
    ("text", {"data": {"features": "1"}}, "this run takes texts"),
    ("text", {"content": b"--x\r\n", "headers": {"content-type": "text/plain"}}, "complete form"),
    ("text", {"content": b"a" * 99, "headers": {"content-type": "multipart/form-data"}}, "form"),
]


@pytest.mark.parametrize(("kind", "given", "words"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_cannot_be_predicted_is_told_in_the_page(clients, kind, given, words):
    answer = clients[kind].post("/try", **given)
    assert answer.status_code == 400
    assert "<h1>Try it</h1>" in answer.text
    field = "file" if kind == "images" or (kind == "features" and "files" in given) else kind
    beside = (
        rf'data-problem-of="{field}">([^<]+)</span>'
        if "content" not in given
        else r'id="problem">(.+?)</pre>'
    )
    assert words in re.search(beside, answer.text, re.S)[1].replace("&#39;", "'")


def test_forms_are_bounded(clients):
    kind = {"content-type": "application/x-www-form-urlencoded"}
    body = b"&".join(b"a%d=1" % number for number in range(31))
    answer = clients["text"].post("/try", content=body, headers=kind)
    assert answer.status_code == 400
    assert "at most 30 fields" in answer.text


@pytest.mark.parametrize("name", [r"..\..\evil.txt", "/etc/evil.txt", "C:/evil.txt"])
def test_files_are_called_by_their_names_without_folders(clients, name):
    head = f'--b\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    kind = {"content-type": "multipart/form-data; boundary=b"}
    body = head.encode() + b"\xff\xfe\r\n--b--\r\n"
    page = clients["text"].post("/try", content=body, headers=kind)
    assert 'data-problem-of="text">evil.txt must be a text in UTF-8' in page.text


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_refused_kindly(clients, seed):
    rng = np.random.default_rng(seed)
    content = rng.integers(0, 256, int(rng.integers(0, 200)), dtype=np.uint8).tobytes()
    for prefix in (b"", b"[", b"\x93NUMPY\x01\x00", b"1,2\n"):
        for ending in (".txt", ".npy", ".json", ".csv"):
            file = {"file": (f"x{ending}", prefix + content)}
            answer = clients["features"].post("/try", files=file)
            assert answer.status_code in (200, 400)
            assert (answer.status_code == 400) == ('data-problem-of="file">x' in answer.text)


def test_other_sites_cannot_try(clients):
    answer = clients["text"].post(
        "/try", data={"text": "red"}, headers={"origin": "http://evil.example"}
    )
    assert answer.status_code == 403


def test_other_labels_are_named_and_nothing_is_compared(apps, tmp_path):
    cr.Predictions.from_arrays(
        probabilities=np.full((30, 1), 0.5), targets=np.zeros((30, 1), int), labels=["other"]
    ).write(tmp_path / "other.parquet")
    state = apps["features"].app.state.served
    app = create_app([tmp_path / "other.parquet"], run=state.model.run.folder, hosts=HOSTS)
    client = TestClient(app)
    page = client.get("/try", params={"features": " ".join(map(str, ROW))})
    assert page.status_code == 200
    assert "are not those of the run" in page.text
    assert "the file has no truth for it" in page.text
    ruled = client.get("/try", params={"features": " ".join(map(str, ROW)), "threshold": 0.2})
    assert ruled.status_code == 400


# In a browser -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def addresses(apps):
    with (
        listening(apps["features"]) as features,
        listening(apps["images"]) as images,
        listening(apps["text"]) as text,
    ):
        yield {"features": features, "images": images, "text": text}


GIVEN = {"features": "0.9 0.1 0.5 0.5 0.5", "text": "red dog"}


def give(page, kind, tmp_path):
    if kind == "images":
        (tmp_path / "a.png").write_bytes(png())
        page.set_input_files("#file", tmp_path / "a.png")
    else:
        page.fill(f"#{kind}", GIVEN[kind])


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["features", "images", "text"])
def test_trying_in_a_browser(open_page, addresses, kind, tmp_path):
    page = open_page(base_url=addresses[kind])
    page.goto("/")
    page.get_by_role("link", name="Try it").click()
    page.wait_for_url("**/try")
    assert violations(page) == []
    give(page, kind, tmp_path)
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("#tried-labels")
    assert page.locator("#tried-labels tbody tr").count() == 3
    assert page.evaluate("document.activeElement.id") == "result"
    look_at(page, f"try-{kind}")
    if kind != "images":
        page.locator(f"#{kind}").press_sequentially("1")
        page.wait_for_selector("#result.stale")
    page.locator("#similar a").first.click()
    page.wait_for_url("**/row?**")


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["features", "images", "text"])
def test_trying_without_scripts(open_page, addresses, kind, tmp_path):
    page = open_page(base_url=addresses[kind], java_script_enabled=False)
    page.goto("/try?threshold=0.2")
    give(page, kind, tmp_path)
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("#tried-labels")
    assert "probability of 20 % or more" in page.locator("#result").inner_text()


@pytest.mark.browser
def test_an_image_is_dropped(open_page, addresses):
    page = open_page(base_url=addresses["images"])
    page.goto("/try")
    dropped = page.evaluate_handle(
        """(bytes) => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "a.png", { type: "image/png" }));
            return data;
        }""",
        list(png()),
    )
    page.dispatch_event("[data-drop]", "drop", {"dataTransfer": dropped})
    page.wait_for_selector("#tried-labels")
    seen = page.locator(".seen img")
    assert seen.evaluate("e => e.naturalWidth") == 16


@pytest.mark.browser
def test_features_by_keyboard_alone(open_page, addresses):
    page = open_page(base_url=addresses["features"])
    page.goto("/try")
    page.keyboard.type(GIVEN["features"])
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tried-labels")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Choose another"


@pytest.mark.browser
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_file_that_is_too_large_is_told(open_page, addresses, scripts, times, tmp_path):
    page = open_page(base_url=addresses["features"], java_script_enabled=scripts)
    page.goto("/try")
    (tmp_path / "x.csv").write_bytes(b"1," * (times * BODY_LIMIT // 2 + 1000))
    page.set_input_files("#file", tmp_path / "x.csv")
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("[role=alert]:visible", timeout=20_000)
    assert "MB" in page.locator("[role=alert]:visible").inner_text()
