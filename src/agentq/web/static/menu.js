// A small menu beside something, for whoever does not drag: keyboard, touch, right click.

import { h } from "./dom.js";

let open = null;

/** Show choices: `{words, key, run}`. */
export function openMenu(beside, choices) {
  closeMenu();
  const back = document.activeElement;
  const box = beside.getBoundingClientRect();
  const menu = h("div", { class: "menu", role: "menu", "aria-label": "What to do" }, choices.map((choice) => h("button", {
    type: "button", role: "menuitem", tabindex: "-1", onclick: () => { closeMenu(); choice.run(); },
  }, h("span", {}, choice.words), choice.key && h("kbd", {}, choice.key))));
  document.body.append(menu);
  menu.style.left = `${Math.max(8, Math.min(box.left + 16, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.max(8, Math.min(box.top + 24, innerHeight - menu.offsetHeight - 8))}px`;
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.children];
    const at = items.indexOf(document.activeElement);
    if (event.key === "ArrowDown") items[(at + 1) % items.length].focus();
    else if (event.key === "ArrowUp") items[(at - 1 + items.length) % items.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") closeMenu();
    else {
      const chosen = choices.find((choice) => choice.key === event.key);
      if (!chosen) return;
      closeMenu();
      chosen.run();
    }
    event.preventDefault();
    event.stopPropagation();
  });
  const leave = (event) => { if (!menu.contains(event.target)) closeMenu(); };
  document.addEventListener("pointerdown", leave);
  open = { menu, end: () => { document.removeEventListener("pointerdown", leave); menu.remove(); if (back?.isConnected) back.focus({ preventScroll: true }); } };
  menu.firstChild?.focus();
}

export function closeMenu() {
  open?.end();
  open = null;
}
