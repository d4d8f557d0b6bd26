// The HTTP API: every question and every decision goes through here, under the person's own rights.

import { tagged, toast } from "./dom.js";

/** What the ledger has refused, in its own words. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message || error.cause || "The server did not answer.");
    this.status = status;
    this.code = error.code || "";
    this.remedy = error.remedy || "";
  }
}

async function request(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, { cause: "The server cannot be reached.", remedy: "The board goes on as soon as it can." });
  }
  if (answer.ok) return answer;
  const plain = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, plain.error || {});
}

/** Ask for something below /board/. */
export async function board(path, query = {}) {
  const answer = await request(`board/${path}${queryOf(query)}`);
  return (await answer.json()).value;
}

/** Ask the API. */
export async function look(path, query = {}) {
  const answer = await request(`api/v1/${path}${queryOf(query)}`);
  return answer.status === 204 ? null : (await answer.json()).value;
}

/** A file of the API, as bytes. */
export async function bytes(path) {
  return (await request(`api/v1/${path}`)).blob();
}

/** Decide something. With a version it counts only if the task is still as it was shown. */
export async function decide(path, body = {}, { version = 0, method = "POST" } = {}) {
  const headers = { "content-type": "application/json", "x-csrf-token": tagged("csrf-token"),
    "idempotency-key": crypto.randomUUID() };
  if (version) headers["if-match"] = `"${version}"`;
  const answer = await request(`api/v1/${path}`, { method, headers, body: JSON.stringify(body) });
  return answer.status === 204 ? null : (await answer.json()).value;
}

/** Ask for what a page alone may ask, below /board/. */
export async function begin(path, body) {
  const headers = { "content-type": "application/json", "x-csrf-token": tagged("csrf-token") };
  const answer = await request(`board/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  return (await answer.json()).value;
}

export function queryOf(query) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

export const part = encodeURIComponent;

/** Do something; what is refused is said in the ledger's own sentence. Whether it was done. */
export async function trying(action, done = "") {
  try {
    await action();
    if (done) toast(done);
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    toast(error.message, { error: true, remedy: error.remedy });
    return false;
  }
}
