// What the viewer has chosen. It is kept in the hash of the URL, so that a link shows the same.
const FIELDS = ["q", "model", "namespace", "queue", "state", "pod"];

/** The choice that the URL names. */
export function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(FIELDS.map((field) => [field, (given.get(field) || "").slice(0, 300)]));
}

/** Puts a choice into the URL. */
export function write(view) {
  const chosen = new URLSearchParams(FIELDS.filter((field) => view[field]).map((field) => [field, view[field]]));
  history.replaceState(null, "", `#${chosen}`);
}

const haystacks = new WeakMap();

function haystack(object, words) {
  if (!haystacks.has(object)) haystacks.set(object, words(object).join("\n").toLowerCase());
  return haystacks.get(object);
}

const wordsOfNode = (node) => [node.name, ...node.gpus.flatMap((gpu) => gpu.holders.map((holder) => holder.pod || ""))];
const wordsOfWorkload = (one) => [`${one.namespace}/${one.name}`, one.queue, one.gang];

/** The names of the queues below the one that is chosen, and its own; none if none is chosen. */
export function below(queues, chosen) {
  const found = new Set(chosen ? [chosen] : []);
  for (const queue of queues) if (found.has(queue.parent)) found.add(queue.name);
  return found;
}

/** Whether a GPU is among those that the choice names. `queues`: those that `below` names. */
export const gpuFits = (gpu, view, queues) =>
  (!view.model || gpu.model === view.model) &&
  (!view.state || gpu.state === view.state) &&
  (!(view.namespace || queues.size) || gpu.holders.some((holder) =>
    (!view.namespace || holder.pod?.startsWith(`${view.namespace}/`)) && (!queues.size || queues.has(holder.queue))));

/** Whether the map shows a node. */
export function nodeFits(node, view, queues) {
  if (view.q && !haystack(node, wordsOfNode).includes(view.q.toLowerCase())) return false;
  return !(view.model || view.state || view.namespace || queues.size) || node.gpus.some((gpu) => gpuFits(gpu, view, queues));
}

/** Whether the lists show a gang or pending pod. */
export const workloadFits = (one, view, queues) =>
  (!view.q || haystack(one, wordsOfWorkload).includes(view.q.toLowerCase())) &&
  (!view.namespace || one.namespace === view.namespace) &&
  (!queues.size || queues.has(one.queue));

/** The values that the filters offer. */
export function offers(store) {
  const [models, namespaces] = [new Set(), new Set()];
  for (const node of store.nodes) {
    for (const gpu of node.gpus) {
      if (gpu.model) models.add(gpu.model);
      for (const holder of gpu.holders) if (holder.pod) namespaces.add(holder.pod.split("/", 1)[0]);
    }
  }
  for (const one of store.workloads) namespaces.add(one.namespace);
  const queues = store.queues.map((queue) => queue.name);
  return { model: [...models].sort(), namespace: [...namespaces].sort(), queue: queues };
}
