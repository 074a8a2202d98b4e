"use strict";
// Show the values of the point of a chart nearest to the pointer, or chosen with the arrow keys.
(() => {
  const charts = "svg.drawing, svg.multiple";
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  tip.setAttribute("role", "status");
  document.getElementById("main").append(tip);
  const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  dot.setAttribute("class", "tip-dot");
  dot.setAttribute("r", "5");
  const known = new WeakMap();

  // The points of a chart are read when it is first used; its titles would be shown a second time.
  const read = (chart) => {
    if (known.has(chart)) return known.get(chart);
    const points = [];
    for (const title of chart.querySelectorAll("title")) {
      const of = title.parentNode, words = title.textContent;
      title.remove();
      if (of.querySelector(".line")) { of.dataset.name = words + ": "; continue; }
      of.dataset.tip = words;
      const { x, y, width, height } = of.getBBox();
      points.push({ of, words, x: x + width / 2, y: y + height / 2, cell: !of.matches("circle") });
    }
    for (const line of chart.querySelectorAll("[data-tips]")) {
      const name = line.closest("[data-name]")?.dataset.name || "";
      line.dataset.tips.split("|").forEach((words, at) => {
        const { x, y } = line.points[at];
        points.push({ words: name + words, x, y, across: "across" in line.dataset });
      });
    }
    known.set(chart, points.sort((a, b) => a.cell ? 0 : a.x - b.x));
    return points;
  };

  let current = null, shown = null;
  const hide = () => { current = null; tip.hidden = true; dot.remove(); };
  const show = (chart, point) => {
    [shown, current] = [chart, point];
    const at = new DOMPoint(point.x, point.y).matrixTransform(chart.getScreenCTM());
    if (tip.textContent !== point.words) tip.textContent = point.words;
    tip.hidden = false;
    const left = Math.min(at.x - tip.offsetWidth / 2, document.documentElement.clientWidth - tip.offsetWidth - 4);
    const above = at.y - tip.offsetHeight - 12;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = (above < 4 ? at.y + 16 : above) + "px";
    tip.hidden = at.y < 0 || at.y > innerHeight; // scrolled away
    if (point.cell) { dot.remove(); return; }
    dot.setAttribute("cx", point.x);
    dot.setAttribute("cy", point.y);
    dot.setAttribute("r", chart.matches(".multiple") ? 2.5 : 5);
    if (dot.parentNode !== chart) chart.append(dot);
  };

  const point = (event) => {
    const chart = event.target.closest?.(charts);
    const points = chart ? read(chart) : [];
    const own = event.target.closest?.("[data-tip]");
    const { x, y } = chart ? new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse()) : {};
    const far = (each) => each.across ? Math.abs(each.x - x) : Math.hypot(each.x - x, each.y - y);
    const nearest = own
      ? points.find((each) => each.of === own)
      : points.filter((each) => !each.cell).reduce((best, each) => best && far(best) <= far(each) ? best : each, null);
    if (nearest) show(chart, nearest); else hide();
  };
  addEventListener("pointermove", point, { passive: true });
  addEventListener("pointerdown", point, { passive: true });
  document.documentElement.addEventListener("pointerleave", hide);
  addEventListener("scroll", () => { if (shown?.isConnected && current) show(shown, current); }, { passive: true, capture: true });

  // By keyboard: a cell that is a link shows its values; a chart is a stop, its points follow by arrows.
  const offer = () => {
    for (const drawing of document.querySelectorAll("svg.drawing:not([tabindex])")) {
      if (drawing.querySelector(".point, [data-tips]")) drawing.setAttribute("tabindex", "0");
    }
  };
  offer();
  const result = document.getElementById("result");
  if (result) new MutationObserver(offer).observe(result, { childList: true });
  addEventListener("focusin", (event) => {
    const chart = event.target.closest(charts);
    const own = chart && read(chart).find((each) => each.of === event.target);
    if (own && event.target.matches(":focus-visible")) show(chart, own);
  });
  addEventListener("focusout", hide);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") { hide(); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || !event.target.matches("svg.drawing")) return;
    event.preventDefault();
    const points = read(event.target);
    const now = points.indexOf(current);
    const next = now < 0 ? (step > 0 ? 0 : points.length - 1) : now + step;
    if (points[next]) show(event.target, points[next]);
  });
})();
