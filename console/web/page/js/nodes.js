import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { badge, icon } from "./icons.js";
import { live } from "./live.js";
import { get, poll } from "./server.js";
import { inOrder, remember, rowKeys } from "./table.js";
import { number, plural } from "./words.js";

// The agents, those with something wrong first.

const seconds = 10, most = 300, mostAddresses = 8;
const states = ["unreachable", "refused", "slow", "connecting", "well"];

let statuses = new Map();

export function start(changed) {
  return poll(seconds, async () => {
    try {
      statuses = new Map(((await get("status")).nodes ?? []).map((s) => [s.node ?? "", s]));
    } catch {
      statuses = new Map(); // the agents' states below say why
    }
    changed();
  });
}

// troubled is how many agents have something wrong.
export const troubled = (agents) => (agents ?? []).filter((a) => isWrong(a)).length;

const isWrong = (a) => !["well", "connecting"].includes(a.state) || (a.problems ?? []).length > 0;

export function view() {
  const agents = [...(live.agents ?? [])].sort((a, b) =>
    isWrong(b) - isWrong(a) || states.indexOf(a.state) - states.indexOf(b.state) || (a.node < b.node ? -1 : 1));
  const shown = agents.slice(0, most), wrong = troubled(agents);
  const order = inOrder("nodes", shown.map((a) => a.node));
  return html`
    <div class="actions"><span role="status" id="count">${live.agents ? `${plural(agents.length, "agent")}, ${wrong === 0 ? "nothing wrong" : `${number(wrong)} with something wrong`}` : ""}</span></div>
    ${live.message ? html`<p class="error" role="alert">${live.message}</p>` : nothing}
    <div class="cards" @keydown=${rowKeys} @focusin=${remember("nodes")}>${repeat(shown, (a) => a.node, (a) => card(a, order))}</div>
    ${live.agents && agents.length === 0 ? html`<p class="empty">No agent is found. Is Namegate installed, and may you list its pods?</p>` : nothing}
    ${agents.length > shown.length ? html`<p class="more">… and ${plural(agents.length - shown.length, "agent")} more with nothing wrong.</p>` : nothing}`;
}

function card(a, order) {
  const problems = a.problems ?? [], status = statuses.get(a.node);
  return html`<article class="card node ${isWrong(a) ? "wrong" : ""}" data-row=${a.node} tabindex=${order(a.node)} aria-label="Node ${a.node}">
    <header><h2>${a.node || "this node"}</h2>${badge(a.state)}
      <span class="dim">${a.version ?? ""}</span></header>
    ${a.message ? html`<p class="message">${a.message}</p>` : nothing}
    ${a.lost ? html`<p class="warn">${icon("problem")}${plural(a.lost, "line")} lost: the agent writes faster than this page reads. Narrow the namespace.</p>` : nothing}
    ${problems.length > 0
      ? html`<table class="problems"><caption class="unseen">Problems of ${a.node}</caption><tbody>${problems.map((p) => html`<tr><th scope="row">${icon("problem")}${p.what ?? ""}</th><td>${p.message ?? ""}</td></tr>`)}</tbody></table>`
      : nothing}
    ${a.noProblems ? html`<p class="hint">${a.noProblems}</p>` : nothing}
    ${status ? facts(status) : nothing}
  </article>`;
}

function facts(s) {
  const rows = [
    ["in sync", s.inSync ? `yes (snapshot ${s.snapshot})` : `no (snapshot ${s.snapshot})`],
    ["dataplane", s.dataplane?.name && s.dataplane.name + (s.dataplane.variant ? ` (${s.dataplane.variant})` : "")],
    ["NetworkPolicies", s.enforce && `enforce ${s.enforce}`],
    ["selected pods", s.enforcer?.selected !== undefined && number(s.enforcer.selected)],
    ["granted addresses", s.enforcer?.grants !== undefined && number(s.enforcer.grants)],
    ["answers", s.proxy?.cacheHits !== undefined && `${number(s.proxy.cacheHits)} from cache, ${number(s.proxy.cacheMisses)} forwarded, ${number(s.proxy.cacheStale)} stale`],
    ...(s.failsafes?.rows ?? []).map((f) => ["failsafe", `${f.row}: ${f.ports} ${f.direction} ${f.addresses.slice(0, mostAddresses).join(", ")}${f.addresses.length > mostAddresses ? " …" : ""}`]),
    ["audit lines", s.audit && `${number(s.audit.written)} written, ${number(s.audit.dropped)} dropped`],
  ];
  return html`<dl class="facts inline">${rows.map(([name, value]) => (value ? html`<div><dt>${name}</dt><dd>${value}</dd></div>` : nothing))}</dl>`;
}
