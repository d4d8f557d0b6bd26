// Charts over time as SVG: bars or lines, a value on hover, and the same by arrow keys.

import { fill, h } from "./dom.js";

const WIDE = 600, HIGH = 170, LEFT = 60, BOTTOM = 20, TOP = 8;

/** A chart. `series` are {name, kind: "bar" | "line", values, mark}, and `adds` for a line whose
 *  values can be summed up, as those of bars; all have as many values as there are `times`, null
 *  where nothing is known. `say` writes a value in words; `roofs` are the
 *  values that its top may have, where round numbers are none. */
export function chart({ title, times, span, series, say, roofs = [] }) {
  const top = roof(Math.max(0, ...series.flatMap((each) => each.values.filter((value) => value !== null))), roofs);
  const room = WIDE - LEFT - 4, step = room / times.length;
  const x = (place) => LEFT + place * step;
  const y = (value) => TOP + (HIGH - TOP - BOTTOM) * (1 - value / top);
  const readout = h("span", { class: "readout dim" });
  const cursor = h("line", { class: "cursor", y1: TOP, y2: HIGH - BOTTOM, x1: -9, x2: -9 });
  const picture = h("svg", { class: "plot", viewBox: `0 0 ${WIDE} ${HIGH}`, tabindex: "0", role: "img",
    "aria-label": `${title}: ${summary(series, say)}` },
    [0, 0.5, 1].map((share) => [
      h("line", { class: "grid", x1: LEFT, x2: WIDE, y1: y(top * share), y2: y(top * share) }),
      h("text", { class: "tick", x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, say(top * share)),
    ]),
    ticks(times, span).map(([place, words]) => h("text", { class: "tick", x: x(place + 0.5), y: HIGH - 5, "text-anchor": "middle" }, words)),
    series.map((each, number) => each.kind === "bar" ? bars(each, number) : lines(each, number)), cursor);

  function bars(each, number) {
    const among = series.filter((other) => other.kind === "bar").length;
    const wide = Math.max((step - 1) / among, 0.8);
    return h("g", { class: `series-${each.mark ?? number}` }, each.values.map((value, place) => value
      ? h("rect", { x: x(place) + number * wide, width: wide, y: y(value), height: Math.max(HIGH - BOTTOM - y(value), 1) }) : null));
  }

  function lines(each, number) {
    const parts = [];
    let run = [];
    for (const [place, value] of [...each.values, null].entries()) {
      if (value !== null) run.push([x(place + 0.5), y(value)]);
      else { if (run.length) parts.push(run); run = []; }
    }
    return h("g", { class: `series-${each.mark ?? number}` },
      parts.map((run) => run.length > 1 ? h("polyline", { points: run.map((at) => at.join(",")).join(" ") }) : null),
      parts.flat().map(([cx, cy]) => h("circle", { cx, cy, r: times.length > 70 ? 1.6 : 2.4 })));
  }

  let here = -1;
  function show(place) {
    here = place;
    const at = place < 0 ? -9 : x(place + 0.5);
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    fill(readout, place < 0 ? summary(series, say)
      : `${moment(times[place], span)}: ${series.map((each) => `${each.name} ${each.values[place] === null ? "–" : say(each.values[place])}`).join(", ")}`);
  }
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const place = Math.floor((((event.clientX - box.left) / box.width) * WIDE - LEFT) / step);
    show(place >= 0 && place < times.length ? place : -1);
  });
  picture.addEventListener("pointerleave", () => show(-1));
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    show(Math.min(Math.max((here < 0 ? times.length : here) + move, 0), times.length - 1));
    event.preventDefault();
    event.stopPropagation();
  });
  show(-1);
  return h("figure", {}, h("figcaption", {}, h("strong", {}, title),
    series.map((each, number) => h("span", { class: `key series-${each.mark ?? number}${each.kind === "line" ? " dots" : ""}` }, each.name)), readout), picture);
}

/** What all values come to, for those who do not see the picture. */
function summary(series, say) {
  return series.map((each) => {
    const known = each.values.filter((value) => value !== null);
    if (!known.length) return `${each.name} –`;
    return each.kind === "bar" || each.adds ? `${say(known.reduce((a, b) => a + b, 0))} ${each.name}` : `${each.name} at most ${say(Math.max(...known))}`;
  }).join(", ");
}

/** A round number that is at least as high. */
function roof(value, roofs) {
  const found = roofs.find((each) => each >= value);
  if (found) return found;
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((each) => each * power >= value * 0.999999);
}

const DAY = 86_400_000;

export function moment(at, span) {
  if (span >= DAY) return new Date(at).toLocaleDateString([], { day: "numeric", month: "short", timeZone: "UTC" });
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

function ticks(times, span) {
  const every = span >= DAY ? 5 : span >= 900_000 ? 16 : 10;
  return [...times.entries()].filter(([place]) => place > 1 && place < times.length - every / 4 && (times.length - place) % every === 0)
    .map(([place, at]) => [place, moment(at, span)]);
}
