// What a task has left: its report, files, diffs. All of it is somebody else's word, and shown as such.

import { board, bytes, look, part, Refused } from "./api.js";
import { cleaned, fill, h } from "./dom.js";
import { diffElement } from "./diff.js";
import { size } from "./words.js";

/** What a person decides by: the report of a task and its files, each opened when somebody wants it,
 *  and what was asked for; that first where nothing was done yet. */
export async function evidence(id, decision) {
  const holder = h("div", { class: "evidence" });
  try {
    const [report, files, context] = await Promise.all([board("preview", { task: id, what: "result" }), look(`tasks/${part(id)}/artifacts`),
      board("preview", { task: id, what: "context" })]);
    if (report.size) holder.append(h("h3", {}, "Report"), shown(report, id));
    if (files.length || decision === "review") holder.append(fileList(id, files));
    holder[decision === "approval" ? "prepend" : "append"](h("h3", {}, "What was asked for"), shown(context, id));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    holder.append(h("p", { class: "dim" }, error.message));
  }
  return holder;
}

const isDiff = (file) => /\.(diff|patch)$/.test(file.name);
const isTestOutput = (file) => /^(verify|tests?)([-_.].*)?\.(log|txt|md)$/.test(file.name);
/** What was changed first, the worker's own records last. */
const rank = (file) => (isDiff(file) ? 0 : isTestOutput(file) ? 1 : file.name.startsWith("agentq/") ? 3 : 2);

export function fileList(id, files) {
  if (!files.length) return h("p", { class: "dim" }, "No files.");
  const sorted = [...files].sort((a, b) => rank(a) - rank(b));
  const open = [sorted.find(isDiff), sorted.find(isTestOutput)];
  return h("ul", { class: "files" }, sorted.map((file) => {
    const body = h("div", {});
    const details = h("details", {}, h("summary", {}, h("span", {}, file.name),
      h("span", { class: "dim" }, ` ${size(file.size)}${file.epoch ? `, attempt ${file.epoch}` : ""}`)), body);
    details.addEventListener("toggle", async () => {
      if (!details.open || body.children.length) return;
      fill(body, await previewOf(id, file));
    });
    if (open.includes(file)) details.open = true;
    return h("li", {}, details);
  }));
}

async function previewOf(id, file) {
  try {
    return shown(await board("preview", { task: id, name: file.name, epoch: file.epoch || 0 }), id, file);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return h("p", { class: "dim" }, error.message);
  }
}

/** A preview as an element. */
export function shown(preview, id, file = null) {
  const cut = preview.cut && h("p", { class: "dim" }, "This is the beginning of it.");
  if (preview.kind === "markdown") return h("div", {}, cleaned(preview.html), cut);
  if (preview.kind === "diff") return h("div", {}, diffElement(preview.text), cut);
  if (preview.kind === "picture") return picture(preview, id, file);
  if (preview.kind === "binary") return h("p", { class: "dim" }, "Not a text. ", download(id, file));
  return h("div", {}, h("pre", { class: "text" }, preview.text), cut);
}

function address(id, file) {
  return `tasks/${part(id)}/artifacts/${file.name.split("/").map(part).join("/")}${file.epoch ? `?epoch=${file.epoch}` : ""}`;
}

function download(id, file) {
  return file && h("a", { href: `api/v1/${address(id, file)}`, download: file.name.split("/").pop() }, "Download it");
}

/** From memory, as what it says it is: no address of an agent is ever asked for. */
function picture(preview, id, file) {
  const image = h("img", { alt: preview.name, class: "picture" });
  bytes(address(id, file)).then((blob) => {
    const url = URL.createObjectURL(new Blob([blob], { type: preview.type }));
    image.addEventListener("load", () => URL.revokeObjectURL(url));
    image.src = url;
  });
  return image;
}
