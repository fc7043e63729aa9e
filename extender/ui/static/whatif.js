// The panel that asks what would become of pods that do not exist.
import { ask } from "./ask.js";
import { count, make } from "./dom.js";
import { line, open } from "./detail.js";

const MOST_LINES = 100;
const UNITS = { memory: "units of GPU memory of one GPU", slices: "time slices of one GPU", gpus: "whole GPUs" };

function field(text, name, element, wide = "") {
  element.name = name;
  return make("label", wide, {}, `${text} `, element);
}

const number = (value) => make("input", "", { type: "number", min: 1, max: 100000, value, required: "" });
const text = (value) => make("input", "", { type: "text", maxlength: 253, value: value || "" });

function choice(options) {
  const made = make("select", "");
  for (const [value, words] of options) made.append(make("option", "", { value }, words));
  return made;
}

/** Opens the form; `namespace` and `queue` stand in it, and `nodes` are those that further ones may be like. */
export function showWhatIf({ namespace, queue, nodes }) {
  const together = make("input", "", { type: "checkbox", value: "1" });
  const like = make("input", "", { type: "text", maxlength: 253, list: "like-nodes" });
  const known = make("datalist", "", { id: "like-nodes" });
  for (const node of nodes.slice(0, 200)) known.append(make("option", "", { value: node.name }));
  const form = make("form", "whatif", { "aria-label": "What if?" },
    field("Pods", "pods", number(1)),
    field("each requests", "amount", number(1)),
    field("of", "of", choice(Object.entries(UNITS))),
    field("start together", "together", together),
    field("Namespace", "namespace", text(namespace || "default")),
    field("Queue", "queue", text(queue)),
    field("PriorityClass", "priority", text("")),
    field("with more nodes like", "like", like), known,
    field("so many", "more", number(1)),
    make("button", "plain", { type: "submit" }, "Ask"));
  const box = make("div", "answer", { role: "status" });
  form.addEventListener("submit", (event) => { event.preventDefault(); answer(form, box); });
  open("Nothing is created", "What if?", line("What would become of pods like these?"), form, box);
}

async function answer(form, box) {
  box.replaceChildren(line("The cluster is asked."));
  const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  try {
    const found = await ask(`whatif?${given}`);
    box.replaceChildren(...told(found, given).filter(Boolean));
  } catch (error) {
    box.replaceChildren(line(error.message));
  }
}

function told({ status: found, places }, given) {
  const more = found.further && [
    make("h3", "", {}, `With ${count(Number(given.get("more")), "more node")} like ${given.get("like")}`),
    make("p", "headline", {}, headline(found.further)), ...found.further.workloads.flatMap(details)];
  return [make("p", "headline", {}, headline(found)), advice(found.verdict), ...found.workloads.flatMap(details), ...list(places), ...(more || [])];
}

const headline = (answer) => answer.workloads.length === 1 ? `It ${answer.verdict.headline}` : answer.verdict.headline;
const advice = (verdict) => verdict.advice && make("p", "advice", {}, make("b", "", {}, "What to do: "), verdict.advice);

function* sentences(workload) {
  for (const warning of workload.warnings || []) yield `Warning: ${warning}`;
  if (workload.verdict.state !== "now") { yield workload.sentence; yield workload.numbers; }
  if (workload.verdict.state === "later") yield `${workload.after ? `Once ${workload.after} has ended` : "Once others have ended"}${workload.sure === false ? " (a guess: not all run times are known)" : ""}.`;
  if (workload.place) yield `Queue ${workload.queue}: number ${workload.place} of ${workload.inLine} pending workloads in it.`;
  for (const victim of workload.victims || []) yield `${victim.namespace}/${victim.name} on ${victim.node} would be evicted.`;
  if (workload.otherVictims) yield `${count(workload.otherVictims, "pod")} that you may not see would be evicted.`;
  if (workload.forbidden) yield `Evictions would help, but: ${workload.forbidden}`;
}

const details = (workload) => list([...sentences(workload)].filter(Boolean).slice(0, MOST_LINES));
const list = (lines) => (lines.length ? [make("ul", "", {}, ...lines.map((words) => make("li", "", {}, words)))] : []);
