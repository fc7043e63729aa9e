// What happened, as the difference of what the server told. Pure.
import { keyOf } from "./dom.js";

const SICK = "trouble";

function pods(node) {
  const found = new Set();
  for (const gpu of node?.gpus || []) for (const holder of gpu.holders) if (holder.pod && !holder.reserved) found.add(holder.pod);
  return found;
}

/** What is known of the past when the page opens: when workloads entered their phase. */
export const known = (workloads) => workloads.map((one) => ({ at: one.since, ...entered(one) }));

const entered = (one) =>
  one.kind === "gang"
    ? { kind: "gang", text: `gang ${keyOf(one)} is ${one.phase}` }
    : { kind: "pending", text: `${keyOf(one)} is pending`, pod: keyOf(one) };

export const happened = {
  node(name, old, node) {
    if (!node) return [{ kind: SICK, text: `node ${name} is gone` }];
    if (!old) return [{ kind: "node", text: `node ${name} is new` }];
    const [before, after] = [pods(old), pods(node)];
    const found = [];
    for (const pod of after) if (!before.has(pod)) found.push({ kind: "start", text: `${pod} has a GPU of ${name}`, pod });
    for (const pod of before) if (!after.has(pod)) found.push({ kind: "end", text: `${pod} has left ${name}`, pod });
    if (old.state !== node.state) found.push({ kind: node.state === "ok" ? "node" : SICK, text: `node ${name} is ${node.state}` });
    const states = new Map(old.gpus.map((gpu) => [gpu.id, gpu.state]));
    for (const gpu of node.gpus) {
      if (gpu.state === "sick" && states.get(gpu.id) !== "sick") found.push({ kind: SICK, text: `GPU ${gpu.id} of ${name} is sick` });
    }
    return found;
  },

  workloads(old, now) {
    const key = (one) => `${one.kind} ${keyOf(one)} ${one.phase}`;
    const before = new Set(old.map(key));
    return now.filter((one) => !before.has(key(one))).map(entered);
  },
};
