// Reads the snapshot, and then what changes.
import { ask } from "./ask.js";

const AGAIN_MS = 2000, FAILED_MS = 5000;

/** Calls `start(snapshot)`, and while the tab is in sight `change(delta)` and `trouble(sentence)`, until it is closed. */
export async function follow(on) {
  try {
    const found = await ask("snapshot");
    on.start(found);
    await seen();
    listen(found.cursor, on);
  } catch (error) {
    on.trouble(error.message);
    setTimeout(() => follow(on), FAILED_MS);
  }
}

function listen(cursor, on) {
  const stream = new EventSource(`api/stream?cursor=${encodeURIComponent(cursor)}`);
  const end = () => { stream.close(); document.removeEventListener("visibilitychange", hide); };
  const again = () => { end(); setTimeout(() => follow(on), AGAIN_MS); };
  const hide = () => { if (document.hidden) { end(); seen().then(() => listen(cursor, on)); } };
  document.addEventListener("visibilitychange", hide);
  stream.addEventListener("delta", (event) => {
    const delta = JSON.parse(event.data);
    cursor = delta.cursor;
    on.change(delta);
  });
  stream.addEventListener("trouble", (event) => on.trouble(JSON.parse(event.data).error));
  stream.addEventListener("gap", again);
  stream.addEventListener("error", again);
}

/** Until the tab is in sight: a browser has six connections to a server for all of its tabs. */
function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(seen()), { once: true }));
}
