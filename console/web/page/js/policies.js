import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { icon } from "./icons.js";
import { href } from "./route.js";
import { get, poll } from "./server.js";
import { inOrder, remember, rowKeys } from "./table.js";
import { ago, number, plural, until } from "./words.js";

// Policies with the lines of the last hour that each match covered.

const seconds = 10, most = 200, mostMatches = 20;

let answer = null, error = "", opened = new Set(), changed = () => {};

export function start(onChange) {
  changed = onChange;
  return poll(seconds, async () => {
    try {
      answer = await get("policies");
      error = "";
    } catch (e) {
      error = e.message;
    }
    changed();
  });
}

const nameOf = (p) => (p.namespace ? `${p.namespace}/${p.name}` : p.name);

export function view({ namespace, policy }) {
  const part = policy.toLowerCase();
  const all = (answer?.policies ?? []).filter((p) => (!namespace || p.namespace === namespace) && nameOf(p).toLowerCase().includes(part));
  const shown = all.slice(0, most);
  const unused = all.reduce((n, p) => n + (p.unused ?? []).length, 0);
  const order = inOrder("policies", shown.map((p) => `${p.kind} ${nameOf(p)}`));
  return html`
    <div class="actions"><span role="status" id="count">${answer ? `${plural(all.length, "policy", "policies")}, ${plural(unused, "unused match", "unused matches")}` : ""}</span>
      ${answer ? html`<span class="hint">Hits are lines of the log since ${ago(answer.since)}.</span>` : nothing}</div>
    ${error ? html`<p class="error" role="alert">${error}</p>` : nothing}
    ${(answer?.failed ?? []).map((f) => html`<p class="warn">${f.node}: ${f.message}</p>`)}
    <div class="cards" @keydown=${rowKeys} @focusin=${remember("policies")}>${repeat(shown, (p) => `${p.kind} ${nameOf(p)}`, (p) => card(p, order))}</div>
    ${answer && all.length === 0 && !error ? html`<p class="empty">No policy of Namegate, or none that passes the filters.</p>` : nothing}
    ${all.length > shown.length ? html`<p class="more">… and ${plural(all.length - shown.length, "policy", "policies")} more: filter to see them.</p>` : nothing}`;
}

function card(p, order) {
  const key = `${p.kind} ${nameOf(p)}`;
  const matches = p.matches ?? [], unused = new Set(p.unused ?? []);
  const top = Math.max(1, ...matches.map((m) => m.hits));
  const shown = opened.has(key) ? matches : matches.slice(0, mostMatches);
  return html`<article class="card" data-row=${key} tabindex=${order(key)} aria-label="${p.kind} ${nameOf(p)}">
    <header><h2>${p.namespace ? html`<span class="dim">${p.namespace}/</span>` : nothing}${p.name}</h2>
      <span class="tag">${p.kind}</span>${p.tier && p.tier !== "Namespace" ? html`<span class="tag">${p.tier}</span>` : nothing}
      ${p.traffic ? html`<span class="tag">${p.traffic}</span>` : nothing}
      ${p.enforcement ? html`<span class="tag mode-${p.enforcement === "Audit" ? "audit" : "enforce"}">${p.enforcement}</span>` : nothing}
      <span class="selected">${p.selected === 0 ? html`${icon("problem")}selects nothing` : `selects ${plural(p.selected, p.traffic ? "node" : "pod")}`}</span>
      <a class="lines" tabindex="-1" href=${href("log", { policy: nameOf(p) })}>Lines</a></header>
    ${(p.conditions ?? []).map((c) => html`<p class="warn">${icon("problem")}${[c.reason ?? c.Reason, c.path ?? c.Path, c.message ?? c.Message].filter(Boolean).join(" ")}</p>`)}
    ${matches.length > 0
      ? html`<table class="matches"><thead><tr><th scope="col">Match</th><th scope="col" class="hits">Hits</th><th scope="col"><span class="unseen">Share</span></th><th scope="col">Last</th><th scope="col" class="wide">Path</th></tr></thead>
        <tbody>${shown.map((m) => match(m, top, unused.has(m.path)))}</tbody></table>`
      : html`<p class="hint">It has no match for names.</p>`}
    ${shown.length < matches.length ? html`<button type="button" class="link" @click=${() => { opened.add(key); changed(); }}>… and ${plural(matches.length - shown.length, "match", "matches")} more</button>` : nothing}
  </article>`;
}

function match(m, top, unused) {
  return html`<tr class=${unused ? "unused" : ""}>
    <td class="clip name" title=${m.match}>${m.match}${m.serverName ? html` <span class="tag" title="the connection must begin with a granted TLS server name">serverName: ${m.serverName}</span>` : nothing}</td>
    <td class="hits">${unused ? html`<span class="tag unused-tag">unused</span>` : number(m.hits)}</td>
    <td class="share">${unused ? nothing : html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect width="100" height="8" rx="1"/><rect class="full" width=${(100 * m.hits) / top} height="8" rx="1"/></svg>`}</td>
    <td class="dim">${m.last && -until(m.last) < 86400 ? ago(m.last) : "-"}</td>
    <td class="wide dim path">${m.path}</td>
  </tr>`;
}
