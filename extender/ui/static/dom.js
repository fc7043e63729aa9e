// Elements and words. Names come from tenants: they are set as text, never as HTML.
export const at = (id) => document.getElementById(id);

/** An element with its class, attributes and children. Strings become text. */
export function make(tag, name, attributes = {}, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  for (const [key, value] of Object.entries(attributes)) if (value != null) made.setAttribute(key, value);
  made.append(...children.filter((child) => child != null));
  return made;
}

export const button = (text, act, name = "link") => {
  const made = make("button", name, { type: "button" }, text);
  made.addEventListener("click", act);
  return made;
};

const plain = (number) => String(Math.round(number * 10) / 10);

/** MiB in words. */
export const memory = (mib) => (mib >= 1024 ? `${plain(mib / 1024)} GiB` : `${mib} MiB`);

/** GPUs in words; nothing if the amount is not set. */
export const gpus = (amount) => (amount == null ? "" : String(Math.round(amount * 100) / 100));

/** Seconds in words. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** This moment, in seconds of Unix time. */
export const now = () => Date.now() / 1000;

/** How long ago a moment was. */
export const ago = (moment) => duration(now() - moment);

/** `1 node`, `2 nodes`. */
export const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** NAMESPACE/NAME of a workload. */
export const keyOf = (one) => `${one.namespace}/${one.name}`;
