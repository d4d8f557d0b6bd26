// A column that shows thousands of cards and holds only those that can be seen.

import { h } from "./dom.js";

const CARD_HEIGHT = 110;
const HEAD_HEIGHT = 28;
const BEYOND = 300;

/** `draw(item)` makes the element of a row: `{key, mark, head}` or `{key, mark, card}`; a row is drawn
 *  anew when its mark is another. */
export class Column {
  constructor(scroller, draw) {
    this.scroller = scroller;
    this.inner = h("div", { class: "rows", role: "list" });
    this.draw = draw;
    this.rows = [];
    this.keys = new Set();
    this.tops = [0];
    this.shown = new Map();
    this.frame = 0;
    scroller.append(this.inner);
    scroller.addEventListener("scroll", () => this.soon(), { passive: true });
  }

  soon() {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.render(); });
  }

  set(rows) {
    this.rows = rows;
    this.keys = new Set(rows.map((row) => row.key));
    let top = 0;
    this.tops = rows.map((row) => { const at = top; top += row.head === undefined ? CARD_HEIGHT : HEAD_HEIGHT; return at; });
    this.inner.style.height = `${top}px`;
    this.render();
  }

  /** The first row that ends below a height. */
  rowAt(height) {
    let low = 0;
    let high = this.tops.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  render() {
    const from = this.scroller.scrollTop - BEYOND;
    const to = this.scroller.scrollTop + this.scroller.clientHeight + BEYOND;
    const wanted = new Map();
    for (let number = this.rowAt(Math.max(0, from)); number < this.rows.length && this.tops[number] < to; number += 1) {
      wanted.set(this.rows[number].key, number);
    }
    const focused = document.activeElement?.closest?.("[data-key]")?.dataset.key;
    for (const [key, { element }] of this.shown) {
      // Whoever has the focus keeps it, even far away.
      if (!wanted.has(key) && !(key === focused && this.keys.has(key))) { element.remove(); this.shown.delete(key); }
    }
    for (const [key, number] of wanted) this.place(key, number);
  }

  place(key, number) {
    const row = this.rows[number];
    let known = this.shown.get(key);
    if (!known || known.mark !== row.mark) {
      const element = this.draw(row);
      element.dataset.key = key;
      const hadFocus = known && known.element === document.activeElement;
      if (known) known.element.replaceWith(element);
      else this.inner.append(element);
      if (hadFocus) element.focus({ preventScroll: true });
      known = { element, mark: row.mark, top: -1 };
      this.shown.set(key, known);
    }
    if (known.top !== this.tops[number]) {
      known.top = this.tops[number];
      known.element.style.transform = `translateY(${known.top}px)`;
    }
    known.element.setAttribute("aria-posinset", number + 1);
    known.element.setAttribute("aria-setsize", this.rows.length);
  }

  /** Bring a row into sight and give it the focus. */
  focus(key) {
    const number = this.rows.findIndex((row) => row.key === key);
    if (number < 0) return;
    const top = this.tops[number];
    if (top < this.scroller.scrollTop || top + CARD_HEIGHT > this.scroller.scrollTop + this.scroller.clientHeight) {
      this.scroller.scrollTop = Math.max(0, top - this.scroller.clientHeight / 3);
    }
    this.render();
    this.shown.get(key)?.element.focus({ preventScroll: true });
  }
}
