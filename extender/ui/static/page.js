// The page: it shows what the server tells, by the viewer's choice.
import { close, showGang, showGpu, showPod, showQueue } from "./detail.js";
import { at, button, count, keyOf, make, now } from "./dom.js";
import { gangRow, podRow, queueRow, scale } from "./lists.js";
import { follow } from "./live.js";
import { STATES, boards, card } from "./map.js";
import { Store } from "./store.js";
import { themes } from "./theme.js";
import { drawBar, happeningRow } from "./timebar.js";
import * as views from "./view.js";
import { showWhatIf } from "./whatif.js";
import { Windowed } from "./windowed.js";

const FILTERS = ["model", "namespace", "queue"];
/** After every start. */
const LATE = Number.MAX_VALUE;
const CLOCK_MS = 15000;
const store = new Store();
let view = views.read();
/** The chosen queue and those below it. */
let queues = new Set();
let most = 1;
let asked = false;

const lists = {
  nodes: new Windowed(at("nodes"), { height: 90, least: 300, draw: (node) => card(node, view, queues), open: (node, cell) => showGpu(node, boards(node)[cell], explain) }),
  queues: new Windowed(at("queues"), { height: 62, draw: (queue) => queueRow(queue, most), open: (queue) => showQueue(queue, () => choose({ queue: queue.name })) }),
  gangs: new Windowed(at("gangs"), { height: 70, draw: gangRow, open: (gang) => showGang(gang, store.workloads, explain) }),
  line: new Windowed(at("line"), { height: 70, draw: podRow, open: (pod) => explain(keyOf(pod)) }),
  happenings: new Windowed(at("happenings"), { height: 26, draw: happeningRow, open: (one) => one.pod && explain(one.pod) }),
};

function explain(key) {
  choose({ pod: key });
  showPod(key, askFrom);
}

const askFrom = (namespace, queue) => button("What if?", () => whatIf(namespace, queue), "plain");

function whatIf(namespace, queue) {
  choose({ pod: "" });
  showWhatIf({ namespace: namespace || view.namespace, queue: queue || view.queue, nodes: store.nodes });
}

function shut() {
  choose({ pod: "" });
  close();
}

function choose(change) {
  view = { ...view, ...change };
  views.write(view);
  if (Object.keys(change).every((field) => field === "pod")) return;
  fill();
  draw(true);
}

/** Puts the choice into the fields. */
function fill() {
  if (at("q").value !== view.q) at("q").value = view.q;
  for (const field of FILTERS) at(field).value = view[field];
}

function option(value, text) {
  const made = make("option", "", {}, text);
  made.value = value;
  return made;
}

/** Offers the values that are there, and the chosen one even if it is not. */
function offer() {
  for (const [field, values] of Object.entries(views.offers(store))) {
    const every = view[field] && !values.includes(view[field]) ? [...values, view[field]] : values;
    const now = [...at(field).options].slice(1).map((one) => one.value);
    if (now.length !== every.length || now.some((value, index) => value !== every[index])) {
      at(field).replaceChildren(option("", "all"), ...every.map((value) => option(value, value)));
    }
  }
  fill();
}

/** The legend is the filter of the states, and says how many GPUs are in each. */
function legend() {
  const counts = new Map();
  for (const node of store.nodes) for (const gpu of node.gpus) counts.set(gpu.state, (counts.get(gpu.state) || 0) + 1);
  for (const state of STATES) {
    const chip = at(`state-${state}`);
    chip.setAttribute("aria-pressed", String(view.state === state));
    chip.querySelector("span").textContent = `${state} ${counts.get(state) || 0}`;
  }
}

function makeLegend() {
  at("states").replaceChildren(...STATES.map((state) => {
    const chip = make("button", "chip", { type: "button", id: `state-${state}`, "aria-pressed": "false" }, make("i", `gpu ${state}`, { "aria-hidden": "true" }, make("i")), make("span", "", {}, state));
    chip.addEventListener("click", () => choose({ state: view.state === state ? "" : state }));
    return chip;
  }));
}

function show(name, items, total, anew) {
  at(name).hidden = !items.length;
  lists[name].show(items, anew);
  at(`${name}-count`).textContent = items.length === total ? String(total) : `${items.length} of ${total}`;
  at(`${name}-none`).hidden = items.length > 0;
}

function draw(anew = false) {
  queues = views.below(store.queues, view.queue);
  const nodes = store.nodes.filter((node) => views.nodeFits(node, view, queues));
  const fitting = store.workloads.filter((one) => views.workloadFits(one, view, queues));
  const [gangs, pods] = ["gang", "pod"].map((kind) => fitting.filter((one) => one.kind === kind));
  const all = (kind) => store.workloads.filter((one) => one.kind === kind).length;
  const before = most;
  most = scale(store.queues);
  show("nodes", nodes, store.nodes.length, anew);
  show("queues", store.queues, store.queues.length, most !== before);
  show("gangs", gangs, all("gang"), anew);
  show("line", pods.sort((one, other) => (one.start ?? LATE) - (other.start ?? LATE) || one.since - other.since), all("pod"), anew);
  const happenings = [...store.happenings].reverse();
  show("happenings", happenings, happenings.length);
  drawBar(at("bar"), store.happenings, now());
  legend();
}

/** Draws once a frame, however much has come. */
function soon() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; offer(); draw(); at("limits").textContent = store.limits.join(" · "); });
}

let about = () => "The cluster is being read.";

function status(text, trouble = false) {
  if (at("about").textContent !== text) at("about").textContent = text;
  at("about").classList.toggle("trouble", trouble);
}

themes();
makeLegend();
fill();
at("q").addEventListener("input", () => choose({ q: at("q").value }));
for (const field of FILTERS) at(field).addEventListener("change", () => choose({ [field]: at(field).value }));
at("clear").addEventListener("click", () => choose({ q: "", model: "", namespace: "", queue: "", state: "" }));
at("whatif").addEventListener("click", () => whatIf());
at("detail-close").addEventListener("click", shut);
addEventListener("hashchange", () => { view = views.read(); offer(); draw(true); if (view.pod) showPod(view.pod, askFrom); else close(); });
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("detail").hidden) shut();
  if (event.key === "/" && !/INPUT|SELECT/.test(event.target.tagName)) { event.preventDefault(); at("q").focus(); }
});
follow({
  start(snapshot) {
    store.start(snapshot);
    about = () => `${snapshot.context}, ${count(store.nodes.length, "node")}, version ${snapshot.version}`;
    status(about());
    soon();
  },
  change(delta) { store.change(delta); status(about()); soon(); },
  trouble(sentence) { status(sentence, true); },
});
if (view.pod) showPod(view.pod, askFrom);
setInterval(() => draw(true), CLOCK_MS);
