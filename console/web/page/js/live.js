// The stream of /api/events: agents, edges and new lines.

import { follow } from "./server.js";

export const live = {
  failure: "", // why the stream is broken
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

// Browsers limit the connections to one server, usually to six for all tabs. A tab in the background
// gives its connection back.
let connection = new AbortController();
document.addEventListener("visibilitychange", () => { if (document.hidden) connection.abort(); });

// connect follows the stream for good. changed is called after each event.
export async function connect(changed) {
  for (;;) {
    while (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    const { signal } = (connection = new AbortController());
    let first = true;
    await follow("events", signal, ({ event, data }) => {
      live.failure = "";
      if (first) on.lines({ left: 1 }); // those between two connections are not sent
      first = false;
      on[event]?.(data);
      changed();
    }).catch((e) => { if (!signal.aborted) live.failure = e.message; });
    changed();
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

const on = {
  agents(data) {
    live.agents = data.agents ?? [];
    live.message = data.message ?? "";
  },
  traffic(data) {
    if (data.full) live.edges.clear();
    for (const edge of data.edges ?? []) live.edges.set(edge.id, edge);
    for (const id of data.gone ?? []) live.edges.delete(id);
    live.at = data.at;
    live.left = data.left ?? 0;
    live.version++;
  },
  lines(data) { for (const f of listeners) f(data.lines ?? [], data.left ?? 0); },
};
