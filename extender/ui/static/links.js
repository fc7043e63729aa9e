// The links between the GPUs of a node, when the viewer asks for them.
import { ask } from "./ask.js";
import { button, make } from "./dom.js";

const MEANING = "NV4 is 4 NVLinks. PIX, PXB, PHB, NODE and SYS are ways over PCIe, from near to far.";

/** A button that the table replaces. */
export function linksOf(node) {
  const box = make("div", "links", { "aria-live": "polite" });
  box.append(button("Links between its GPUs", () => show(node, box), "plain"));
  return box;
}

async function show(node, box) {
  box.replaceChildren("The cluster is asked.");
  try {
    box.replaceChildren(...table(node, await ask(`links/${encodeURIComponent(node)}`)));
  } catch (error) {
    box.replaceChildren(error.message);
  }
}

function table(node, { gpus, rows }) {
  if (!gpus.length) return [`Node ${node} tells no links.`];
  const head = (id, scope) => make("th", "", { scope }, id);
  const lines = rows.map((kinds, row) =>
    make("tr", "", {}, head(gpus[row], "row"), ...kinds.map((kind, column) => make("td", kind.startsWith("NV") ? "nvlink" : "", {}, row === column ? "–" : kind || "?"))));
  const heads = make("tr", "", {}, head("GPU", "col"), ...gpus.map((id) => head(id, "col")));
  const drawn = make("table", "", {}, make("thead", "", {}, heads), make("tbody", "", {}, ...lines));
  return [make("p", "", {}, MEANING), make("div", "wide-table", { tabindex: 0, role: "region", "aria-label": `Links of ${node}` }, drawn)];
}
