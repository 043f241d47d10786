import { html, nothing, svg } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { bounds, fold, matcher } from "./fold.js";
import { icon, mark } from "./icons.js";
import { live } from "./live.js";
import { isOpen } from "./panel.js";
import { go } from "./route.js";
import { openRow } from "./trafficpanel.js";
import { compact, number, plural, rate, titled, verdicts, worstFirst } from "./words.js";

// The picture: workloads on the left, names on the right, lines between them. The rows are HTML,
// the lines SVG; a row is rowHeight of the style sheet high.

const rowHeight = 30;

let toggled = new Map(), more = new Map(), changed = () => {};
let pointed = null; // the row below the pointer or with the focus
let known = { key: "", picture: null, totals: null };

export function start(onChange) {
  changed = onChange;
  return () => { pointed = null; };
}

// picture is computed once for each change of edges, filters or folds.
function picture(filters) {
  const key = JSON.stringify([live.version, filters, [...toggled], [...more]]);
  if (known.key !== key) {
    const others = matcher({ ...filters, verdict: "" }), totals = new Map(), chosen = [];
    for (const e of live.edges.values()) {
      if (!others(e)) continue;
      totals.set(e.verdict, (totals.get(e.verdict) ?? 0) + e.count);
      if (!filters.verdict || e.verdict === filters.verdict) chosen.push(e);
    }
    known = { key, picture: named(fold(chosen, { toggled, more })), totals, chosen: chosen.length };
  }
  return known;
}

// named gives the rows of workloads their names. Workloads of one namespace that these do not tell
// from each other keep all their labels.
function named(p) {
  const rows = p.left.filter((r) => r.kind === "workload"), seen = new Map();
  for (const r of rows) {
    const t = titled(r.label), text = `${r.namespace}/${t.name} ${t.more}`;
    seen.set(text, [...(seen.get(text) ?? []), Object.assign(r, t)]);
  }
  for (const alike of seen.values()) if (alike.length > 1) for (const r of alike) Object.assign(r, { name: r.label, more: "" });
  return p;
}

export function view(filters) {
  const { picture: p, totals } = picture(filters);
  if (live.edges.size === 0) return empty();
  return html`
    <div class="actions"><span role="status" id="count">${plural(p.workloads, "workload")}, ${plural(p.names, "name")}</span>
      <span class="hint">Last hour. ${live.left > 0 ? `${plural(live.left, "line")} beyond the bound of the picture ${live.left === 1 ? "is" : "are"} left out.` : ""}</span></div>
    ${legend(filters, totals)}
    ${p.workloads === 0 ? html`<p class="empty">Nothing passes the filters.</p>` : drawing(p)}
    ${p.undrawn > 0 ? html`<p class="hint" id="undrawn">The ${number(bounds.lines)} busiest lines are drawn, ${number(p.undrawn)} are not: filter to see them.</p>` : nothing}`;
}

const empty = () => html`<div class="empty" id="empty">${live.at === null
  ? html`<p>Waiting for the first answer of the agents…</p>`
  : html`<p><strong>No queries or connections yet.</strong></p><p>Pods and nodes that a policy selects appear here when they ask for a name or connect to an address.</p>`}</div>`;

// legend explains the lines, counts them, and filters by verdict.
function legend(filters, totals) {
  const shown = verdicts.filter((v) => totals.has(v.word) || v.word === filters.verdict);
  return html`<div class="legend" role="group" aria-label="Verdicts">${shown.map((v) => html`
    <button type="button" class="is-${v.word}" id="verdict-${v.word}" title=${v.meaning} aria-pressed=${filters.verdict === v.word}
      @click=${() => go({ verdict: filters.verdict === v.word ? "" : v.word })}>
      <svg class="sample" viewBox="0 0 30 8" aria-hidden="true"><path class="line is-${v.word}" d="M1 4H29"/></svg>
      ${icon(v.word)}<span>${v.word}</span><b>${compact(totals.get(v.word) ?? 0)}</b></button>`)}
  </div>`;
}

function drawing(p) {
  const height = Math.max(p.left.length, p.right.length) * rowHeight;
  return html`<div class="picture" id="picture" @keydown=${keys} @pointerover=${point} @pointerleave=${leave} @focusin=${point} @focusout=${leave}>
    <h2 class="from">Workloads</h2><h2 class="to">Names</h2>
    <ul class="from" aria-label="Workloads">${repeat(p.left, (r) => r.id, (r, i) => item(r, i, "left"))}</ul>
    <svg class="lines" viewBox="0 0 100 ${height}" height=${height} preserveAspectRatio="none" aria-hidden="true">${repeat(p.lines, (l) => l.key, (l) => line(l, p))}</svg>
    <ul class="to" aria-label="Names">${repeat(p.right, (r) => r.id, (r, i) => item(r, i, "right"))}</ul>
  </div>`;
}

