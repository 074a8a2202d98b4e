"use strict";
// The pages work without this file; it adds chips, suggestions, keys and a live slider.

const home = new URL("..", document.currentScript.src).pathname; // "/", or what a proxy puts before it

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.submit();
});

// Colours: those of the system until somebody chooses -------------------------------------------
const theme = document.getElementById("theme");
if (theme) {
  const root = document.documentElement;
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const tell = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* not kept */ }
    tell();
  });
  tell();
}

// Search box -----------------------------------------------------------------------------------
const box = document.getElementById("q");
const list = document.getElementById("suggestions");
const chips = document.getElementById("chips");

// The plain form: signs before names, quotes around names with spaces. A boolean query has none.
const TERM = /([+-]?)(?:"((?:[^"\\]|\\.)*)"|([^\s"()|&!]+))\s*/gy;

function terms(text) {
  const found = [];
  TERM.lastIndex = 0;
  while (TERM.lastIndex < text.length) {
    const start = TERM.lastIndex;
    const match = TERM.exec(text);
    if (!match) return null;
    const name = match[2] === undefined ? match[3] : match[2].replace(/\\(.)/g, "$1");
    found.push({ sign: match[1] === "-" ? "-" : "+", name, start, end: TERM.lastIndex });
  }
  return found;
}

