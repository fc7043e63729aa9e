// Asks the server of the page.

/** The statuses with which a login proxy answers for itself; 0 is a redirection. */
const LOGGED_OUT = [0, 401, 403];
const ANSWER_MS = 90000;

/** The answer; an Error tells the viewer why there is none. */
export async function ask(path) {
  const given = { redirect: "manual", signal: AbortSignal.timeout(ANSWER_MS) };
  const answer = await fetch(`api/${path}`, given).catch(() => { throw new Error("The server of the page does not answer."); });
  const found = await answer.json().catch(() => ({}));
  if (answer.ok) return found;
  throw new Error(found.error || (LOGGED_OUT.includes(answer.status) ? "Your login has ended: reload this page." : `The server of the page failed with status ${answer.status}.`));
}
