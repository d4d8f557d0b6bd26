// Which cards a view shows: words and `name:value`, each of them also excluding with a minus. The
// server reads filters alike (web/matching.py), for what a board does not hold.

/** "role:build -label:area=web is:waiting parser" as a list of tests. */
export function parse(query) {
  const tests = [];
  for (const piece of query.match(/-?(?:[\w]+:)?(?:"[^"]*"|\S+)/g) || []) {
    const not = piece.startsWith("-") && piece.length > 1;
    const [, name, rest] = (not ? piece.slice(1) : piece).match(/^(?:(\w+):)?(.*)$/);
    const value = rest.replaceAll('"', "").toLowerCase();
    const known = Boolean(name) && Object.hasOwn(FIELDS, name);
    if (value) tests.push({ not, name: known ? name : "", value: known || !name ? value : `${name}:${value}` });
  }
  return tests;
}

const same = (text, value) => (text || "").toLowerCase() === value;
const FIELDS = {
  role: (card, value) => same(card.role, value),
  state: (card, value) => same(card.state, value),
  priority: (card, value) => same(card.priority, value),
  agent: (card, value) => (card.holder || "").toLowerCase().startsWith(value),
  from: (card, value) => same(card.sender, value),
  run: (card, value) => same(card.parent, value) || same(card.id, value),
  label: (card, value) => Object.entries(card.labels || {}).some(([name, text]) => {
    const [wanted, ...rest] = value.split("=");
    return name.toLowerCase() === wanted && (!rest.length || text.toLowerCase() === rest.join("="));
  }),
  is: (card, value) => (value === "waiting" ? Boolean(card.decision)
    : value === "irreversible" ? Boolean(card.irreversible) : value === "applied" ? Boolean(card.applied) : false),
};
export const FIELD_NAMES = Object.keys(FIELDS);

function hasWords(card, value) {
  return [card.id, card.title, card.role, card.note, card.reason, card.summary, ...Object.values(card.labels || {})]
    .some((text) => text && text.toLowerCase().includes(value));
}

/** Whether a card passes all tests. */
export function passes(card, tests) {
  return tests.every(({ not, name, value }) => (name ? FIELDS[name](card, value) : hasWords(card, value)) !== not);
}

export const GROUPS = {
  "": () => "",
  role: (card) => card.role,
  run: (card, cards) => (card.workflow ? card.title : card.parent ? cards.get(card.parent)?.title || card.parent : "no run"),
  agent: (card) => card.holder?.split("@")[0] || "nobody",
  priority: (card) => card.priority,
};
