"""What people met first and must not meet again."""

from __future__ import annotations

import io
import re

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serve_accessibility import violations
from serve_browser import listening
from serve_models import Run, app_with

from credibly import Predictions
from credibly.app.server import create_app

HOSTS = ["testserver"]


@pytest.fixture(scope="module")
def client(address):
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of twelve megapixels, each a file of megabytes."""
    folder = tmp_path_factory.mktemp("photos")
    noise = np.random.default_rng(0).integers(0, 255, (300, 400, 3), dtype=np.uint8)
    for name in ("a", "b", "c"):
        Image.fromarray(noise).resize((4000, 3000)).save(folder / f"{name}.jpg", quality=95)
    (folder / "damaged.jpg").write_bytes((folder / "a.jpg").read_bytes()[:90_000])
    return folder


def test_tiles_show_small_copies_of_large_photos(photos, tmp_path):
    Predictions.from_arrays(
        probabilities=[[0.5]] * 4, labels=["x"], ids=["a", "b", "c", "damaged"]
    ).write(tmp_path / "p.parquet")
    client = TestClient(create_app([tmp_path / "p.parquet"], images=photos, hosts=HOSTS))
    page = client.get("/explore?q=x").text
    sources = re.findall(r'<img loading="lazy" src="([^"]+)"', page)
    assert len(sources) == 4
    sizes = []
    for source in sources:
        answer = client.get(source.replace("&amp;", "&"))
        assert "max-age" in answer.headers["cache-control"]
        sizes.append(len(answer.content))
        if "damaged" not in source:
            assert max(Image.open(io.BytesIO(answer.content)).size) == 320
    assert sum(sorted(sizes)[:3]) < 300_000
    assert max(Image.open(io.BytesIO(client.get("/image?id=a").content)).size) == 4000


def test_small_copies_stay_within_their_bound(photos, tmp_path, monkeypatch):
    Predictions.from_arrays(probabilities=[[0.5]] * 3, labels=["x"], ids=["a", "b", "c"]).write(
        tmp_path / "p.parquet"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def copies():
        return sorted(path.stat().st_size for path in temporary.rglob("*.jpg"))

    with TestClient(create_app([tmp_path / "p.parquet"], images=photos, hosts=HOSTS)) as client:
        first = client.get("/image?id=a&small=true").content
        assert copies() == [len(first)]
        monkeypatch.setattr("credibly.app.store.images.MOST_BYTES", int(1.5 * len(first)))
        for name in "bc":
            assert client.get(f"/image?id={name}&small=true").status_code == 200
            assert len(copies()) == 1
        assert client.get("/image?id=a&small=true").content == first
    assert not list(temporary.rglob("*.jpg"))


@pytest.mark.parametrize("path", ["/", "/labels", "/static/app.js", "/api/health", "/nowhere"])
def test_head_is_answered_as_get_without_the_body(client, path):
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.content == b""


def test_files_of_the_app_are_kept_by_the_browser_until_they_change(client):
    page = client.get("/").text
    for name in re.findall(r'"(/static/[^"]+)"', page):
        assert "?v=" in name
        answer = client.get(name)
        assert "immutable" in answer.headers["cache-control"]
        tag = {"if-none-match": answer.headers["etag"]}
        assert client.get(name, headers=tag).status_code == 304
    assert client.get("/static/app.js?v=old").headers["cache-control"] == "no-cache"


TITLES = (
    "/",
    "/explore",
    "/labels",
    "/label?name=fork",
    "/decide",
    "/review",
    "/compare",
    "/import",
)


def test_every_page_has_a_title_of_its_own_and_a_search_box(client):
    titles = [re.search("<title>(.*?)</title>", client.get(path).text)[1] for path in TITLES]
    assert len(set(titles)) == len(TITLES)
    for path in TITLES:
        text = client.get(path).text
        assert 'id="q"' in text, path
        assert 'rel="icon"' in text
        assert 'class="chip rule-chip"' in text


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("", "threshold 50 %"),
        ("threshold=0.2", "threshold 20 %"),
        ("average_size=2", "2 labels per row"),
        ("average_size=1", "1 label per row"),
        ("recall=0.9", "finds 90 % of the labels"),
        ("miss=6&false_alarm=2", "a miss costs 3 times a false alarm"),
    ],
)
def test_the_rule_in_force_is_shown_on_every_page(client, rule, words):
    for path in ("/labels", "/explore", "/decide"):
        assert words in client.get(f"{path}?{rule}").text


@pytest.mark.parametrize(
    ("parameters", "field", "words"),
    [
        ({"by": "cost", "miss": "-3"}, "miss", "must be more than 0; got -3"),
        ({"by": "cost", "miss": "5", "review": "x"}, "review", "must be a number; got x"),
        ({"by": "threshold", "threshold": "2"}, "threshold", "must be at most 1; got 2"),
        ({"by": "threshold", "label": "frok"}, "label", "Did you mean &#39;fork&#39;?"),
        ({"by": "recall", "recall": "7"}, "recall", "must be at most 0.999; got 7"),
        ({"by": "luck"}, "by", "must be one of &#39;threshold&#39;, &#39;cost&#39;"),
    ],
)
def test_decide_says_what_is_wrong_beside_the_field(client, parameters, field, words):
    answer = client.get("/decide", params=parameters)
    assert answer.status_code == 422
    said = re.search(rf'data-problem-of="{field}">(.*?)</span>', answer.text)[1]
    assert words in said
    assert re.search(r'id="result"[^>]*class="stale"', answer.text)


@pytest.mark.parametrize(
    ("path", "field", "words"),
    [
        ("/errors?low=3", "low", "must be at most 1; got 3"),
        ("/errors?low=0.8&high=0.2", "high", "must be at least 0.8; got 0.2"),
        ("/review?label=frok", "label", "Did you mean &#39;fork&#39;?"),
    ],
)
def test_lists_say_what_is_wrong_beside_the_field_and_are_greyed(client, path, field, words):
    answer = client.get(path)
    assert answer.status_code == 422
    assert words in re.search(rf'data-problem-of="{field}">(.*?)</span>', answer.text)[1]
    assert re.search(r'<(form|p) [^>]*class="[^"]*stale"', answer.text)


def test_a_label_is_shown_with_what_it_is_confused_with(tmp_path):
    y = np.array([[1, 0, 0]] * 50 + [[0, 1, 0]] * 50)
    p = np.where(y == 1, 0.9, 0.1)
    p[50:80, 0] = 0.8  # dogs that are taken for cats
    p[:20, [0, 2]] = 0.2, 0.7  # cats that are taken for foxes
    labels = ["cat", "dog", "fox"]
    Predictions.from_arrays(probabilities=p, targets=y, labels=labels).write(tmp_path / "p.parquet")
    page = TestClient(create_app([tmp_path / "p.parquet"], hosts=HOSTS)).get("/label?name=cat").text
    found = page[page.index('id="confusions"') :]
    wrongly, missed = found.split("<h3>")[1:3]
    assert "dog</a></th><td>30 of 30" in wrongly
    assert "fox</a></th><td>20 of 20" in missed
    assert "fox" not in wrongly


def test_where_no_label_is_probably_wrong_those_that_contradict_the_model_are_reviewed(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.beta(0.2, 0.6, (400, 3))
    y = (rng.random(p.shape) < p).astype(np.int8)
    ids = [f"r{row}" for row in range(400)]
    one = Predictions.from_arrays(probabilities=p, targets=y, labels=["a", "b", "c"], ids=ids)
    one.write(tmp_path / "p.parquet")
    log = tmp_path / "log.jsonl"
    client = TestClient(create_app([tmp_path / "p.parquet"], annotate=log, hosts=HOSTS))
    assert client.get("/api/entries?kind=probably-wrong").json()["total"] == 0
    wrong = (p >= 0.5) != (y == 1)
    page = client.get("/review").text
    assert "contradict the model most" in page
    assert f"</strong> of {wrong.sum()} labels that contradict the model most checked" in page
    first = re.findall(r'<li class="tile" data-id="r(\d+)" data-label="(.)"', page)[:2]
    apart = np.where(y == 1, -1.0, p), np.where(y == 1, 1 - p, -1.0)  # a false alarm, a miss
    assert [(int(row), "abc".index(label)) for row, label in first] == [
        np.unravel_index(each.argmax(), p.shape) for each in apart
    ]
    assert "No</strong> label is probably wrong" in client.get("/explore?kind=probably-wrong").text


def test_explore_without_a_query_shows_the_rows_of_the_file(client):
    page = client.get("/explore?top=5").text
    assert re.findall(r'<li class="tile" data-id="([^"]+)"', page) == [
        f"img/{row:03d}" for row in range(5)
    ]
    assert "start=5" in page


def test_an_empty_view_says_so(client):
    assert "There are none." in client.get("/errors?low=0.9").text


def test_a_view_of_two_files_names_both(client):
    page = client.get("/explore?kind=disagreement").text
    assert "returned by only one of ours and theirs" in page
    assert re.search(r"ours: [\d.]+ %, theirs: [\d.]+ %", page)


@pytest.mark.browser
def test_tiles_have_a_size_and_more_come_while_scrolling(page):
    page.goto("/explore?kind=missed")
    assert page.locator(".tile").count() == 24
    before = page.locator(".tile").first.bounding_box()["width"]
    page.locator("#tile-size").fill("20")
    assert page.locator(".tile").first.bounding_box()["width"] > before
    page.mouse.wheel(0, 20_000)
    page.wait_for_selector(".tile:nth-child(48)")
    ids = page.locator(".tile").evaluate_all(
        "all => all.map((t) => t.dataset.id + t.dataset.label)"
    )
    assert len(set(ids)) == len(ids)
    page.locator(".tile input[name=entry]").nth(30).check()
    assert page.locator("#selected").inner_text() == "1 selected"


@pytest.mark.browser
def test_every_picture_of_a_review_is_there_before_it_is_printed(page):
    page.goto("/review")
    page.wait_for_load_state("networkidle")
    there = page.locator("#tiles img").evaluate_all("all => all.map((each) => each.naturalWidth)")
    assert len(there) > 5
    assert min(there) > 0
    current = page.locator(".tile.current img, .tile.current .muted").first
    page.keyboard.press("ArrowRight")
    assert current.get_attribute("src") is None or "small" not in current.get_attribute("src")
    page.emulate_media(media="print")
    assert page.locator(".tile:visible").count() == page.locator(".tile").count()


@pytest.mark.browser
def test_numbers_of_other_inputs_are_greyed_until_the_input_is_right(page):
    page.goto("/decide?by=cost&miss=5")
    page.fill("form[data-live] input[name=miss]", "-3")
    page.wait_for_selector("#result.stale")
    assert "more than 0" in page.locator('[data-problem-of="miss"]').inner_text()
    page.fill("form[data-live] input[name=miss]", "7")
    page.wait_for_selector("#result:not(.stale)")
    assert page.locator('[data-problem-of="miss"]').inner_text() == ""
    assert "miss=7" in page.url


@pytest.mark.browser
def test_the_cut_is_dragged_in_the_chart(page):
    page.goto("/decide?by=threshold&threshold=0.5")
    chart = page.locator("svg.draggable").first
    area = chart.bounding_box()
    line = page.locator("[data-cut]").first.bounding_box()
    page.mouse.move(line["x"], area["y"] + area["height"] / 2)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.8, area["y"] + area["height"] / 2, steps=4)
    page.mouse.up()
    page.wait_for_url(lambda address: "threshold=0.7" in address or "threshold=0.8" in address)


@pytest.mark.browser
def test_colours_are_chosen_and_kept(page):
    page.goto("/")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != before
    page.goto("/labels")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert violations(page, rules=["color-contrast"]) == []


@pytest.mark.parametrize(
    ("tried_row", "unlike"),
    [([0.9, 0.06, 0.06], ""), ([0.9, 0.9, 0.9], "similar"), ([0.9, 0.08, 0.08], "less sure")],
)
def test_a_row_unlike_all_known_ones_is_told(tmp_path, tried_row, unlike, monkeypatch):
    rng = np.random.default_rng(0)
    p = np.full((300, 3), 0.05)
    p[np.arange(300), rng.integers(0, 3, 300)] = 0.9
    p += rng.uniform(0, 0.02, p.shape)
    y = (p > 0.5).astype(int)
    labels = ["a", "b", "c"]
    Predictions.from_arrays(probabilities=p, targets=y, labels=labels).write(tmp_path / "p.parquet")
    row = Predictions.from_arrays(probabilities=[tried_row], labels=labels)
    run = Run(row, kind="features", shape=(1,))
    page = (
        TestClient(app_with(tmp_path / "p.parquet", run, monkeypatch)).get("/try?features=1").text
    )
    said = re.search(r'id="unlike">(.*?)</p>', page)
    assert unlike in said[1] if unlike else said is None


# Import -----------------------------------------------------------------------------------------


def table(rows=300):
    rng = np.random.default_rng(0)
    p = rng.random((rows, 2))
    y = rng.random(p.shape) < p
    lines = ["image,prob_cat,prob_dog,true_cat,true_dog"]
    lines += [
        f"pic {k},{a:.4f},{b:.4f},{int(c)},{int(d)}"
        for k, ((a, b), (c, d)) in enumerate(zip(p, y, strict=True))
    ]
    return "\n".join(lines).encode()


def test_a_server_without_a_file_opens_on_drop_a_file():
    client = TestClient(create_app([], hosts=HOSTS))
    page = client.get("/")
    assert page.url.path == "/import"
    assert "Drop a file" in page.text
    assert client.get("/explore").status_code == 400


def test_a_foreign_file_opens_on_the_import_page_and_stays_where_it_is(tmp_path):
    path = tmp_path / "other.csv"
    path.write_bytes(table())
    app = create_app([path], hosts=HOSTS)
    assert app.first_page.startswith("/import?token=")
    with TestClient(app) as client:
        page = client.get(app.first_page)
        assert "other.csv" in page.text
        assert 'name="id_column" value="image"' in page.text
        assert 'name="loss" value="bce"' in page.text
    assert path.read_bytes() == table()


@pytest.mark.parametrize("method", ["none", "auto"])
def test_what_is_imported_opens_in_every_page_with_its_ids(method):
    with listening(create_app([])) as where, httpx.Client(base_url=where, timeout=120) as client:
        client.follow_redirects = True
        page = client.post("/import", files={"file": ("mine.csv", table())})
        token = page.url.params["token"]
        asked = {"token": token, "values": "probabilities", "method": method}
        asked |= {"id_column": "image", "value_columns": "prob_*", "truth_columns": "true_*"}
        opened = client.post("/import/open", data=asked)
        assert opened.status_code == 200, opened.text
        assert opened.url.path == "/"
        assert "mine" in opened.text
        for path in ("/labels", "/decide", "/explore?q=cat", "/label?name=cat"):
            assert client.get(path).status_code == 200, path
        assert client.get("/api/row?id=pic 7").json()["id"] == "pic 7"
        assert client.get("/api/health").json()["predictions"][0]["rows"] == 300


@pytest.mark.browser
def test_enter_calibrates_a_file_that_holds_truth(open_page, tmp_path):
    (tmp_path / "mine.csv").write_bytes(table())
    app = create_app([tmp_path / "mine.csv"])
    with listening(app) as where:
        page = open_page(base_url=where)
        page.goto(app.first_page)
        page.check("input[value=probabilities]")
        page.locator("input[name=id_column]").press("Enter")
        page.wait_for_selector("#stages")
        assert "show=true" in page.url


@pytest.mark.browser
def test_importing_shows_that_it_is_at_work(open_page, tmp_path):
    (tmp_path / "mine.csv").write_bytes(table())
    with listening(create_app([tmp_path / "mine.csv"])) as where:
        page = open_page(base_url=where)
        page.goto("/import")
        page.set_input_files("#file", str(tmp_path / "mine.csv"))
        page.get_by_role("button", name="Import").click()
        page.wait_for_url("**token=**")
        page.check("input[value=probabilities]")
        page.evaluate("addEventListener('submit', (event) => event.preventDefault())")
        page.get_by_role("button", name="Calibrate").click()  # the answer takes its time
        page.wait_for_selector("form.mapping [data-busy-note]:not([hidden])")
        assert "Calibrating" in page.locator("form.mapping [data-busy-note]").inner_text()