const quoted = (name) => '"' + name.replace(/[\\"]/g, "\\$&") + '"';
const written = (term) => term.sign + (/^[\p{L}\p{N}_.]+$/u.test(term.name) ? term.name : quoted(term.name));

// A plain query is shown as tokens, and the box holds only what is being typed; a boolean query, or
// any query on request, stays text. What is sent is the hidden field.
let tokens = null; // null: as text
const sent = document.createElement("input");
const asText = document.getElementById("as-text");

const whole = () => tokens === null
  ? box.value.trim()
  : [...tokens.map(written), box.value.trim()].filter(Boolean).join(" ");

function submit() {
  sent.value = whole();
  sent.disabled = !sent.value; // an empty query has no results and no place in the address
  box.form.submit();
}

function showTokens() {
  if (asText) asText.setAttribute("aria-pressed", String(tokens === null));
  chips.replaceChildren(...(tokens || []).map((term, place) => {
    const chip = document.createElement("span");
    chip.className = "chip " + (term.sign === "-" ? "not" : "want");
    chip.append(term.sign + " " + term.name);
    const button = (text, words, act) => {
      const made = document.createElement("button");
      made.type = "button";
      made.textContent = text;
      made.title = words;
      made.setAttribute("aria-label", words + ": " + term.name);
      made.addEventListener("click", () => { act(); submit(); });
      return made;
    };
    chip.append(
      button("⇄", "turn around", () => { term.sign = term.sign === "-" ? "+" : "-"; }),
      button("×", "remove", () => { tokens.splice(place, 1); }),
    );
    return chip;
  }));
}

function toTokens() {
  const found = chips && terms(whole());
  if (!found) return;
  tokens = found;
  box.value = "";
  showTokens();
}

function toText() {
  box.value = whole();
  tokens = null;
  showTokens();
}

let chosen = -1;
function hide() {
  list.hidden = true;
  chosen = -1;
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
}

function choose(place) {
  const options = [...list.children];
  if (!options.length) return;
  chosen = (place + options.length) % options.length;
  options.forEach((option, i) => option.setAttribute("aria-selected", String(i === chosen)));
  options[chosen].scrollIntoView({ block: "nearest" });
  box.setAttribute("aria-activedescendant", options[chosen].id);
}

// The word the cursor stands in, with its sign.
function word() {
  const before = box.value.slice(0, box.selectionStart);
  const match = /([+\-!(|&\s]|^)("?)([^"+()|&!\s][^"()|&!]*)?$/.exec(before);
  if (!match || !match[3]) return null;
  const plain = match[2] ? match[3] : match[3].split(/\s/).pop();
  return plain ? { text: plain, start: box.selectionStart - plain.length - match[2].length } : null;
}

function take(name) {
  const at = word();
  const end = box.selectionStart;
  const start = at ? at.start : end;
  if (tokens !== null) {
    const sign = box.value.slice(0, start).trimEnd().endsWith("-") ? "-" : "+";
    tokens.push({ sign, name });
    box.value = "";
    showTokens();
  } else {
    const text = written({ sign: "", name });
    box.value = box.value.slice(0, start) + text + " " + box.value.slice(end).trimStart();
    const cursor = start + text.length + 1;
    box.setSelectionRange(cursor, cursor);
  }
  hide();
  box.focus();
}

let waiting;
async function suggest() {
  const at = word();
  if (!at) { hide(); return; }
  const prefix = at.text.replace(/^[+-]/, "");
  if (!prefix) { hide(); return; }
  const parameters = new URLSearchParams({ prefix, limit: "8", file: box.dataset.file || "0" });
  const response = await fetch(home + "api/labels?" + parameters);
  if (!response.ok) { hide(); return; }
  const { labels } = await response.json();
  if (!labels.length || (labels.length === 1 && labels[0] === prefix)) { hide(); return; }
  list.replaceChildren(...labels.map((name, i) => {
    const option = document.createElement("li");
    option.id = "suggestion-" + i;
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", "false");
    option.textContent = name;
    option.addEventListener("mousedown", (event) => { event.preventDefault(); take(name); });
    return option;
  }));
  chosen = -1;
  list.hidden = false;
  box.setAttribute("aria-expanded", "true");
}

if (box && list) {
  sent.type = "hidden";
  sent.name = "q";
  box.removeAttribute("name");
  box.form.append(sent);
  box.form.addEventListener("submit", () => {
    sent.value = whole();
    sent.disabled = !sent.value;
  });
  if (chips) {
    toTokens();
    if (tokens === null) showTokens();
    asText.hidden = false;
    asText.addEventListener("click", () => {
      if (tokens === null) toTokens(); else toText();
      box.focus();
    });
  }
  box.addEventListener("input", () => {
    if (tokens !== null && /[()|&!]/.test(box.value.replace(/"[^"]*"?/g, ""))) toText();
    clearTimeout(waiting);
    waiting = setTimeout(suggest, 80);
  });
  box.addEventListener("blur", hide);
  box.addEventListener("keydown", (event) => {
    if (event.key === "Backspace" && tokens !== null && !box.value && tokens.length) {
      const last = tokens.pop(); // goes back to being typed
      event.preventDefault();
      box.value = written(last);
      showTokens();
      return;
    }
    if (list.hidden) {
      if (event.key === "ArrowDown") {
        const first = document.querySelector(".tile");
        if (first) { event.preventDefault(); enter(first); }
      }
      return;
    }
    if (event.key === "ArrowDown") { event.preventDefault(); choose(chosen + 1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); choose(chosen - 1); }
    else if (event.key === "Escape") { event.preventDefault(); hide(); }
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
      event.preventDefault();
      take(list.children[chosen].textContent);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      box.focus();
      box.select();
    }
  });
}

// Walking the tiles: one of them is in the order of Tab, arrow keys move to the others ------------
const editing = () => /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)
  && document.activeElement.type !== "checkbox";
const opener = (tile) => tile.querySelector("a.open");

function enter(tile) {
  for (const other of tile.parentElement.children) {
    for (const inner of other.querySelectorAll("a, button, input")) inner.tabIndex = other === tile ? 0 : -1;
  }
  opener(tile).focus();
}

const key = (tile) => tile.dataset.id + "\0" + tile.dataset.label;
const passOver = (tiles) => {
  for (const tile of tiles) for (const inner of tile.querySelectorAll("a, button, input")) inner.tabIndex = -1;
};
passOver([...document.querySelectorAll(".tile")].filter((tile) => tile !== tile.parentElement.querySelector(".tile")));

async function parsed(address) {
  const response = await fetch(address, { cache: "no-store" });
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

// Add the tiles of another page that a list does not hold; return them.
function addTiles(list, page) {
  const seen = new Set([...list.children].map(key));
  const fresh = [...page.querySelectorAll("#tiles > .tile")].filter((tile) => !seen.has(key(tile)));
  passOver(fresh);
  list.append(...fresh);
  return fresh;
}

// More rows when the end of the list is scrolled into view, up to a bound; and their size -----------
const shelf = document.querySelector(".explore #tiles");
if (shelf) {
  const ending = new IntersectionObserver(async (seen) => {
    const link = document.querySelector(".explore a.more");
    if (!link || !seen.some((each) => each.isIntersecting) || shelf.children.length >= 500) return;
    ending.unobserve(link);
    const page = await parsed(link.href);
    const next = page.querySelector("a.more");
    if (addTiles(shelf, page).length && next) { link.replaceWith(next); ending.observe(next); }
    else link.remove();
  }, { rootMargin: "400px" });
  const watch = () => { const link = document.querySelector(".explore a.more"); if (link) ending.observe(link); };
  addEventListener("scroll", watch, { once: true });
}
const tileSize = document.getElementById("tile-size");
if (tileSize) {
  const apply = () => document.documentElement.style.setProperty("--tile", tileSize.value + "rem");
  try { tileSize.value = localStorage.getItem("tile-size") || tileSize.value; } catch (error) { /* none */ }
  tileSize.addEventListener("input", () => {
    apply();
    try { localStorage.setItem("tile-size", tileSize.value); } catch (error) { /* not kept */ }
  });
  tileSize.closest("label").hidden = false;
  apply();
}

document.addEventListener("keydown", (event) => {
  const tile = document.activeElement.closest(".tile");
  if (!tile || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "x") {
    const pick = tile.querySelector("input[name=entry]");
    if (pick) { pick.checked = !pick.checked; pick.dispatchEvent(new Event("change", { bubbles: true })); }
    return;
  }
  const around = [...tile.parentElement.children];
  const across = around.filter((other) => other.offsetTop === around[0].offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
  if (!step) return;
  event.preventDefault();
  const next = around[around.indexOf(tile) + step];
  if (next) {
    enter(next);
    if (panel && !panel.hidden) openPanel(next);
  }
  else if (event.key === "ArrowUp" && box) box.focus();
});

// A row beside the list: space opens it, arrows walk, Esc returns to its tile ---------------------
const panel = document.getElementById("panel");
for (const keys of document.querySelectorAll(".keys")) keys.hidden = false;
let beside = null;
async function openPanel(tile) {
  beside = tile;
  const response = await fetch(opener(tile).href);
  if (!response.ok || beside !== tile) return;
  const row = new DOMParser().parseFromString(await response.text(), "text/html");
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close", className: "quiet" });
  close.addEventListener("click", closePanel);
  const whole = Object.assign(document.createElement("a"), { href: opener(tile).href, textContent: "Open the page" });
  const head = Object.assign(document.createElement("h2"), { textContent: tile.dataset.id });
  const top = document.createElement("p");
  top.append(close, " ", whole);
  panel.replaceChildren(top, head, ...row.querySelectorAll("main .item, main .similar"));
  panel.hidden = false;
  document.querySelector(".explore").classList.add("with-panel");
}
function closePanel() {
  panel.hidden = true;
  document.querySelector(".explore").classList.remove("with-panel");
  if (beside) enter(beside);
  beside = null;
}
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || editing() || event.ctrlKey || event.metaKey || event.altKey) return;
  const tile = document.activeElement.closest(".tile");
  if (panel && event.key === " " && tile && opener(tile) && !document.activeElement.matches("button, input")) {
    event.preventDefault();
    if (panel.hidden || beside !== tile) openPanel(tile); else closePanel();
  } else if (panel && !panel.hidden && event.key === "Escape") {
    event.preventDefault();
    closePanel();
  } else if (!tile) {
    const link = { ArrowLeft: 'a[rel="prev"]', ArrowRight: 'a[rel="next"]' }[event.key];
    const target = link && document.querySelector(link);
    if (target) { event.preventDefault(); target.click(); }
  }
});

// Selecting entries -------------------------------------------------------------------------------
const selection = document.getElementById("selection");
if (selection) {
  const picks = () => [...selection.querySelectorAll("input[name=entry]")];
  const told = document.getElementById("selected");
  const tell = () => { told.textContent = picks().filter((pick) => pick.checked).length + " selected"; };
  let last = -1;
  selection.addEventListener("click", (event) => {
    const place = picks().indexOf(event.target);
    if (place < 0) return;
    if (event.shiftKey && last >= 0) {
      const [from, to] = [Math.min(last, place), Math.max(last, place)];
      for (const between of picks().slice(from, to + 1)) between.checked = event.target.checked;
    }
    last = place;
  });
  selection.addEventListener("change", tell);
  for (const button of selection.querySelectorAll("[data-select]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      for (const pick of picks()) pick.checked = button.dataset.select === "all";
      tell();
    });
  }
  tell();
}

// Decisions of a reviewer -------------------------------------------------------------------------
const reviewing = document.getElementById("reviewing");
if (reviewing) {
  const problem = document.getElementById("review-problem");
  const name = document.getElementById("who");
  const tileList = document.getElementById("tiles");
  const oneByOne = reviewing.dataset.view === "one";
  const done = []; // what Z undoes, the last first
  const begun = Date.now();
  const progress = document.getElementById("progress");
  if (name) { // the name is asked once
    try { name.value = name.value || localStorage.getItem("reviewer") || ""; } catch (error) { /* none */ }
    name.addEventListener("change", () => { try { localStorage.setItem("reviewer", name.value); } catch (error) { /* none */ } });
  }
  const show = (tile) => {
    if (oneByOne) for (const other of tileList.children) other.classList.toggle("current", other === tile);
    const image = tile.querySelector(".large"); // a small copy until it is asked about
    if (image) image.src = image.src.replace("small=true&", "");
    enter(tile);
  };
  const send = async (id, label, value) => {
    const who = name ? name.value : reviewing.querySelector("input[name=who]").value;
    let said;
    try {
      const response = await fetch(home + "api/reviews?file=" + reviewing.dataset.file, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ who, reviews: [{ id, label, value }] }),
      });
      const answer = await response.json();
      if (!response.ok) said = answer.error;
    } catch (error) { said = "nothing was saved: the server does not answer."; }
    problem.hidden = !said;
    problem.textContent = said || "";
    return !said;
  };
  const told = document.getElementById("decided");
  const count = (step) => { // labels that were in the queue
    if (!told) return;
    told.dataset.decided = String(Number(told.dataset.decided) + step);
    told.textContent = Number(told.dataset.decided).toLocaleString("en");
    if (progress) progress.value = Number(told.dataset.decided);
  };
  const press = (tile, value) => {
    for (const other of tile.querySelectorAll("[data-decide]")) other.setAttribute("aria-pressed", String(other.dataset.decide === value));
  };
  const decide = async (button) => {
    const [id, label, value] = JSON.parse(button.value);
    const tile = button.closest(".tile") || button.closest("tr");
    const before = tile.querySelector("[data-decide][aria-pressed=true]")?.dataset.decide || "undecided";
    if (!await send(id, label, value)) return false;
    press(tile, value);
    tile.dataset.decided = value;
    if (before === "undecided" && tile.matches(".tile")) count(1);
    done.push({ tile, id, label, before });
    const minutes = (Date.now() - begun) / 60000;
    const rate = document.getElementById("rate");
    if (rate && done.length > 4) rate.textContent = `, about ${Math.round(done.length / minutes)} a minute`;
    return true;
  };
  const onward = async (tile) => {
    if (tile.nextElementSibling) { show(tile.nextElementSibling); return; }
    const fresh = addTiles(tileList, await parsed(location.href)); // the next ones, without a reload
    if (fresh.length) show(fresh[0]);
  };
  const undo = async () => {
    const last = done.pop();
    if (!last || !await send(last.id, last.label, last.before)) return;
    press(last.tile, last.before);
    if (last.before === "undecided") {
      delete last.tile.dataset.decided;
      if (last.tile.matches(".tile")) count(-1);
    }
    if (last.tile.matches(".tile")) show(last.tile);
  };
  reviewing.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-decide]");
    if (!button) return;
    event.preventDefault();
    const tile = button.closest(".tile");
    if (await decide(button) && tile && oneByOne) onward(tile);
  });
  document.addEventListener("keydown", async (event) => {
    if (event.defaultPrevented || editing() || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "z") { event.preventDefault(); undo(); return; }
    const tile = document.activeElement.closest("#reviewing .tile") || tileList?.querySelector(".current");
    const value = { y: "present", n: "absent", u: "unsure" }[event.key];
    if (event.key === " " && tile && !document.activeElement.matches("button")) {
      event.preventDefault();
      tile.classList.toggle("zoomed");
    } else if (value && tile) {
      if (await decide(tile.querySelector(`[data-decide=${value}]`))) onward(tile);
    }
  });
  const first = tileList && tileList.id === "tiles" && reviewing.dataset.view && tileList.querySelector(".tile");
  if (first) show(first);
  if (oneByOne) tileList.classList.add("one-at-a-time");
}

