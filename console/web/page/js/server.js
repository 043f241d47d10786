// Questions to the server of `namegate ui`.

// get asks for JSON. The error has the server's words.
export async function get(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value) query.set(name, value);
  let response;
  try {
    response = await fetch(`api/${path}${query.size ? "?" + query : ""}`, { cache: "no-store" });
  } catch {
    throw new Error("namegate ui does not answer: it has ended or is not reachable. Start it again and open the URL that it prints.");
  }
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  throw new Error(body.message || `namegate ui answered with status ${response.status}.`);
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
