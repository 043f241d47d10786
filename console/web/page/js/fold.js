// The picture of the traffic, computed: rows of two columns and the lines between them. It is pure
// and bounded: its size depends on the bounds below, not on the size of the cluster.

export const bounds = {
  unfolded: 24, // workloads up to which all namespaces are unfolded
  namespaces: 40,
  workloads: 12, // of a namespace
  names: 36,
  lines: 500,
  step: 25, // that "… and M more" adds
  most: 150, // rows of a group, however often more is asked for
};

// fold makes the picture of edges. view has the namespaces that the reader folded or unfolded
// (Map of namespace to true for unfolded) and how much more the reader asked for (Map of group to
// number).
export function fold(edges, view = {}) {
  const toggled = view.toggled ?? new Map();
  const more = view.more ?? new Map();
  const { namespaces, names } = sums(edges);
  const left = [], places = new Map();
  const workloads = [...namespaces.values()].reduce((n, ns) => n + ns.workloads.size, 0);
  const unfoldAll = workloads <= bounds.unfolded || namespaces.size === 1;

  const shown = busiest(namespaces, bounds.namespaces, more.get("namespaces"));
  for (const ns of shown.rows) {
    const unfolded = toggled.get(ns.label) ?? unfoldAll;
    left.push(row("namespace", `ns:${ns.label}`, ns.label, ns, { namespace: ns.label, unfolded, workloads: ns.workloads.size }));
    if (!unfolded) {
      for (const w of ns.workloads.values()) places.set(w, left.length - 1);
      continue;
    }
    const inside = busiest(ns.workloads, bounds.workloads, more.get(`ns:${ns.label}`));
    for (const w of inside.rows) {
      places.set(w, left.length);
      left.push(row("workload", `w:${ns.label}/${w.label}`, w.label, w, { namespace: ns.label }));
    }
    rest(left, places, inside, `ns:${ns.label}`, ns.label);
  }
  for (const ns of shown.hidden) for (const w of ns.workloads.values()) places.set(w, left.length);
  rest(left, new Map(), shown, "namespaces", "");

  const right = rightColumn(names, places, more);
  return { left, right: right.rows, ...linesOf(edges, namespaces, names, { from: places, to: right.places, left, right: right.rows }), workloads, names: names.size };
}

// sums adds edges up by namespace, workload and name.
function sums(edges) {
  const namespaces = new Map(), names = new Map();
  for (const e of edges) {
    const ns = entry(namespaces, e.namespace, () => ({ workloads: new Map() }));
    const w = entry(ns.workloads, e.workload, () => ({}));
    const n = entry(names, e.name, () => ({ workloads: new Set() }));
    n.workloads.add(w);
    for (const sum of [ns, w, n]) add(sum, e);
  }
  return { namespaces, names };
}

function entry(map, label, make) {
  let found = map.get(label);
  if (!found) map.set(label, (found = { label, count: 0, perSecond: 0, verdicts: new Map(), ...make() }));
  return found;
}

function add(sum, e) {
  sum.count += e.count;
  sum.perSecond += e.perSecond;
  sum.verdicts.set(e.verdict, (sum.verdicts.get(e.verdict) ?? 0) + e.count);
}

// busiest are the rows to show and the others. Counts are compared by their magnitude, so that the
// order is steady while numbers grow.
function busiest(map, bound, extra = 0) {
  const sorted = [...map.values()].sort((a, b) => magnitude(b) - magnitude(a) || (a.label < b.label ? -1 : 1));
  // A row that says that one is hidden takes the place of that one.
  const n = Math.min(bound + extra, bounds.most);
  const cut = sorted.length <= n + 1 ? sorted.length : n;
  return { rows: sorted.slice(0, cut), hidden: sorted.slice(cut) };
}

const magnitude = (sum) => Math.floor(Math.log2(sum.count || 1));

const row = (kind, id, label, sum, more) =>
  ({ kind, id, label, count: sum.count, perSecond: sum.perSecond, verdicts: sum.verdicts, ...more });

// rest adds the row that stands for what is hidden.
function rest(rows, places, { rows: shown, hidden }, group, namespace) {
  if (hidden.length === 0) return;
  const sum = { count: 0, perSecond: 0, verdicts: new Map() };
  for (const h of hidden) {
    places.set(h, rows.length);
    sum.count += h.count;
    sum.perSecond += h.perSecond;
    for (const [verdict, count] of h.verdicts) sum.verdicts.set(verdict, (sum.verdicts.get(verdict) ?? 0) + count);
  }
  rows.push(row("more", `more:${group}`, "", sum, { group, namespace, hidden: hidden.length, full: shown.length >= bounds.most }));
}

// rightColumn orders the busiest names by the places of their workloads, which keeps lines short.
function rightColumn(names, places, more) {
  const shown = busiest(names, bounds.names, more.get("names"));
  for (const n of shown.rows) {
    let sum = 0;
    for (const w of n.workloads) sum += places.get(w);
    n.mean = sum / n.workloads.size;
  }
  shown.rows.sort((a, b) => a.mean - b.mean || (a.label < b.label ? -1 : 1));
  const rows = shown.rows.map((n) => row("name", `n:${n.label}`, n.label, n, { workloads: n.workloads.size }));
  const at = new Map(shown.rows.map((n, i) => [n, i]));
  rest(rows, at, shown, "names", "");
  return { rows, places: at };
}

// linesOf joins edges between the same two rows with the same verdict. The busiest are drawn; those from or to a row that stands for hidden ones come last.
function linesOf(edges, namespaces, names, { from, to, left, right }) {
  const joined = new Map();
  for (const e of edges) {
    const a = from.get(namespaces.get(e.namespace).workloads.get(e.workload));
    const b = to.get(names.get(e.name));
    const key = `${a}-${b}-${e.verdict}`;
    const line = joined.get(key);
    if (line) {
      line.count += e.count;
      line.perSecond += e.perSecond;
    } else joined.set(key, { key, from: a, to: b, verdict: e.verdict, count: e.count, perSecond: e.perSecond, rest: left[a].kind === "more" || right[b].kind === "more" });
  }
  // Lines between the same two rows are beside each other.
  const pairs = new Map();
  for (const line of joined.values()) {
    const pair = `${line.from}-${line.to}`;
    line.beside = pairs.get(pair) ?? 0;
    pairs.set(pair, line.beside + 1);
  }
  const sorted = [...joined.values()].sort((a, b) => a.rest - b.rest || b.count - a.count || (a.key < b.key ? -1 : 1));
  return { lines: sorted.slice(0, bounds.lines), undrawn: Math.max(0, sorted.length - bounds.lines) };
}

// matcher is whether an edge passes the filters, as the server filters lines.
export function matcher({ namespace, workload, name, verdict, policy }) {
  const n = name.toLowerCase();
  return (e) =>
    (!namespace || e.namespace === namespace) && (!verdict || e.verdict === verdict) &&
    e.workload.includes(workload) && e.name.includes(n) &&
    (!policy || (e.policies ?? []).some((p) => p.includes(policy)));
}
