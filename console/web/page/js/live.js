// The stream of /api/events: agents, edges and new lines.

export const live = {
  connected: null, // null before the first answer
  agents: null,
  message: "", // why agents are not found anew
  edges: new Map(),
  version: 0, // of edges
  at: null,
  left: 0, // lines that are in no edge
};

const listeners = new Set();

// onLines calls f with each event of new lines, until the returned function is called.
export function onLines(f) {
  listeners.add(f);
  return () => listeners.delete(f);
}

// connect opens the stream, which the browser opens again when it breaks. changed is called after
// each event.
export function connect(changed) {
  const source = new EventSource("api/events");
  const on = (name, f) => source.addEventListener(name, (e) => { f(JSON.parse(e.data)); changed(); });
  source.onopen = () => { live.connected = true; changed(); };
  source.onerror = () => {
    live.connected = false;
    changed();
    // A server that answers with an error ends the stream for good.
    if (source.readyState === EventSource.CLOSED) setTimeout(() => connect(changed), 3000);
  };
  on("agents", (data) => {
    live.agents = data.agents ?? [];
    live.message = data.message ?? "";
  });
  on("traffic", (data) => {
    if (data.full) live.edges.clear();
    for (const edge of data.edges ?? []) live.edges.set(edge.id, edge);
    for (const id of data.gone ?? []) live.edges.delete(id);
    live.at = data.at;
    live.left = data.left ?? 0;
    live.version++;
  });
  on("lines", (data) => { for (const f of listeners) f(data.lines ?? [], data.left ?? 0); });
}
