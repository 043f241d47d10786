import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { open } from "./panel.js";
import { get, poll } from "./server.js";
import { inOrder, remember, rowKeys } from "./table.js";
import { ago, plural, span, until } from "./words.js";

// The open grants, with the time that is left. They are asked for again every few seconds; between
// the answers, the time counts down.

const seconds = 5, most = 500, soon = 15;

let grants = null, left = 0, failed = [], error = "";
let ofNode = "", ask = () => {};

// nodeOf is the node of the filter node/NAME: grants of nodes are asked for one by one.
const nodeOf = ({ pod }) => (pod.startsWith("node/") ? pod.slice("node/".length) : "");

export function start(changed) {
  ask = async () => {
    const node = ofNode;
    try {
      const answer = await get("grants", { node });
      if (node !== ofNode) return;
      grants = (answer.grants ?? []).map((g) => ({ ...g, key: `${g.node} ${g.namespace}/${g.pod} ${g.name} ${g.address} ${g.ports}` }));
      left = answer.left ?? 0;
      failed = answer.failed ?? [];
      error = "";
    } catch (e) {
      error = e.message;
      if (node) grants = [];
    }
    changed();
  };
  const stop = poll(seconds, () => ask());
  const tick = setInterval(changed, 1000);
  return () => { stop(); clearInterval(tick); };
}

function chosen({ namespace, pod, name }) {
  const has = (text, part) => !part || (text ?? "").toLowerCase().includes(part.toLowerCase());
  return (grants ?? []).filter((g) => until(g.until) > 0 && (!namespace || g.namespace === namespace) && (nodeOf({ pod }) ? g.node === nodeOf({ pod }) && !g.pod : has(g.pod, pod)) && (has(g.name, name) || has(g.address, name)));
}

export function view(filters) {
  if (nodeOf(filters) !== ofNode) {
    ofNode = nodeOf(filters);
    setTimeout(ask, 150);
  }
  const all = chosen(filters);
  all.sort((a, b) => cmp(a.namespace, b.namespace) || cmp(a.pod, b.pod) || cmp(a.name, b.name) || cmp(a.address, b.address) || cmp(a.ports, b.ports));
  const rows = all.slice(0, most);
  const order = inOrder("grants", rows.map((g) => g.key));
  return html`
    <div class="actions"><span role="status" id="count">${grants ? `${plural(all.length, "open grant")}` : ""}</span>
      <span class="hint">A grant lets one pod reach one address that an answer had, until its time ends.</span></div>
    ${error ? html`<p class="error" role="alert">${error}</p>` : nothing}
    ${failed.map((f) => html`<p class="warn">${f.node}: ${f.message}</p>`)}
    <div class="scroll" tabindex="-1"><table class="rows grants">
      <caption class="unseen">Open grants by pod. Enter explains one.</caption>
      <thead><tr><th scope="col">Pod</th><th scope="col">Name</th><th scope="col">Address</th><th scope="col">Ports</th><th scope="col">For</th><th scope="col" class="wide">By</th><th scope="col" class="wide">Node</th></tr></thead>
      <tbody @keydown=${rowKeys} @focusin=${remember("grants")}>${repeat(rows, (g) => g.key, (g) => row(g, order))}</tbody>
    </table></div>
    ${grants && all.length === 0 && !error ? html`<p class="empty">Nothing is open.</p>` : nothing}
    ${all.length + left > rows.length ? html`<p class="more">… and ${plural(all.length - rows.length + left, "grant")} more: filter to see them.</p>` : nothing}`;
}

const cmp = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

function row(g, order) {
  const seconds = until(g.until);
  return html`<tr data-row=${g.key} tabindex=${order(g.key)} @click=${() => explain(g)}>
    <td class="clip pod" title=${g.pod ? `${g.namespace}/${g.pod}` : g.node}>${g.pod ? html`<span class="dim">${g.namespace}/</span>${g.pod}` : `node ${g.node}`}</td>
    <td class="clip name" title=${g.name}>${g.name}</td>
    <td class="address">${g.address}</td>
    <td>${g.ports}${g.serverName ? html` <span class="tag" title="the connection must begin with a granted TLS server name">serverName: ${g.serverName}</span>` : nothing}</td>
    <td class="time-left ${seconds < soon ? "soon" : ""}">${span(seconds)}${seconds < soon ? html` <span class="dim">ends soon</span>` : nothing}${g.held ? html` <span class="dim">by use for ${span(-until(g.held))}</span>` : nothing}</td>
    <td class="clip wide" title=${g.by || ""}>${g.by || "-"}</td>
    <td class="wide dim">${g.node}</td>
  </tr>`;
}

function explain(g) {
  const to = g.name || g.address;
  open({
    key: `grant:${g.key}`,
    title: `${g.pod ? `${g.namespace}/${g.pod}` : `node ${g.node}`} to ${to}`,
    body: () => html`<dl class="facts"><dt>Address</dt><dd>${g.address}, ${g.ports}</dd><dt>Until</dt><dd>${g.until}</dd><dt>By</dt><dd>${g.by || "-"}</dd>
      ${g.held ? html`<dt>By use</dt><dd>The last answer had the address ${ago(g.held)}; connections keep it open.</dd>` : nothing}</dl>`,
    explain: { ...(g.pod ? { pod: `${g.namespace}/${g.pod}` } : { node: g.node }), target: to },
  });
}
