// The panel: a pod's explanation, a GPU, a gang or a queue.
import { ask } from "./ask.js";
import { ago, at, button, count, duration, keyOf, make, memory } from "./dom.js";
import { account } from "./lists.js";
import { linksOf } from "./links.js";
import { sentence } from "./map.js";

/** Where the focus was, and the list that it was in: a row may have been drawn anew since. */
let back = { element: null, list: null };
let asked = 0;

export const line = (text) => (text ? make("p", "", {}, text) : null);

/** Opens the panel with a heading. */
export function open(kind, name, ...content) {
  asked++;
  const element = document.activeElement;
  if (at("detail").hidden) back = { element, list: element.closest(".list") };
  at("detail").hidden = false;
  at("detail-kind").textContent = kind;
  at("detail-name").textContent = name;
  at("detail-body").replaceChildren(...content.filter(Boolean));
  at("detail-name").focus();
}

/** Closes the panel; the focus returns to where it was. */
export function close() {
  at("detail").hidden = true;
  asked++;
  (back.element?.isConnected ? back.element : back.list?.querySelector('[tabindex="0"]'))?.focus();
}

/** What `gangshare explain pod` says; which GPUs it holds, the server says. */
function* sentences(pod) {
  yield pod.sentence;
  yield pod.numbers;
  if (pod.sentence) yield `It has waited for ${duration(pod.since)}.`;
  if (pod.queue && pod.state === "waiting") {
    yield `Queue ${pod.queue}${pod.place ? `: number ${pod.place} of ${pod.inLine} pending workloads in it` : ""}.`;
  }
  const first = pod.earliest || pod.first;
  if (first) {
    const when = first.seconds ? `starts in ${duration(first.seconds)} at the earliest` : "starts at any moment";
    const after = first.after ? `, once ${first.after} has ended` : "";
    yield `${pod.earliest ? "It" : first.who} is first in its queue: it ${when}${after}${first.sure ? "" : " (a guess: not all run times are known)"}.`;
  }
  for (const some of pod.nodes || []) yield `${count(some.nodes, "node")}: ${some.why || "would take it"}`;
  if (pod.problem) yield `Problem: ${pod.problem}`;
  for (const conflict of pod.conflicts || []) yield `Conflict: ${conflict}`;
  if (pod.asksGpus === false) yield "It requests no GPU.";
  if (pod.node) yield `It is on node ${pod.node}.`;
}

/** Asks the cluster about a pod, NAMESPACE/NAME. `whatIf(namespace, queue)` makes a button for a pending one. */
export async function showPod(key, whatIf) {
  const slash = key.indexOf("/");
  const path = [key.slice(0, slash), key.slice(slash + 1)].map(encodeURIComponent).join("/");
  open("Pod", key, line("The cluster is asked."));
  const mine = asked;
  let content;
  try {
    const found = await ask(`explain/${path}`);
    content = [...explanation(key, found), found.pod.node ? null : whatIf(key.slice(0, slash), found.pod.queue)];
  } catch (error) {
    content = [line(error.message)];
  }
  if (mine === asked) at("detail-body").replaceChildren(...content.filter(Boolean));
}

function explanation(key, { pod, held }) {
  const verdict = pod.verdict || {};
  const told = [...sentences(pod), ...held].filter(Boolean).map((text) => make("li", "", {}, text));
  return [
    make("p", "headline", {}, `${key} ${verdict.headline || `is ${pod.state}`}`),
    verdict.advice && make("p", "advice", {}, make("b", "", {}, "What to do: "), verdict.advice),
    told.length && make("ul", "", {}, ...told),
  ];
}

const holds = (holder) =>
  [holder.whole ? "whole" : memory(holder.memory), holder.slices && count(holder.slices, "slice"), holder.kept && "kept for its replacement", holder.reserved && "reserved"].filter(Boolean).join(", ");

/** Shows a GPU of a node with its pods; `explain(key)` is called when one is chosen. */
export function showGpu(node, board, explain) {
  const content = [line(node.state === "ok" ? "" : `Node: ${node.state}${node.why ? `, ${node.why}` : ""}`)];
  for (const gpu of board?.parts || []) {
    content.push(make("h3", "", {}, gpu.profile ? `Instance ${gpu.id} (${gpu.profile})` : `GPU ${gpu.id}`), line(sentence(gpu)), line(gpu.level));
    const items = gpu.holders.map((holder) =>
      make("li", "", {}, holder.pod ? button(holder.pod, () => explain(holder.pod)) : "a pod that is not shown", ` ${holds(holder)}`));
    if (gpu.others) items.push(make("li", "", {}, `${count(gpu.others, "pod")} that you may not see`));
    if (items.length) content.push(make("ul", "", {}, ...items));
  }
  if (node.gpus.length > 1) content.push(linksOf(node.name));
  open(board ? "GPU" : "Node", board ? `${node.name}, GPU ${board.id}` : node.name, ...content);
}

/** Shows a gang with its pending members. */
export function showGang(gang, workloads, explain) {
  const members = workloads.filter((one) => one.kind === "pod" && one.gang === keyOf(gang));
  open("Gang", keyOf(gang),
    line(`${gang.phase} for ${ago(gang.since)}: ${count(gang.members, "member")}, ${gang.running} running, minimum ${gang.minimum ?? "unknown"}.`),
    line(gang.queue && `Queue ${gang.queue}.`), gang.message && make("p", "headline", {}, gang.message),
    members.length && make("h3", "", {}, "Pending members"),
    members.length && make("ul", "", {}, ...members.map((one) => make("li", "", {}, button(keyOf(one), () => explain(keyOf(one)))))));
}

/** Shows a queue; `only()` is called when the viewer chooses it as the filter. */
export function showQueue(queue, only) {
  open("Queue", queue.name, line(account(queue)), line(queue.parent && `Parent ${queue.parent}.`),
    line(`${count(queue.running, "pod")} running, ${queue.pending} pending${queue.closed ? "; it is closed" : ""}.`),
    queue.problem && make("p", "headline", {}, queue.problem), button("Show only this queue", only, "plain"));
}