// Names of labels for a plain box -----------------------------------------------------------------
for (const input of document.querySelectorAll("input[data-labels]")) {
  const names = document.getElementById(input.getAttribute("list"));
  input.addEventListener("input", async () => {
    const parameters = new URLSearchParams({ prefix: input.value, limit: "20", file: input.dataset.labels });
    const response = await fetch(home + "api/labels?" + parameters);
    if (!response.ok) return;
    names.replaceChildren(...(await response.json()).labels.map((name) => {
      const option = document.createElement("option");
      option.value = name;
      return option;
    }));
  });
}

// Images that are not there say so -------------------------------------------------------------
const withoutImage = (image) => image.replaceWith(
  Object.assign(document.createElement("div"), { className: "muted", textContent: "no image" }));
document.addEventListener("error", (event) => { if (event.target.matches?.(".tile img")) withoutImage(event.target); }, true);
for (const image of document.querySelectorAll(".tile img")) if (image.complete && !image.naturalWidth) withoutImage(image);

// Forms whose result follows every change: the same page, only its result is put in -------------
for (const form of document.querySelectorAll("form[data-live]")) {
  let newest = 0, waiting;
  const show = async () => {
    const mine = ++newest;
    const asked = [...new FormData(form)].filter(([, value]) => value !== "");
    const address = form.getAttribute("action") + "?" + new URLSearchParams(asked);
    const response = await fetch(address);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (mine !== newest) return; // a later change is on its way
    for (const place of form.querySelectorAll("[data-problem-of]")) {
      const said = page.querySelector(`[data-problem-of="${place.dataset.problemOf}"]`);
      place.textContent = said ? said.textContent : "";
    }
    const result = document.getElementById("result");
    result.classList.toggle("stale", !response.ok);
    if (!response.ok) return; // the old numbers are greyed: they belong to other inputs
    for (const part of ["#result", "form.choice", ".tabs", ".rule-chip"]) { // they keep the new rule
      const [old, now] = [document.querySelector(part), page.querySelector(part)];
      if (old && now) old.replaceChildren(...now.childNodes);
    }
    offerCopies();
    followCuts();
    history.replaceState(null, "", address);
  };
  form.addEventListener("input", (event) => {
    const told = event.target.closest("label")?.querySelector("output");
    if (told) told.textContent = event.target.dataset.percent !== undefined
      ? Math.round(100 * event.target.value) + " %" : String(Number(event.target.value));
    clearTimeout(waiting);
    waiting = setTimeout(show, 120);
  });
}

