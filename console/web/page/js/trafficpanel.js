import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { matcher } from "./fold.js";
import { badge, icon } from "./icons.js";
import { live } from "./live.js";
import { open, openLine, redraw } from "./panel.js";
import { href, route } from "./route.js";
import { get } from "./server.js";
import { ago, number, plural, rate, worstFirst } from "./words.js";

// The panel of a workload or of a name: its edges, each with a way to its last line and so to why.

const most = 100;

let problem = "";

export function openRow(r) {
  problem = "";
  const workload = r.kind === "workload";
  open({
    key: r.id,
    title: workload ? (r.namespace ? `${r.label} in ${r.namespace}` : r.label) : r.label,
    body: () => body(r, workload),
    suggest: workload ? { namespace: r.namespace, workload: r.label } : undefined,
  });
}

function body(r, workload) {
  const { filters } = route(), passes = matcher(filters), mine = [];
  for (const e of live.edges.values()) {
    if ((workload ? e.workload === r.label && e.namespace === r.namespace : e.name === r.label) && passes(e)) mine.push(e);
  }
  mine.sort((a, b) => worstFirst(a.verdict, b.verdict) || b.count - a.count || (a.id < b.id ? -1 : 1));
  const narrowed = workload ? { ...filters, namespace: r.namespace, workload: r.label } : { ...filters, name: r.label };
  return html`
    <p class="hint">${plural(mine.length, workload ? "name" : "workload")} by verdict, last hour. <a href=${href("log", narrowed)}>Show the lines in the log</a></p>
    ${problem ? html`<p class="error" role="alert">${problem}</p>` : nothing}
    <ul class="edges">${mine.slice(0, most).map((e) => edge(e, workload))}</ul>
    ${mine.length > most ? html`<p class="hint">… and ${number(mine.length - most)} more: filter to see them.</p>` : nothing}`;
}

function edge(e, workload) {
  const label = workload ? e.name : e.namespace ? `${e.namespace} ${e.workload}` : e.workload;
  return html`<li><button type="button" class="edge" @click=${() => last(e)} title="Why: open the last line">
    ${badge(e.verdict)}<span class="label">${label}</span><span class="number">${rate(e.perSecond) ? html`<span class="rate">${rate(e.perSecond)}</span>` : nothing}${number(e.count)}</span>
    <span class="dim more">${[e.policies?.length > 0 && `by ${e.policies.join(", ")}`, e.reason && `reason ${e.reason}`, `last ${ago(e.last)}`].filter(Boolean).join(" · ")}</span>
    ${icon("open")}</button></li>`;
}

// last opens the last line of an edge.
async function last({ namespace, workload, name, verdict }) {
  try {
    const { lines } = await get("lines", { namespace, workload, name, verdict, limit: 1 });
    if (lines?.length > 0) return openLine(lines[0].id, lines[0].line, lines[0].text);
    problem = "The line is older than the last 10,000, which this page keeps. namegate audit has no older ones either; a log collector may.";
  } catch (e) {
    problem = e.message;
  }
  redraw();
}
