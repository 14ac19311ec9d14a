#include "framework/experiment/report/page.h"

namespace brim::experiment {

std::string_view page_script() {
  return R"js(
"use strict";
(() => {
  const tip = document.getElementById("tip");
  const count = new Intl.NumberFormat("en");
  let byTime = false, smooth = 0;
  const show = v => v === null ? "–" : Math.abs(v) >= 1000 ? count.format(Math.round(v)) : String(+v.toPrecision(4));
  const unitOf = s => s < 120 ? [1, "s"] : s < 7200 ? [60, "min"] : s < 172800 ? [3600, "h"] : [86400, "d"];
  const time = s => { const [unit, name] = unitOf(s); return show(s / unit) + " " + name; };
  const make = (tag, kind, text = "") => Object.assign(document.createElement(tag), {className: kind, textContent: text});
  // The point of a line that is nearest to x; its x rise.
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  };

  // --- a chart's values, and what its reader has made of it, which outlives the chart itself ---
  const values = new WeakMap(), states = new Map();
  const dataOf = chart => {
    if (!values.has(chart)) values.set(chart, JSON.parse(chart.querySelector("script").textContent));
    return values.get(chart);
  };
  const stateOf = chart => {
    const key = chart.querySelector("h3").textContent;
    if (!states.has(key)) states.set(key, {off: new Set(), log: null, zoom: null});
    return states.get(key);
  };
  // Where the points of a line lie from left to right, and where the whole axis begins and ends.
  const xs = line => byTime && line.t ? line.t : line.x;
  const whole = data => byTime && data.t1 ? [0, data.t1] : [data.x0, data.x1];
  // A mean that forgets, without a bias to 0 at its start (Kingma and Ba, 2015); dots stay what
  // they are.
  const smoothed = line => {
    if (!smooth || line.e) return line.y;
    let sum = 0, weight = 0;
    return line.y.map(v => {
      sum = smooth * sum + (1 - smooth) * v;
      weight = smooth * weight + 1 - smooth;
      return sum / weight;
    });
  };
  // The heights that hold what is shown from x0 to x1.
  const heights = (data, state, x0, x1, log) => {
    if (data.s) return [data.y0, data.y1];
    let low = Infinity, high = -Infinity;
    for (const line of data.l) {
      if (state.off.has(line.n)) continue;
      const at = xs(line);
      smoothed(line).forEach((v, i) => {
        if (at[i] < x0 || at[i] > x1 || (log && v <= 0)) return;
        low = Math.min(low, v);
        high = Math.max(high, v);
      });
    }
    if (!(low <= high)) return [data.y0, data.y1];
    if (log) return [low / 1.1, high * 1.1];
    const margin = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
    return [low - margin, high + margin];
  };
  // Round values from low to high; powers of ten, with 2 and 5 times them where there are few.
  const ticks = (low, high, wanted, log) => {
    const list = [], power = v => 10 ** Math.floor(Math.log10(v));
    if (log) {
      const factors = high / low < 300 ? [1, 2, 5] : [1];
      for (let p = power(low); p <= high; p *= 10) list.push(...factors.map(f => f * p));
    } else {
      const rough = (high - low) / wanted, p = power(rough), step = [1, 2, 5, 10].find(f => f * p >= rough * 0.999) * p;
      for (let i = Math.ceil(low / step); i * step <= high; ++i) list.push(+(i * step).toPrecision(12));
    }
    return list.filter(v => v >= low && v <= high);
  };
  const label = (side, share, text) => {
    const span = make("span", "", text);
    span.style[side] = share * 100 + "%";
    return span;
  };

  // --- drawing: as the page has it where nothing is changed, else from the values ---
  const drawAxes = (chart, data, state, view) => {
    const {x0, x1, y0, y1, log, py, sameY} = view, isByTime = byTime && !!data.t1;
    const left = chart.querySelector(".ys"), grid = chart.querySelector("svg .grid");
    left.original ??= [...left.childNodes];
    grid.dataset.d ??= grid.getAttribute("d");
    const marks = sameY ? [] : ticks(y0, y1, 4, log);
    left.replaceChildren(...sameY ? left.original : marks.map(v => label("top", py(v) / 300, show(v))));
    grid.setAttribute("d", sameY ? grid.dataset.d : marks.map(v => `M0 ${py(v)}h1000`).join(""));
    for (const part of chart.querySelectorAll(".by-x")) part.hidden = isByTime || (state.zoom && part.matches(".xs"));
    for (const part of chart.querySelectorAll(".by-time")) part.hidden = !isByTime || (state.zoom && part.matches(".xs"));
    chart.querySelector(".xs.zoomed")?.remove();
    if (!state.zoom) return;
    const below = make("div", "xs zoomed"), [unit, name] = isByTime ? unitOf(x1) : [1, ""];
    below.append(...ticks(x0 / unit, x1 / unit, 5, false).map(v =>
        label("left", (v * unit - x0) / (x1 - x0), count.format(v) + (name && " " + name))));
    chart.querySelector(".xs").after(below);
  };
  const draw = chart => {
    const data = dataOf(chart), state = stateOf(chart), [x0, x1] = state.zoom ?? whole(data);
    const log = state.log ?? !!data.g, round = v => Math.round(v * 10) / 10;
    const sameX = !state.zoom && !(byTime && data.t1);
    const sameY = data.s || !(state.zoom || smooth || state.off.size || log !== !!data.g);
    const [y0, y1] = sameY ? [data.y0, data.y1] : heights(data, state, x0, x1, log);
    const scale = log ? v => Math.log(Math.max(v, y0 / 10)) : v => v;
    const px = x => round((x - x0) / (x1 - x0) * 1000), py = y => round(300 - 300 * (scale(y) - scale(y0)) / (scale(y1) - scale(y0)));
    for (const path of chart.querySelectorAll("path[data-line]")) {
      const line = data.l[path.dataset.line], original = path.dataset.d ??= path.getAttribute("d");
      const at = xs(line), n = at.length, isArea = path.matches(".band, .area"), ys = isArea ? line.hi : smoothed(line);
      path.style.display = state.off.has(line.n) ? "none" : "";
      let i = 0;  // areas go back along their lower edge
      path.setAttribute("d", sameX && sameY ? original : original.replace(/([ML])([-\d.]+) ([-\d.]+)/g, (all, command, x, y) => {
        const isBack = i >= n, k = isBack ? 2 * n - 1 - i : i;
        ++i;
        return command + (sameX ? x : px(at[k])) + " " + (sameY ? y : py((isBack ? line.lo : ys)[k]));
      }));
    }
    const [first, last] = whole(data);
    for (const mark of chart.querySelectorAll("svg .mark")) {
      const share = (byTime && data.t1 ? mark.dataset.time : mark.dataset.x) / 1000;
      mark.setAttribute("d", `M${px(first + share * (last - first))} 0v300`);
    }
    chart.querySelector("svg").style.overflow = state.zoom || !sameY ? "hidden" : "";
    drawAxes(chart, data, state, {x0, x1, y0, y1, log, py, sameY});
    chart.querySelector(".whole").hidden = !state.zoom;
    chart.querySelector(".scale")?.setAttribute("aria-pressed", log);
    for (const button of chart.querySelectorAll(".legend button")) {
      button.setAttribute("aria-pressed", !state.off.has(button.textContent));
    }
  };

  // --- values under the pointer, or at the keyboard's cursor ---
  let shown = null;  // the area with the cursor, and where the cursor is
  const hide = () => {
    tip.style.display = "none";
    for (const cursor of document.querySelectorAll(".cursor")) cursor.style.display = "none";
    shown = null;
  };
  const row = (colour, name, value) => {
    const line = make("div", "");
    line.append(make("i", colour), name, make("b", "", value));
    return line;
  };
  const read = (area, share, height) => {
    const chart = area.closest(".chart"), data = dataOf(chart), state = stateOf(chart), box = area.getBoundingClientRect();
    const x = xAt(chart, share);
    const title = make("div", ""), rows = [title];
    let at = x, step = x, distance = Infinity;
    for (const line of data.l) {
      if (state.off.has(line.n)) continue;
      const i = nearest(xs(line), x);
      if (Math.abs(xs(line)[i] - x) < distance) { distance = Math.abs(xs(line)[i] - x); at = xs(line)[i]; step = line.x[i]; }
      rows.push(row(line.c, line.n, show(smoothed(line)[i]) + (data.u ? " " + data.u : "")));
    }
    title.textContent = (byTime && data.t1 ? time(at) + ", " : "") + data.xu + " " + count.format(step);
    tip.replaceChildren(...rows);
    tip.style.display = "block";
    const cursor = chart.querySelector(".cursor");
    cursor.style.display = "block";
    cursor.style.left = share * 100 + "%";
    const size = tip.getBoundingClientRect(), from = box.left + share * box.width;
    tip.style.left = Math.max(4, from + 14 + size.width > innerWidth ? from - 14 - size.width : from + 14) + "px";
    tip.style.top = Math.max(4, Math.min(box.top + height + 14, innerHeight - size.height - 4)) + "px";
    shown = {area, share, height};
  };
  const shareOf = (area, event) => {
    const box = area.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const xAt = (chart, share) => {
    const [first, last] = stateOf(chart).zoom ?? whole(dataOf(chart));
    return first + share * (last - first);
  };
  const showOnly = (chart, from, to) => {
    const [low, high] = whole(dataOf(chart)), slack = 1e-6 * (high - low);
    const isWhole = from <= low + slack && to >= high - slack;
    stateOf(chart).zoom = isWhole ? null : [Math.max(low, from), Math.min(high, to)];
    draw(chart);
  };
  const zoomTo = (chart, from, to) => showOnly(chart, xAt(chart, from), xAt(chart, to));

  // --- what the reader does; heard here, since a live page replaces its charts ---
  const areaOf = event => event.target.closest?.(".chart .plot > .area");
  const listen = (kind, take) => document.addEventListener(kind, event => { const area = areaOf(event); if (area) take(event, area); }, true);
  let drag = null;  // where it began, and what shows it
  // Of fingers on charts, by their pointers: what x each holds, while two of them move apart or
  // together.
  const fingers = new Map();
  const hold = (event, area) => {
    fingers.set(event.pointerId, {area, share: shareOf(area, event)});
    for (const finger of fingers.values()) finger.x = xAt(finger.area.closest(".chart"), finger.share);
  };
  const pinch = (event, area) => {
    const moved = fingers.get(event.pointerId);
    if (!moved) return;
    moved.share = shareOf(area, event);
    const [a, b] = [...fingers.values()].filter(finger => finger.area === area);
    const scale = b && (b.x - a.x) / (b.share - a.share);  // of x, over the chart's width
    if (scale > 0 && isFinite(scale)) showOnly(area.closest(".chart"), a.x - a.share * scale, a.x + (1 - a.share) * scale);
  };
  for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, event => fingers.delete(event.pointerId));
  listen("pointerdown", (event, area) => {
    read(area, shareOf(area, event), event.clientY - area.getBoundingClientRect().top);
    if (event.pointerType === "touch") hold(event, area);
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    drag = {area, from: shareOf(area, event), mark: make("i", "range")};
    area.append(drag.mark);
  });
  listen("pointermove", (event, area) => {
    const share = shareOf(area, event);
    pinch(event, area);
    read(area, share, event.clientY - area.getBoundingClientRect().top);
    if (drag?.area !== area) return;
    drag.mark.style.left = Math.min(drag.from, share) * 100 + "%";
    drag.mark.style.width = Math.abs(share - drag.from) * 100 + "%";
  });
  document.addEventListener("pointerup", event => {
    if (!drag) return;
    const {area, from, mark} = drag, to = shareOf(area, event);
    mark.remove();
    drag = null;
    if (area.isConnected && Math.abs(to - from) > 0.02) zoomTo(area.closest(".chart"), Math.min(from, to), Math.max(from, to));
  });
  listen("pointerleave", (event, area) => { if (event.target === area) hide(); });
  listen("dblclick", (event, area) => zoomTo(area.closest(".chart"), -Infinity, Infinity));
  document.addEventListener("focusin", event => { if (shown && !areaOf(event)) hide(); });
  listen("keydown", (event, area) => {
    const chart = area.closest(".chart"), share = shown?.area === area ? shown.share : 1;
    const moves = {ArrowLeft: -0.02, ArrowRight: 0.02, Home: -1, End: 1};
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) read(area, Math.min(1, Math.max(0, share + moves[event.key])), 20);
    else if (event.key === "+") zoomTo(chart, share - 0.25, share + 0.25);
    else if (event.key === "-") zoomTo(chart, share - 1, share + 1);
    else if (event.key === "Escape") { hide(); zoomTo(chart, -Infinity, Infinity); }
    else return;
    event.preventDefault();
  });
  const flip = (set, name) => { if (!set.delete(name)) set.add(name); };
  let order = null;  // of a table's rows: a column, and whether it falls
  const sort = table => {
    const value = line => line.cells[order.column].dataset.sort ?? line.cells[order.column].textContent;
    const compare = (a, b) => a === "" || b === "" ? (a === "") - (b === "") :
        (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b) * (order.falls ? -1 : 1);
    const lines = [...table.tBodies[0].rows];
    table.tBodies[0].append(...lines.sort((a, b) => compare(value(a), value(b))));
    [...table.tHead.rows[0].cells].forEach((cell, i) =>
        cell.setAttribute("aria-sort", i !== order.column ? "none" : order.falls ? "descending" : "ascending"));
  };
  document.addEventListener("click", event => {
    const button = event.target.closest?.("button"), chart = button?.closest(".chart"), head = button?.closest("th");
    if (head) {
      order = {column: head.cellIndex, falls: order?.column === head.cellIndex && !order.falls};
      sort(head.closest("table"));
    } else if (chart && button.matches(".whole")) {
      zoomTo(chart, -Infinity, Infinity);
    } else if (chart) {
      const state = stateOf(chart);
      if (button.matches(".scale")) state.log = !(state.log ?? !!dataOf(chart).g);
      else flip(state.off, button.textContent);
      draw(chart);
    }
  });
  const tool = (kind, text) => Object.assign(make("button", "tool " + kind, text), {type: "button"});
  const prepare = chart => {
    const data = dataOf(chart), area = chart.querySelector(".plot > .area"), tools = make("span", "tools");
    const unit = data.u ? " " + data.u : "", title = chart.querySelector("h3").textContent;
    area.tabIndex = 0;
    area.setAttribute("role", "img");
    area.setAttribute("aria-label", title + ": " + data.l.map(line => line.n + " " + show(line.y.at(-1)) + unit).join(", ") +
        ". Arrow keys read values, plus and minus zoom.");
    for (const entry of chart.querySelectorAll(".legend > span")) {
      const button = Object.assign(document.createElement("button"), {type: "button"});
      button.append(...entry.childNodes);
      entry.replaceWith(button);
    }
    tools.append(tool("whole", "whole axis"));
    if (!data.s && data.l.every(line => line.y.every(v => v > 0))) tools.append(tool("scale", "log"));
    chart.querySelector("figcaption").append(tools);
    draw(chart);
  };
  const prepareAll = () => {
    for (const chart of document.querySelectorAll(".chart")) if (!values.has(chart)) prepare(chart);
    for (const table of document.querySelectorAll("table.sortable")) if (order) sort(table);
    for (const choice of document.querySelectorAll("#axis, #smoothing")) choice.hidden = false;
    for (const input of document.querySelectorAll("#axis input")) input.checked = (input.value === "time") === byTime;
    for (const input of document.querySelectorAll("#smoothing input")) input.value = smooth;
    if (!shown || shown.area.isConnected) return;
    const {area, share, height} = shown, title = area.closest(".chart").querySelector("h3").textContent;
    const same = [...document.querySelectorAll(".chart")].find(chart => chart.querySelector("h3").textContent === title);
    hide();
    if (same) read(same.querySelector(".plot > .area"), share, height);
  };
  const redraw = () => document.querySelectorAll(".chart").forEach(draw);
  document.addEventListener("change", event => {
    if (!event.target.closest("#axis")) return;
    byTime = event.target.value === "time";
    for (const state of states.values()) state.zoom = null;
    redraw();
  });
  document.addEventListener("input", event => {
    if (!event.target.closest("#smoothing")) return;
    smooth = +event.target.value;
    document.querySelector("#smoothing output").textContent = event.target.value;
    redraw();
  });
  addEventListener("scroll", () => { tip.style.display = "none"; }, {passive: true});
  document.addEventListener("fresh", prepareAll);
  prepareAll();
})();
)js";
}

