// Words and numbers, as the commands print them.

// The verdicts, worst first. meaning is the text of the legend.
export const verdicts = [
  { word: "denied", meaning: "policies deny the connection or the name" },
  { word: "refused", meaning: "the query is refused: no match, or a limit" },
  { word: "blocked", meaning: "the guard against rebinding removed every address" },
  { word: "failed", meaning: "no trusted answer" },
  { word: "would-deny", meaning: "passes, and Audit policies would deny it" },
  { word: "unmatched", meaning: "answered, and nothing was opened" },
  { word: "would-allow", meaning: "denied, and Audit policies would allow it" },
  { word: "allowed", meaning: "a match covers the name" },
  { word: "renewed", meaning: "kept open by its use" },
];

const rank = new Map(verdicts.map((v, i) => [v.word, i]));

// worstFirst compares verdicts.
export const worstFirst = (a, b) => (rank.get(a) ?? 99) - (rank.get(b) ?? 99) || (a < b ? -1 : a > b ? 1 : 0);

// wrong are the verdicts of which a reader has to do something.
export const wrong = new Set(["denied", "refused", "blocked", "failed", "would-deny"]);

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (n) => whole.format(n ?? 0);
export const compact = (n) => (n < 10000 ? whole.format(n) : short.format(n));

// rate is a number a second, "" for none.
export function rate(perSecond) {
  if (!perSecond) return "";
  return `${perSecond < 10 ? Math.max(perSecond, 0.1).toFixed(1) : compact(Math.round(perSecond))}/s`;
}

// plural writes a number with its noun.
export const plural = (n, one, many = one + "s") => `${number(n)} ${n === 1 ? one : many}`;

// clock is the time of day in UTC.
export const clock = (time, millis = false) => new Date(time).toISOString().slice(11, millis ? 23 : 19);

// span writes seconds as Go does: 1h2m3s.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return `${h ? h + "h" : ""}${h || m ? m + "m" : ""}${s % 60}s`;
}

// until is how many seconds are left.
export const until = (time) => (new Date(time) - Date.now()) / 1000;

// ago says how long ago a time is, "never" for none.
export const ago = (time) => (time ? `${span(-until(time))} ago` : "never");

// naming are the keys of labels whose value names a workload, the first that it has: the recommended
// key of the Kubernetes documentation, and the keys that kubectl create, kubeadm and kubectl run write.
const recommended = "app.kubernetes.io/", naming = [`${recommended}name`, "app", "k8s-app", "run"];

// installed are the keys of labels that tell how a workload was installed.
const installed = new Set([`${recommended}managed-by`, `${recommended}part-of`, "helm.sh/chart", "heritage"]);

// titled divides a workload's labels into its name, and the other labels that tell it from others:
// most charts write seven labels, the first of which are the same for many workloads.
export function titled(workload) {
  const terms = workload.split(",").map((term) => [term.slice(0, term.indexOf("=")), term.slice(term.indexOf("=") + 1)]);
  const found = naming.map((key) => terms.find((t) => t[0] === key)).find(Boolean);
  if (!found) return { name: workload, more: "" };
  const others = terms.filter(([key, value]) => key !== found[0] && !installed.has(key) && value !== found[1]);
  return { name: found[1], more: others.map(([key, value]) => `${key.replace(recommended, "")}=${value}`).join(" ") };
}

// subject is who a line is about: a pod, or the node itself.
export function subject(line) {
  if (line.host || !line.pod) {
    const uid = line.host?.uid;
    return { namespace: "", pod: "", node: line.node, workload: `Node/${line.node}`, text: `node ${line.node}${uid === undefined ? "" : ` (uid ${uid})`}` };
  }
  const { namespace, name, workload } = line.pod;
  return { namespace, pod: name, node: line.node, workload: workload || `Pod/${name}`, text: `${namespace}/${name}` };
}

// target is the name or address that a line leads to, and its port. Of a connection to a pod, name and
// address are those of its source, and the port is the pod's.
export function target(line) {
  if (line.question) return { name: line.question.name, port: 0 };
  const d = line.destination ?? { address: "" }, s = line.source;
  return { name: s ? s.pod ?? s.address : line.names?.[0]?.name ?? d.address, address: (s ?? d).address, port: d.port ?? 0, protocol: line.protocol, ingress: Boolean(s) };
}

// kind is what a line is: the type of a query, or the protocol of a connection.
export const kind = (line) => (line.question ? `DNS ${line.question.type}` : line.protocol);

// policiesOf are the policies that a line names.
export function policiesOf(line) {
  const all = [line.policy, ...(line.matches ?? []).map((m) => m.policy), ...(line.policies ?? [])];
  return [...new Set(all.filter(Boolean))];
}
