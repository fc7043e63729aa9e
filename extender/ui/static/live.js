// Reads the snapshot, and then what changes.
import { ask } from "./ask.js";

const AGAIN_MS = 2000, FAILED_MS = 5000;

/** Calls `start(snapshot)`, `change(delta)` and `trouble(sentence)` until the page is closed. */
export async function follow(on) {
  try {
    const found = await ask("snapshot");
    on.start(found);
    listen(found.cursor, on);
  } catch (error) {
    on.trouble(error.message);
    setTimeout(() => follow(on), FAILED_MS);
  }
}

function listen(cursor, on) {
  const stream = new EventSource(`api/stream?cursor=${encodeURIComponent(cursor)}`);
  const again = () => { stream.close(); setTimeout(() => follow(on), AGAIN_MS); };
  stream.addEventListener("delta", (event) => on.change(JSON.parse(event.data)));
  stream.addEventListener("trouble", (event) => on.trouble(JSON.parse(event.data).error));
  stream.addEventListener("gap", again);
  stream.addEventListener("error", again);
}
