// A new task from the page: what `agentq submit` takes.

import { newId } from "./actions.js";
import { decide, trying } from "./api.js";
import { ask, h } from "./dom.js";
import { state } from "./live.js";
import { PRIORITIES } from "./words.js";

/** A list of the roles that are known, for fields that name one. */
export function roleList() {
  const list = document.getElementById("roles") || document.body.appendChild(h("datalist", { id: "roles" }));
  list.replaceChildren(...(state.overview?.roles || []).map((role) => h("option", { value: role.name })));
}

export async function newTask(role = "") {
  roleList();
  const given = await ask({
    title: "New task", submit: "Submit", command: "agentq submit -t ROLE \"…\"",
    fields: [
      { name: "instructions", label: "What is to be done?", lines: 6, required: true },
      { name: "title", label: "Title (may stay empty)" },
      { name: "to", label: "Role", required: true, list: "roles", value: role || state.overview?.roles[0]?.name || "" },
      { name: "priority", label: "Priority", options: PRIORITIES, value: "normal" },
      { name: "approval", label: "Before it starts", options: ["nobody is asked", "a person approves"] },
    ],
  });
  if (!given) return;
  const id = newId();
  const spec = { id, to: given.to, title: given.title, instructions: given.instructions, priority: given.priority,
    requires_approval: given.approval === "a person approves" };
  await trying(() => decide("tasks", { specs: [spec], generated: [id] }), `Submitted: ${id}`);
}
