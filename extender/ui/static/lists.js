// Rows of the lists: queues, gangs, and pods in the line.
import { ago, count, duration, gpus, keyOf, make, now } from "./dom.js";

const cell = (name, ...children) => make("div", name, { role: "gridcell", "data-cell": "", tabindex: -1 }, ...children);
const row = (attributes, ...cells) => make("div", "row", { role: "row", ...attributes }, ...cells);
const part = (name, text) => (text ? make("span", name, { title: text }, text) : null);

function mark(name, amount, most) {
  const made = make("i", name);
  made.style.setProperty("--at", `${Math.min(100, (100 * amount) / most)}%`);
  return made;
}

/** A bar of a queue: used, requested, its fair share and its quota, on a scale that all queues have. */
function bar(queue, most) {
  const made = make("div", "bar", { "aria-hidden": "true" }, mark("demand", queue.demand, most), mark("used", Math.min(queue.used, queue.gpus ?? queue.used), most));
  if (queue.borrowed) {
    const extra = mark("borrowed", queue.borrowed, most);
    extra.style.setProperty("--from", `${Math.min(100, (100 * (queue.used - queue.borrowed)) / most)}%`);
    made.append(extra);
  }
  if (queue.share != null) made.append(mark("tick share", queue.share, most));
  if (queue.gpus != null) made.append(mark("tick quota", queue.gpus, most));
  return made;
}

/** The most GPUs that a bar of these queues shows. */
export const scale = (queues) =>
  Math.max(1, ...queues.map((queue) => Math.max(queue.used, queue.demand, queue.share ?? 0, queue.gpus ?? 0)));

/** A queue in one sentence. */
export function account(queue) {
  return [
    `${gpus(queue.used)} used`, `${gpus(queue.demand)} requested`, queue.share != null && `share ${gpus(queue.share)}`,
    queue.gpus != null && `quota ${gpus(queue.gpus)}`, queue.limit != null && `limit ${gpus(queue.limit)}`,
    queue.borrowed && `borrows ${gpus(queue.borrowed)}`, queue.lent && `lends ${gpus(queue.lent)}`,
    queue.pending && `${queue.pending} pending`,
  ].filter(Boolean).join(" · ");
}

export function queueRow(queue, most) {
  const flag = queue.problem ? "problem" : queue.closed ? "closed" : "";
  const label = cell("queue", make("div", "name", {}, make("strong", "", {}, queue.name), flag ? make("b", "flag", { title: queue.problem }, flag) : null), bar(queue, most), part("account", account(queue)));
  const made = row({ "aria-level": queue.depth + 1 }, label);
  made.style.setProperty("--depth", Math.min(queue.depth, 8));
  return made;
}

/** A workload's earliest start, in words. */
function starts(one) {
  if (one.start == null) return "";
  const seconds = one.start - now();
  return seconds < 1 ? "starts at any moment" : `starts in ${duration(seconds)} at the earliest`;
}

export function gangRow(gang) {
  const minimum = gang.minimum == null ? "" : `, minimum ${gang.minimum}`;
  const members = `${gang.running} of ${count(gang.members, "member")} running${minimum}`;
  const since = `${gang.phase} for ${ago(gang.since)}`;
  return row({}, cell("work", make("div", "name", {}, make("strong", "", {}, keyOf(gang)), make("b", "flag phase", {}, gang.phase), starts(gang) ? make("b", "flag first", {}, starts(gang)) : null),
    part("account", [members, since, gang.queue && `queue ${gang.queue}`].filter(Boolean).join(" · ")), part("why", gang.message)));
}

export function podRow(pod) {
  return row({}, cell("work", make("div", "name", {}, make("strong", "", {}, keyOf(pod)), starts(pod) ? make("b", "flag first", {}, starts(pod)) : null),
    part("account", [`has waited for ${ago(pod.since)}`, pod.queue && `queue ${pod.queue}`, pod.gang && `gang ${pod.gang}`].filter(Boolean).join(" · ")), part("why", pod.message)));
}
