// Views that a person has kept, in this browser.

const KEY = "agentq views";

export function savedViews() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) || "{}");
    return Object.entries(found).filter(([, where]) => typeof where === "string" && where.startsWith("#/"));
  } catch {
    return []; // somebody else's, or a browser that keeps nothing
  }
}

const keep = (views) => localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(views)));

export function saveView(name, where) {
  keep([...savedViews().filter(([each]) => each !== name), [name.slice(0, 40), where || "#/"]]);
}

export function dropView(name) {
  keep(savedViews().filter(([each]) => each !== name));
}
