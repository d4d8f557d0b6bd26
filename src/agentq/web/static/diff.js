// A unified diff, side by side, with its words coloured by what they are.

import { h } from "./dom.js";

const LINES_MAX = 4000;
const WORDS = /(\/\/.*|#.*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)|\b(abstract|and|as|assert|async|await|break|case|catch|class|const|continue|def|del|do|elif|else|enum|except|export|extends|false|False|finally|fn|for|from|func|function|global|if|impl|import|in|interface|is|lambda|let|match|mod|mut|new|nil|None|not|null|or|package|pass|pub|raise|return|self|static|struct|super|switch|this|throw|trait|true|True|try|type|use|var|void|while|with|yield)\b|\b(\d[\w.]*)\b/g;

/** Pieces of a line: strings and comments, words of languages, numbers. */
function coloured(text) {
  if (text.length > 500) return [text];
  const pieces = [];
  let at = 0;
  for (const found of text.matchAll(WORDS)) {
    if (found.index > at) pieces.push(text.slice(at, found.index));
    pieces.push(h("span", { class: found[1] ? "y-text" : found[2] ? "y-word" : "y-number" }, found[0]));
    at = found.index + found[0].length;
  }
  if (at < text.length) pieces.push(text.slice(at));
  return pieces;
}

export function diffElement(text) {
  const lines = text.replace(/\n$/, "").split("\n").slice(0, LINES_MAX);
  const holder = h("div", { class: "diff" });
  let body = null;
  let left = 0;
  let right = 0;
  let removed = [];
  let added = [];
  let header = true;
  const row = (kind, a, before, b, after) => body?.append(h("tr", { class: kind },
    h("td", { class: "n" }, a), h("td", { class: before === null ? "none" : kind === "same" ? "" : "minus" }, before === null ? "" : coloured(before)),
    h("td", { class: "n" }, b), h("td", { class: after === null ? "none" : kind === "same" ? "" : "plus" }, after === null ? "" : coloured(after))));
  const flush = () => {
    for (let i = 0; i < Math.max(removed.length, added.length); i += 1) {
      row("change", i < removed.length ? left++ : "", i < removed.length ? removed[i] : null,
        i < added.length ? right++ : "", i < added.length ? added[i] : null);
    }
    removed = [];
    added = [];
  };
  const file = (name) => {
    body = h("tbody", {});
    holder.append(h("details", { open: true }, h("summary", {}, name), h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Changes of ${name}` }, h("table", {}, h("colgroup", {}, ["n", "", "n", ""].map((kind) => h("col", { class: kind || null }))), body))));
  };
  for (const line of lines) {
    const hunk = line.match(/^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/);
    if (line.startsWith("diff --git ")) {
      flush();
      header = true;
      file(line.replace(/^diff --git a\/.* b\//, ""));
    } else if (hunk) {
      flush();
      if (!body) file("changes");
      header = false;
      [left, right] = [Number(hunk[1]), Number(hunk[2])];
      body.append(h("tr", { class: "hunk" }, h("td", { colspan: "4" }, `… ${hunk[3].trim()}`)));
    } else if (header || line.startsWith("\\")) continue;
    else if (line.startsWith("-")) removed.push(line.slice(1));
    else if (line.startsWith("+")) added.push(line.slice(1));
    else { flush(); row("same", left++, line.slice(1), right++, line.slice(1)); }
  }
  flush();
  if (!holder.children.length) return h("pre", { class: "text" }, text);
  return holder;
}
