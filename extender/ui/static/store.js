// What the server has told so far.
import { happened, known } from "./happenings.js";

const MOST_HAPPENINGS = 500;
const order = new Intl.Collator(undefined, { numeric: true }).compare;

/** Workloads with points in time, which stay true, in place of seconds: of their phase, and of their earliest start. */
const timed = (workloads, at) =>
  workloads.map((one) => ({ ...one, since: at - one.seconds, start: one.earliestStart == null ? null : at + one.earliestStart }));

export class Store {
  nodes = [];
  queues = [];
  workloads = [];
  limits = [];
  happenings = [];
  #byName = new Map();

  /** Takes a snapshot. */
  start(snapshot) {
    this.#byName = new Map(snapshot.nodes.map((node) => [node.name, node]));
    for (const part of ["queues", "limits"]) this[part] = snapshot[part];
    this.workloads = timed(snapshot.workloads, snapshot.at);
    this.#sort();
    if (!this.happenings.length) this.#remember(known(this.workloads));
  }

  /** Takes what has changed. */
  change(delta) {
    const found = [];
    let others = false;
    for (const [name, node] of Object.entries(delta.nodes || {})) {
      const old = this.#byName.get(name);
      found.push(...happened.node(name, old, node));
      others ||= !old || !node;
      if (node) this.#byName.set(name, node);
      else this.#byName.delete(name);
    }
    if (delta.workloads) found.push(...happened.workloads(this.workloads, delta.workloads));
    for (const part of ["queues", "limits"]) if (delta[part]) this[part] = delta[part];
    if (delta.workloads) this.workloads = timed(delta.workloads, delta.at);
    if (delta.nodes) this.#sort(others);
    this.#remember(found.map((one) => ({ ...one, at: delta.at })));
  }

  #sort(others = true) {
    this.nodes = others
      ? [...this.#byName.values()].sort((one, other) => order(one.name, other.name))
      : this.nodes.map((node) => this.#byName.get(node.name));
  }

  #remember(found) {
    const all = [...this.happenings, ...found].sort((one, other) => one.at - other.at);
    this.happenings = all.slice(-MOST_HAPPENINGS);
  }
}
