// The page. Names come from tenants: they are set as text, never as HTML.
const seen = { nodes: new Map(), queues: [], workloads: [], limits: [] };
const drawn = new Map();
const at = (id) => document.getElementById(id);

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function podButton(key) {
  const button = element("button", key);
  button.type = "button";
  button.addEventListener("click", () => explain(key));
  return button;
}

async function explain(key) {
  const [namespace, name] = key.split("/");
  at("pod").textContent = `${key}: asking`;
  try {
    const answer = await fetch(`api/explain/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
    const found = await answer.json();
    at("pod").textContent = answer.ok
      ? `${key} ${found.verdict.headline} What to do: ${found.verdict.advice}`
      : found.error;
  } catch (error) {
    at("pod").textContent = `${key}: the server of the page does not answer`;
  }
}

function card(node) {
  const made = element("article", undefined, "node");
  made.append(element("h3", node.name), element("div", [node.state, node.model, node.why].filter(Boolean).join(" · ")));
  const gpus = element("ul", undefined, "gpus"), pods = new Set();
  for (const gpu of node.gpus) {
    const amount = `${gpu.id}: ${gpu.state}${gpu.profile ? ` ${gpu.profile}` : ""}, ${gpu.used}/${gpu.memory} MiB`;
    const item = element("li", gpu.others ? `${amount}, ${gpu.others} not shown` : amount, gpu.state);
    item.title = gpu.why || "";
    gpus.append(item);
    for (const holder of gpu.holders) if (holder.pod) pods.add(holder.pod);
  }
  made.append(gpus, ...[...pods].map(podButton));
  return made;
}

function drawNode(name, node) {
  drawn.get(name)?.remove();
  drawn.delete(name);
  if (!node) return;
  const made = card(node);
  made.hidden = !fits(name);
  drawn.set(name, made);
  at("nodes").append(made);
}

const fits = (name) => name.toLowerCase().includes(at("search").value.toLowerCase());

function rows(id, cells) {
  at(id).replaceChildren(...cells.map((row) => {
    const made = element("tr");
    for (const cell of row) {
      const data = element("td");
      data.append(cell ?? "");
      made.append(data);
    }
    return made;
  }));
}

function drawRest() {
  rows("queues", seen.queues.map((queue) => [
    "\u2003".repeat(queue.depth) + queue.name, queue.used, queue.demand, queue.share, queue.gpus, queue.pending,
  ].map((cell) => cell == null ? "" : String(cell))));
  rows("workloads", seen.workloads.map((one) => {
    const key = `${one.namespace}/${one.name}`;
    return [one.kind === "pod" ? podButton(key) : `gang ${key}`, one.phase, one.queue, one.message];
  }));
  at("limits").textContent = seen.limits.join(" · ");
}

function changed(change) {
  for (const [name, node] of Object.entries(change.nodes || {})) drawNode(name, node);
  for (const part of ["queues", "workloads", "limits"]) if (change[part]) seen[part] = change[part];
  drawRest();
}

let about = "";

async function start() {
  try {
    const answer = await fetch("api/snapshot");
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    about = `${found.context}, ${found.nodes.length} nodes, version ${found.version}`;
    at("about").textContent = about;
    at("nodes").replaceChildren();
    drawn.clear();
    changed({ ...found, nodes: Object.fromEntries(found.nodes.map((node) => [node.name, node])) });
    listen(found.cursor);
  } catch (error) {
    at("about").textContent = String(error.message || error);
    setTimeout(start, 5000);
  }
}

function listen(cursor) {
  const stream = new EventSource(`api/stream?cursor=${encodeURIComponent(cursor)}`);
  const again = () => { stream.close(); setTimeout(start, 2000); };
  stream.addEventListener("delta", (event) => { at("about").textContent = about; changed(JSON.parse(event.data)); });
  stream.addEventListener("trouble", (event) => { at("about").textContent = JSON.parse(event.data).error; });
  stream.addEventListener("gap", again);
  stream.addEventListener("error", again);
}

at("search").addEventListener("input", () => { for (const [name, made] of drawn) made.hidden = !fits(name); });
start();
