// Which tasks are chosen for one decision: cards of this board, and tasks that it does not hold.

import { board } from "./api.js";
import { cards } from "./live.js";

/** More than these nobody decides about at once: it would take this page many minutes. */
const MOST = 50_000;

export class Choice {
  constructor() {
    this.ids = new Set();
    this.beyond = new Map();
  }

  get size() { return this.ids.size; }

  has(id) { return this.ids.has(id); }

  toggle(id) { if (!this.ids.delete(id)) this.ids.add(id); }

  addAll(found) { for (const card of found) this.ids.add(card.id); }

  clear() {
    this.ids.clear();
    this.beyond.clear();
  }

  /** What is chosen, as it is now; what the board does not hold as the server said. */
  tasks() {
    return [...this.ids].map((id) => cards.get(id) || this.beyond.get(id)).filter(Boolean);
  }

  /** Forget what has gone. */
  prune() {
    for (const id of this.ids) if (!cards.has(id) && !this.beyond.has(id)) this.ids.delete(id);
  }

  /** Choose every task that passes a filter, page by page as the server finds them; `tell` hears how
   *  many there are so far, and ends it by answering false. */
  async addMatching(query, tell) {
    let cursor = 0;
    do {
      const page = await board("matching", { q: query, cursor });
      for (const task of page.tasks) {
        this.ids.add(task.id);
        if (!cards.has(task.id)) this.beyond.set(task.id, task);
      }
      cursor = page.cursor;
    } while (cursor && this.size < MOST && tell(this.size) !== false);
    return !cursor;
  }
}
