// A plain table: columns as `[words, draw]`, a number column's words begin with ">".

import { h, worded } from "./dom.js";

export function table(columns, rows, empty = "Nothing.", caption = "") {
  if (!rows.length) return h("p", { class: "dim" }, worded(empty));
  const num = (words) => (words.startsWith(">") ? "num" : null);
  return h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption || "Table" }, h("table", { class: "list" },
    h("thead", {}, h("tr", {}, columns.map(([words]) => h("th", { scope: "col", class: num(words) }, words.replace(/^>/, ""))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([words, draw]) => h("td", { class: num(words) }, draw(row))))))));
}

export function panel(title, ...children) {
  return h("section", { class: "panel", "aria-label": title }, h("h2", {}, title), ...children);
}
