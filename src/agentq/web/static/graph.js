// A workflow as a layered graph: each step right of all that it comes after.

import { h } from "./dom.js";
import { standingOf, STATES } from "./words.js";

const WIDTH = 196;
const HEIGHT = 44;
const GAP_X = 56;
const GAP_Y = 18;

/** `steps`: id, role, state, after, tasks. `critical` has the ids of tasks on the critical path. */
export function graph(steps, critical) {
  if (!steps.length) return h("p", { class: "dim" }, "No steps yet.");
  const by = new Map(steps.map((step) => [step.id, step]));
  const layers = layered(steps, by);
  const places = new Map();
  const rows = Math.max(...layers.map((layer) => layer.length));
  layers.forEach((layer, column) => layer.forEach((step, row) => places.set(step.id, {
    x: column * (WIDTH + GAP_X) + 4, y: (row + (rows - layer.length) / 2) * (HEIGHT + GAP_Y) + 4 })));
  const isCritical = (step) => step.tasks.some((task) => critical.has(task.id));
  const edges = steps.flatMap((step) => step.after.filter((id) => by.has(id)).map((id) => h("path", {
    class: isCritical(step) && isCritical(by.get(id)) ? "edge critical" : "edge",
    d: way([id, ...layers.flat().filter((each) => each.from === id && each.to === step.id).map((each) => each.id), step.id].map((each) => places.get(each))) })));
  const boxes = steps.map((step) => box(step, places.get(step.id), isCritical(step)));
  const width = layers.length * (WIDTH + GAP_X) - GAP_X + 8;
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y + 8;
  const picture = h("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Steps and what each comes after" }, edges, boxes);
  return picture;
}

/** A line through places, from layer to layer: it bends between them, and goes straight past boxes. */
function way(places) {
  const [first, ...rest] = places;
  const line = [`M${first.x + WIDTH} ${first.y + HEIGHT / 2}`];
  let [x1, y1] = [first.x + WIDTH, first.y + HEIGHT / 2];
  for (const [number, { x, y }] of rest.entries()) {
    const middle = (x1 + x) / 2;
    line.push(`C${middle} ${y1} ${middle} ${y + HEIGHT / 2} ${x} ${y + HEIGHT / 2}`);
    if (number < rest.length - 1) line.push(`H${x + WIDTH}`);
    [x1, y1] = [x + WIDTH, y + HEIGHT / 2];
  }
  return line.join(" ");
}

function box(step, { x, y }, critical) {
  const standing = standingOf(step);
  const state = STATES[standing] || { mark: "·", words: standing };
  const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const inside = [
    h("title", {}, `${step.id}: ${state.words}${step.why ? `, ${step.why}` : ""}`),
    h("rect", { class: critical ? "box critical" : "box", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    h("text", { x: x + 10, y: y + 18, class: `s-${standing}` }, state.mark),
    h("text", { x: x + 28, y: y + 18, "font-weight": 600 }, short(step.id, 22)),
    h("text", { x: x + 28, y: y + 35, class: "dim" }, short(STATES[standing] ? step.role : `${step.role}, ${state.words}`, 25)),
  ];
  if (!step.tasks.length) return h("g", {}, inside);
  const link = document.createElementNS("http://www.w3.org/2000/svg", "a");
  link.setAttribute("href", `#/tasks/${encodeURIComponent(step.tasks[0].id)}`);
  link.setAttribute("aria-label", `${step.id}, ${step.role}, ${state.words}`);
  link.append(...inside);
  return link;
}

/** Each step in the layer after the last of those it comes after; within a layer near its parents.
 *  Where a line passes a layer there is `{id, from, to, after}` in it, which keeps its place free. */
function layered(steps, by) {
  const depth = new Map();
  const depthOf = (step, above = new Set()) => {
    if (depth.has(step.id)) return depth.get(step.id);
    if (above.has(step.id)) return 0; // a circle, which the file's check refuses
    above.add(step.id);
    const found = Math.max(-1, ...step.after.map((id) => by.get(id)).filter(Boolean).map((each) => depthOf(each, above))) + 1;
    depth.set(step.id, found);
    return found;
  };
  steps.forEach((step) => depthOf(step));
  const layers = [];
  for (const step of steps) (layers[depth.get(step.id)] ||= []).push({ ...step });
  for (const step of layers.flat()) {
    step.after = step.after.filter((id) => by.has(id)).map((id) => {
      let last = id;
      for (let between = depth.get(id) + 1; between < depth.get(step.id); between += 1) {
        layers[between].push({ id: `${id} > ${step.id} ${between}`, from: id, to: step.id, after: [last] });
        last = layers[between].at(-1).id;
      }
      return last;
    });
  }
  for (let number = 1; number < layers.length; number += 1) {
    const order = new Map(layers[number - 1].map((step, place) => [step.id, place]));
    const middle = (step) => { const at = step.after.map((id) => order.get(id)).filter((place) => place !== undefined); return at.length ? at.reduce((a, b) => a + b, 0) / at.length : 0; };
    layers[number].sort((a, b) => middle(a) - middle(b));
  }
  return layers;
}