std::string_view live_script() {
  return R"js(
(() => {
  const live = document.getElementById("live"), focusable = "a, button, input, summary, [tabindex]";
  // Puts a block's new content in the place of the old: what is open, scrolled or focused stays so.
  const replace = (block, fresh) => {
    const all = kind => [...block.querySelectorAll(kind)];
    const held = all(focusable).indexOf(document.activeElement);
    const open = all("details[open] > summary").map(summary => summary.textContent);
    const places = all(".scroll, .log").map(part => [part.scrollLeft, part.scrollTop, part.scrollTop + part.clientHeight + 4 >= part.scrollHeight]);
    block.replaceChildren(...fresh.childNodes);
    block.dataset.version = fresh.dataset.version;
    block.dispatchEvent(new Event("fresh", {bubbles: true}));
    for (const summary of all("summary")) summary.parentElement.open = open.includes(summary.textContent);
    all(".scroll, .log").forEach((part, i) => {
      const [left, top, atEnd] = places[i] ?? [0, 0, true];
      part.scrollTo(left, part.matches(".log") && atEnd ? part.scrollHeight : top);
    });
    if (held >= 0) all(focusable)[held]?.focus({preventScroll: true});
  };
  const update = async () => {
    const blocks = [...document.querySelectorAll("[data-block]")];
    const answer = await fetch("?have=" + blocks.map(block => block.dataset.version).join(), {signal: AbortSignal.timeout(10000)});
    const text = await answer.text();
    if (!answer.ok) throw new Error(text.trim());
    for (const fresh of new DOMParser().parseFromString(text, "text/html").querySelectorAll("[data-block]")) {
      const block = blocks.find(block => block.dataset.block === fresh.dataset.block);
      if (block && block.dataset.version !== fresh.dataset.version) replace(block, fresh);
    }
  };
  const say = (words, isLost) => {
    if (live.lastChild.textContent !== words) live.lastChild.textContent = words;
    live.classList.toggle("lost", isLost);
  };
  const again = async () => {
    try {
      if (!document.hidden) await update();
      say("Live", false);
    } catch (error) {
      say("No news, trying again: " + error.message, true);
    }
    setTimeout(again, 1500);
  };
  for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
  again();
})();
)js";
}

}  // namespace brim::experiment
