// The map: each node with its GPUs, each GPU by what sits on it.
import { make, memory } from "./dom.js";
import { gpuFits } from "./view.js";

/** The states of a GPU, as the legend names them. */
export const STATES = ["free", "part", "whole", "mig", "kept", "cordoned", "sick"];

/** The GPUs of a node: an instance `3:1` belongs to GPU 3. */
export function boards(node) {
  const found = new Map();
  for (const gpu of node.gpus) {
    const id = gpu.id.split(":", 1)[0];
    found.set(id, [...(found.get(id) || []), gpu]);
  }
  return [...found].map(([id, parts]) => ({ id, parts }));
}

/** A GPU or instance in one sentence. */
export function sentence(gpu) {
  const pods = gpu.holders.length + gpu.others;
  return [
    `GPU ${gpu.id} ${gpu.state}`, gpu.model, gpu.profile, `${memory(gpu.used)} of ${memory(gpu.memory)}`,
    gpu.slices && `${gpu.slicesUsed} of ${gpu.slices} slices`, pods && `${pods === 1 ? "1 pod" : `${pods} pods`}`, gpu.why,
  ].filter(Boolean).join(", ");
}

const share = (gpu, holder) =>
  holder.whole ? 1 : Math.max(gpu.memory ? holder.memory / gpu.memory : 0, gpu.slices ? holder.slices / gpu.slices : 0);

function part(gpu) {
  const made = make("span", `gpu ${gpu.state}`), used = gpu.memory ? gpu.used / gpu.memory : 0;
  let filled = 0;
  for (const holder of gpu.holders) {
    const amount = Math.min(share(gpu, holder), 1 - filled);
    if (amount <= 0) continue;
    filled += amount;
    made.append(fill(amount, holder.kept || holder.reserved ? "held" : ""));
  }
  const rest = Math.max(used, gpu.slices ? gpu.slicesUsed / gpu.slices : 0) - filled;
  if (rest > 0.001) made.append(fill(Math.min(rest, 1 - filled), "unnamed"));
  return made;
}

function fill(amount, name) {
  const made = make("i", name);
  made.style.height = `${Math.max(6, amount * 100)}%`;
  return made;
}

/** A card of a node; GPUs that the choice does not name are faint. */
export function card(node, view, queues) {
  const cells = boards(node).map(({ id, parts }) => {
    const fits = parts.some((gpu) => gpuFits(gpu, view, queues));
    const label = parts.map(sentence).join("; ");
    const tank = make("span", "tank", {}, ...parts.map(part));
    return make("span", `board${parts.length > 1 ? " cut" : ""}${fits ? "" : " faint"}`, { role: "gridcell", "data-cell": "", tabindex: -1, "aria-label": label, title: label }, tank, make("small", "", { "aria-hidden": "true" }, id));
  });
  const state = node.state === "ok" ? null : make("b", `flag ${node.state}`, { title: node.why }, node.state);
  const name = make("div", "name", { role: "rowheader", title: node.name }, make("strong", "", {}, node.name), state, make("span", "model", {}, node.model));
  if (!cells.length) cells.push(make("span", "board none", { role: "gridcell", "data-cell": "", tabindex: -1 }, node.why || "no GPUs"));
  return make("div", "node", { role: "row" }, make("div", "box", {}, name, make("div", "boards", {}, ...cells)));
}