// A page that needs numbers which are still worked out: look again until they are there ----------
const waitingFor = document.querySelector("[data-wait]");
if (waitingFor) {
  const again = async () => {
    let there = false;
    try { there = (await fetch(location.href, { cache: "no-store" })).status !== 202; } catch (error) { /* later */ }
    if (there) location.reload(); else setTimeout(again, 2000);
  };
  setTimeout(again, 1000);
}

// A form whose answer takes seconds says that it is at work ------------------------------------------
for (const form of document.querySelectorAll("form[data-busy]")) {
  form.addEventListener("submit", (event) => {
    if (event.defaultPrevented) return;
    const note = form.querySelector("[data-busy-note]");
    note.hidden = false;
    note.textContent = form.dataset.busy;
    form.setAttribute("aria-busy", "true");
  });
}
addEventListener("pageshow", () => { // back from the answer
  for (const note of document.querySelectorAll("[data-busy-note]")) note.hidden = true;
});

// Copying commands --------------------------------------------------------------------------------
function offerCopies() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = !navigator.clipboard;
    button.onclick = async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    };
  }
}
offerCopies();

// Files: dropped instead of chosen, and refused here when they are too large to send ---------------
for (const form of document.querySelectorAll("form[data-limit]")) {
  const problem = form.querySelector("[data-problem]");
  const tell = (words) => { problem.hidden = !words; problem.textContent = words; };
  const fits = () => {
    const files = [...form.querySelectorAll("input[type=file]")].flatMap((input) => [...input.files]);
    const total = files.reduce((sum, file) => sum + file.size, 0);
    const most = Number(form.dataset.limit) - 65536; // the rest of the form
    tell(total <= most ? "" : `At most ${(most / 2 ** 20).toFixed(1)} MB can be sent; this is ${(total / 2 ** 20).toFixed(1)} MB. Use the command line for larger files.`);
    return total <= most;
  };
  form.addEventListener("submit", (event) => { if (!fits()) event.preventDefault(); });
  form.addEventListener("change", fits);
  for (const area of form.querySelectorAll("[data-drop]")) {
    const input = area.querySelector("input[type=file]");
    for (const hint of area.querySelectorAll("[data-drop-hint]")) hint.hidden = false;
    area.addEventListener("dragover", (event) => { event.preventDefault(); area.dataset.over = ""; });
    area.addEventListener("dragleave", () => delete area.dataset.over);
    area.addEventListener("drop", (event) => {
      event.preventDefault();
      delete area.dataset.over;
      if (!event.dataTransfer.files.length) return;
      input.files = event.dataTransfer.files;
      if (!fits()) return;
      if ("dropSubmit" in area.dataset) form.requestSubmit();
    });
  }
}
const result = document.querySelector("#result[tabindex]");
if (result) result.focus({ preventScroll: false });
for (const form of result ? document.querySelectorAll("form.try, form.mapping") : []) {
  form.addEventListener("input", () => result.classList.add("stale")); // it is of other inputs
}