// line is a curve; its width grows with the count, and it is faint without traffic now.
function line(l, p) {
  const shift = l.beside * 6 * (l.beside % 2 ? 1 : -0.5); // 0, 6, -6 px
  const a = (l.from + 0.5) * rowHeight + shift, b = (l.to + 0.5) * rowHeight + shift;
  const width = l.rest ? 1 : Math.min(7, 0.8 + 0.7 * Math.log10(1 + l.count)).toFixed(1);
  const at = pointed && (p.left[l.from].id === pointed || p.right[l.to].id === pointed);
  const state = pointed ? (at ? "near" : "far") : l.rest ? "rest" : l.perSecond > 0 ? "busy" : "idle";
  return svg`<path class="line is-${l.verdict} ${state}" stroke-width=${width} d="M0 ${a}C45 ${a} 55 ${b} 100 ${b}"/>`;
}

function item(r, i, side) {
  const label = text(r), found = [...r.verdicts.keys()].sort(worstFirst);
  const pressed = r.kind === "namespace" ? { expanded: `${r.unfolded}` } : {};
  return html`<li><button type="button" class="row kind-${r.kind} ${isOpen(r.id) ? "opened" : ""}" data-row=${r.id} data-side=${side}
      tabindex=${i === 0 ? 0 : -1} aria-expanded=${pressed.expanded ?? nothing} aria-label=${spoken(r, label, found)} title=${label} @click=${() => click(r)}>
    ${r.kind === "namespace" ? icon(r.unfolded ? "unfolded" : "open") : nothing}
    <span class="label">${shown(r, label)}</span>
    <span class="marks">${r.kind === "namespace" && r.unfolded ? nothing : found.slice(0, 3).map(mark)}</span>
    <span class="number">${rate(r.perSecond) ? html`<span class="rate">${rate(r.perSecond)}</span>` : nothing}${compact(r.count)}</span>
  </button></li>`;
}

// shown is the text of a row: of a workload its name before its other labels.
function shown(r, label) {
  const more = r.kind === "namespace" && !r.unfolded ? plural(r.workloads, "workload") : r.more;
  return html`${r.name ?? label}${more ? html` <span class="dim">${more}</span>` : nothing}`;
}

export function text(r) {
  if (r.kind === "namespace") return r.label || "Nodes";
  if (r.kind !== "more") return r.label;
  const what = r.group === "names" ? ["name"] : r.group === "namespaces" ? ["namespace"] : ["workload"];
  return `… and ${number(r.hidden)} more ${r.hidden === 1 ? what[0] : what[0] + "s"}${r.full ? ": filter to see them" : ""}`;
}

const spoken = (r, label, found) =>
  `${label}: ${number(r.count)} in the last hour, ${found.map((v) => `${v} ${number(r.verdicts.get(v))}`).join(", ")}`;

function click(r) {
  if (r.kind === "namespace") toggled.set(r.label, !r.unfolded);
  else if (r.kind === "more") {
    if (!r.full) more.set(r.group, (more.get(r.group) ?? 0) + bounds.step);
  } else return openRow(r);
  changed();
}

function point(event) {
  const id = event.target.closest?.("[data-row]")?.dataset.row ?? null;
  if (id === pointed || id === null) return;
  pointed = id;
  changed();
}

function leave() {
  if (pointed === null) return;
  pointed = null;
  changed();
}

// keys: up and down go through a column, left and right to the other one.
function keys(event) {
  const row = event.target.closest("[data-row]");
  if (!row) return;
  const columns = { left: [], right: [] };
  for (const r of event.currentTarget.querySelectorAll("[data-row]")) columns[r.dataset.side].push(r);
  const column = columns[row.dataset.side], i = column.indexOf(row);
  const near = columns[event.key === "ArrowLeft" ? "left" : "right"];
  const to = { ArrowDown: column[i + 1], ArrowUp: column[i - 1], Home: column[0], End: column.at(-1),
    ArrowLeft: near[Math.min(i, near.length - 1)], ArrowRight: near[Math.min(i, near.length - 1)] }[event.key];
  if (!to) return;
  event.preventDefault();
  to.focus();
  to.scrollIntoView({ block: "nearest" });
}
