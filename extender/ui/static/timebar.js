// What happened: a bar of the last minutes, and the sentences.
import { make } from "./dom.js";

const MINUTES = 15, BUCKETS = 60;
const KINDS = { start: "got a GPU", end: "left", pending: "began to wait", gang: "gang phases", node: "nodes", trouble: "troubles" };

/** The bar: a column for each quarter of a minute, as high as what happened in it. */
export function drawBar(box, happenings, now) {
  const width = (MINUTES * 60) / BUCKETS, begin = now - MINUTES * 60;
  const columns = Array.from({ length: BUCKETS }, () => ({}));
  const totals = {};
  for (const { at, kind } of happenings) {
    const index = Math.min(BUCKETS - 1, Math.floor((at - begin) / width));
    if (index < 0) continue;
    columns[index][kind] = (columns[index][kind] || 0) + 1;
    totals[kind] = (totals[kind] || 0) + 1;
  }
  const sum = (column) => Object.values(column).reduce((all, one) => all + one, 0);
  const most = Math.max(1, ...columns.map(sum));
  box.replaceChildren(...columns.map((column) => make("span", "", {}, ...Object.keys(KINDS).filter((kind) => column[kind]).map((kind) => {
    const made = make("i", `kind-${kind}`);
    made.style.height = `${(100 * column[kind]) / most}%`;
    return made;
  }))));
  const words = Object.entries(KINDS).filter(([kind]) => totals[kind]).map(([kind, word]) => `${totals[kind]} ${word}`);
  box.setAttribute("aria-label", `The last ${MINUTES} minutes: ${words.join(", ") || "nothing has happened"}`);
}

/** One thing that happened. */
export function happeningRow(one) {
  const when = new Date(one.at * 1000).toLocaleTimeString();
  const cell = make("div", "happening", { role: "gridcell", "data-cell": "", tabindex: -1, title: one.text }, make("i", `dot kind-${one.kind}`, { "aria-hidden": "true" }), make("time", "", {}, when), make("span", "", {}, one.text));
  return make("div", "row", { role: "row" }, cell);
}