// Runs that go on: ask whether something has changed, and if so put in the new part ---------------
const live = document.getElementById("live");
if (live && live.dataset.poll) {
  const follow = async () => {
    if (live.dataset.unfinished !== "true") return;
    let next = 3000;
    try {
      const headers = { "if-none-match": live.dataset.tag };
      const answer = await fetch(live.dataset.poll, { headers, cache: "no-store" });
      if (answer.status === 200) {
        const part = (await parsed(location.href)).getElementById("live");
        const held = live.contains(document.activeElement) && document.activeElement !== document.body;
        if (part && !held) { // nobody is using a form or link of this part
          live.replaceChildren(...part.childNodes);
          Object.assign(live.dataset, part.dataset);
        }
      }
    } catch (error) { next = 15000; } // the server has stopped, or is busy
    setTimeout(follow, next);
  };
  setTimeout(follow, 1500);
}

// Tables that are wider than the screen can be reached and scrolled by keyboard; others are no stop.
new ResizeObserver(() => {
  for (const table of document.querySelectorAll(".scroll:not([role])")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
    else table.removeAttribute("tabindex");
  }
}).observe(document.body);

// A cut that is dragged in a chart, or moved by its slider -------------------------------------------
function followCuts() {
  for (const line of document.querySelectorAll("[data-cut]")) {
    const drawing = line.ownerSVGElement;
    const slider = document.querySelector("[data-cut-slider]");
    if (!slider || drawing.dataset.follows) continue;
    drawing.dataset.follows = "true";
    const [from, to] = [Number(line.dataset.from), Number(line.dataset.to)];
    const move = (event) => {
      const at = drawing.getBoundingClientRect();
      const x = (event.clientX - at.left) / at.width * drawing.viewBox.baseVal.width;
      const share = Math.min(1, Math.max(0, (x - from) / (to - from)));
      slider.value = String(share * Number(slider.max));
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    };
    drawing.classList.add("draggable");
    drawing.addEventListener("pointerdown", (event) => {
      drawing.setPointerCapture(event.pointerId);
      move(event);
      drawing.addEventListener("pointermove", move);
    });
    drawing.addEventListener("pointerup", () => drawing.removeEventListener("pointermove", move));
    slider.addEventListener("input", () => {
      const share = Number(slider.value) / Number(slider.max);
      line.setAttribute("transform", `translate(${from + (to - from) * share} 0)`);
    });
  }
}
followCuts();
const cutForm = document.querySelector("[data-curve]");
if (cutForm) {
  const curve = JSON.parse(cutForm.dataset.curve);
  const slider = document.getElementById("cut");
  const words = document.getElementById("cut-words");
  const share = (value) => (value === null ? "–" : Math.round(100 * value) + " %");
  const significant = (value) => { // as the server writes it: three digits, the last zeros too
    const power = value ? Number(value.toExponential(2).split("e")[1]) : 0, digits = Math.max(0, 2 - power);
    return value.toFixed(digits); // not toLocaleString, which rounds 1.105 up
  };
  const strong = (text) => Object.assign(document.createElement("strong"), { textContent: text });
  slider.addEventListener("input", () => {
    const at = Math.round(100 * slider.value);
    words.replaceChildren(
      "A threshold of ", strong(at + " %"), " finds ", strong(share(curve.found[at])), " of the labels, and ",
      strong(share(curve.right[at])), " of what it returns is right. Labels per row: ",
      significant(curve.size[at]), ". Rows without any label: ",
      curve.empty[at].toLocaleString("en"), ".");
  });
}
