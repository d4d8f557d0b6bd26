// What an agent says and does, as it works; what it has left, once it is over.

import { board, part, Refused } from "./api.js";
import { fill, h, worded } from "./dom.js";

const LOOKS = { text: "", thinking: "thinks", tool: "does", result: "", status: "", error: "error", denied: "not allowed", cost: "spent", output: "" };
// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b[\]PX^_][^\u0007\u001b\n]*(?:\u0007|\u001b\\)?|[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Show an attempt's conversation in this place, and follow it. */
export function conversation(place, id, epoch) {
  const list = h("div", { class: "talk", tabindex: "0", role: "log", "aria-label": "What the agent says" });
  fill(place, list);
  let source = null;
  let timer = 0;
  let ended = false;
  const load = async () => {
    timer = 0;
    try {
      const found = await board("conversation", { task: id, epoch });
      if (ended) return;
      const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
      fill(list, found.cut && h("p", { class: "dim" }, worded("… `agentq logs` has the beginning.")), found.entries.map(entry));
      if (!found.entries.length) fill(list, h("p", { class: "dim" }, found.live ? "It has said nothing yet." : "It has left no output."));
      if (atEnd) list.scrollTop = list.scrollHeight;
      if (found.live && !source) follow();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(list, h("p", { class: "dim" }, error.message));
    }
  };
  const soon = () => { if (!timer && !ended) timer = setTimeout(load, 400); };
  const follow = () => {
    source = new EventSource(`api/v1/tasks/${part(id)}/attempts/${epoch}/log?position=0`);
    source.addEventListener("output", soon);
    source.addEventListener("end", () => { source.close(); soon(); });
    source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) soon(); });
  };
  load();
  return { epoch, end: () => { ended = true; source?.close(); clearTimeout(timer); } };
}

function entry({ kind, text }) {
  return h("div", { class: `e-${kind}` }, LOOKS[kind] && h("span", { class: "kind" }, LOOKS[kind], " "), text.replace(ESCAPES, ""));
}
