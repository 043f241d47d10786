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

// connect follows the stream for good. changed is called after each event.
export async function connect(changed) {
  for (;;) {
    await follow("events", ({ event, data }) => {
      live.failure = "";
      on[event]?.(data);
      changed();
    }).catch((e) => { live.failure = e.message; });
    changed();
    await new Promise((resolve) => setTimeout(resolve, 3000));
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
