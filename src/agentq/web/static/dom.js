// Elements from plain values. Text is always text: nothing here reads HTML.

/** An element: `h("a", {href: "#/", class: "x", onclick: f}, "words", child)`. */
export function h(tag, attributes, ...children) {
  const element = tag === "svg" || SVG_TAGS.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

const SVG_TAGS = new Set(["g", "path", "rect", "line", "circle", "text", "polyline", "title"]);

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === "") continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/** Put these in the place of whatever an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** HTML that the server has cleaned (see web/previews.py). The policy of the page runs no script,
 *  and lets no picture or style of it be fetched, should anything have slipped through. */
export function cleaned(html) {
  const holder = h("div", { class: "prose" });
  const parsed = new DOMParser().parseFromString(html, "text/html");
  holder.append(...parsed.body.childNodes);
  return holder;
}

/** Words with commands in them, `as here`: the commands as code, all else as it is. */
export function worded(text) {
  return String(text ?? "").split(/`([^`\n]+)`/).map((part, number) => (number % 2 ? h("code", { class: "wraps" }, part) : part));
}

export function tagged(name) {
  return document.querySelector(`meta[name="${name}"]`)?.content || "";
}

/** Say something for a while; an error stays until it is closed. */
export function toast(words, { error = false, remedy = "" } = {}) {
  const line = h("div", { class: error ? "toast error" : "toast", role: error ? "alert" : null },
    h("span", {}, worded(words), remedy && h("span", { class: "remedy" }, " ", worded(remedy))),
    h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => line.remove() }, "×"));
  const toasts = document.getElementById("toasts");
  toasts.append(line);
  while (toasts.children.length > 4) toasts.firstChild.remove();
  if (!error) setTimeout(() => line.remove(), 4000);
}

/** A dialog with fields; without `submit` one that only says something. Resolves to their values by name, or null if it was left. */
export function ask({ title, words = "", fields = [], submit = "OK", danger = false, command = "" }) {
  return new Promise((resolve) => {
    const back = document.activeElement;
    const inputs = fields.map((field) => [field, inputOf(field)]);
    const form = h("form", { method: "dialog", class: "ask" },
      h("h2", {}, title), words && h("p", {}, worded(words)),
      inputs.map(([field, input]) => h("label", {}, field.label, input)),
      command && h("p", { class: "command" }, "The same in a terminal: ", h("code", {}, command)),
      h("div", { class: "row end" },
        h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, submit ? "Leave" : "Close"),
        submit && h("button", { type: "submit", class: danger ? "danger" : "primary", value: "yes" }, submit)));
    const dialog = h("dialog", { "aria-label": title }, form);
    form.addEventListener("keydown", (event) => {
      if (submit && event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(form.querySelector("button[type=submit]"));
    });
    dialog.addEventListener("close", () => {
      const values = Object.fromEntries(inputs.map(([field, input]) => [field.name, input.value]));
      resolve(dialog.returnValue === "yes" ? values : null);
      dialog.remove();
      if (back instanceof HTMLElement && back.isConnected) back.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0]?.[1] || form.querySelector("button[type=submit]") || form.querySelector("button")).focus();
  });
}

function inputOf(field) {
  if (field.options) {
    const options = field.options.map((each) => (Array.isArray(each) ? each : [each, each]));
    const select = h("select", { name: field.name }, options.map(([value, words]) => h("option", { value }, words)));
    select.value = field.value ?? options[0][0];
    return select;
  }
  if (field.lines) {
    return h("textarea", { name: field.name, rows: field.lines, required: field.required, value: field.value ?? "" });
  }
  return h("input", { name: field.name, type: field.type || "text", required: field.required, step: field.step,
    min: field.min, value: field.value ?? "", list: field.list, autocomplete: "off" });
}
