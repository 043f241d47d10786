// Requests to the server of `namegate ui`.

import { takeToken } from "./route.js";

const away = "namegate ui does not answer: it has ended or is not reachable. Start it again and open the URL that it prints.";

// The token has the reader's rights. Local storage is separate for each port. Cookies are not: the
// browser would send a cookie to every port of 127.0.0.1.
const key = "namegate-token";
const token = takeToken() || stored();

function stored() {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return ""; // the browser is set to keep nothing
  }
}

// keepToken keeps the token for reloads, bookmarks and other tabs.
export function keepToken() {
  try {
    localStorage.setItem(key, token);
  } catch {
    // The tab has the token until it is loaded again.
  }
}

async function ask(path, params = {}, signal = null) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value) query.set(name, value);
  const response = await fetch(`api/${path}${query.size ? "?" + query : ""}`, { cache: "no-store", headers: { Authorization: `Bearer ${token}` }, signal })
    .catch(() => { throw new Error(away); });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Error(body.error || `namegate ui answered with status ${response.status}.`);
}

// get asks for JSON. The error has the server's words.
export async function get(path, params) {
  const response = await ask(path, params);
  return response.json().catch(() => { throw new Error(away); });
}

// follow calls f with each JSON line of an answer, and throws an error when the answer ends, or is
// ended by the signal.
export async function follow(path, signal, f) {
  const reader = (await ask(path, {}, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let begun = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) throw new Error(away);
    const lines = value.split("\n");
    lines[0] = begun + lines[0];
    begun = lines.pop();
    for (const line of lines) if (line) f(JSON.parse(line));
  }
}

// poll calls ask at once and every so many seconds until the function that it returns is called.
// The next pause begins when ask has ended.
export function poll(seconds, ask) {
  let timer, ended = false;
  const next = async () => {
    await ask();
    if (!ended) timer = setTimeout(next, seconds * 1000);
  };
  next();
  return () => { ended = true; clearTimeout(timer); };
}
