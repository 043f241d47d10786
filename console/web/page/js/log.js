import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { badge, icon } from "./icons.js";
import { onLines } from "./live.js";
import { isOpen, openLine } from "./panel.js";
import { get } from "./server.js";
import { inOrder, remember, rowKeys } from "./table.js";
import { clock, kind, plural, policiesOf, subject, target } from "./words.js";

// The log: DNS decisions and connections, newest first. The server has the last 10,000 lines; the
// page holds the newest of them that pass the filters.

const page = 200, most = 1000;

let lines = [], more = false, error = "", loading = true;
let paused = false, waiting = [], missed = 0;
let filters = null, changed = () => {}, stop = () => {}, asked = 0;

// start shows the view; the returned function ends it.
export function start(onChange) {
  changed = onChange;
  stop = onLines(arrived);
  return () => { stop(); filters = null; };
}

// filter takes the filters of the URL and asks for lines when they differ. While a reader types,
// questions wait a little.
export function filter(next) {
  const key = JSON.stringify(next);
  if (filters && JSON.stringify(filters) === key) return;
  const first = filters === null;
  filters = { ...next };
  lines = [];
  waiting = [];
  missed = 0;
  loading = true;
  const mine = ++asked;
  setTimeout(() => { if (mine === asked) load(); }, first ? 0 : 150);
}

async function load(before = 0) {
  const mine = ++asked;
  try {
    const answer = await get("lines", { ...filters, before, limit: page });
    if (mine !== asked) return;
    add(answer.lines ?? []);
    more = answer.more;
    error = "";
    if (!before) missed = 0;
  } catch (e) {
    if (mine === asked) error = e.message;
  }
  loading = false;
  changed();
}

// add merges lines by their number.
function add(some, bound = Infinity) {
  const known = new Set(lines.map((l) => l.id));
  const fresh = some.filter((l) => !known.has(l.id));
  if (fresh.length === 0) return;
  lines = [...fresh, ...lines].sort((a, b) => b.id - a.id);
  if (lines.length > bound) {
    lines.length = bound;
    more = true;
  }
}

function arrived(some, left) {
  if (!filters) return;
  const mine = some.filter(passes(filters));
  missed += left;
  if (paused) waiting.push(...mine);
  else add(mine, Math.max(most, page));
  if (waiting.length > most) waiting.splice(0, waiting.length - most);
}

function passes({ namespace, workload, name, verdict, policy }) {
  const has = (text, part) => !part || (text ?? "").toLowerCase().includes(part.toLowerCase());
  return ({ line }) => {
    const who = subject(line);
    const names = [line.question?.name, line.destination?.address, ...(line.names ?? []).map((n) => n.name)];
    return (!namespace || who.namespace === namespace) && (!verdict || line.verdict === verdict) &&
      (has(who.workload, workload) || has(who.pod, workload)) && names.some((n) => has(n, name)) &&
      (!policy || policiesOf(line).some((p) => has(p, policy)));
  };
}

function pause() {
  paused = !paused;
  if (!paused) {
    add(waiting, most);
    waiting = [];
  }
  changed();
}

// view draws the table.
export function view() {
  const order = inOrder("log", lines.map((l) => `${l.id}`));
  return html`
    <div class="actions">
      <button type="button" id="pause" aria-pressed=${paused} @click=${pause}>${icon(paused ? "play" : "pause")}${paused ? "Continue" : "Pause"}</button>
      <span role="status" id="count">${status()}</span>
      ${missed > 0 ? html`<span class="warn">${plural(missed, "line")} arrived too fast to show here. <button type="button" class="link" @click=${() => load()}>Load the newest</button></span>` : nothing}
    </div>
    ${error ? html`<p class="error" role="alert">${error}</p>` : nothing}
    <div class="scroll" tabindex="-1"><table class="rows log">
      <caption class="unseen">DNS decisions and connections, newest first. Enter opens a line.</caption>
      <thead><tr><th scope="col">Time (UTC)</th><th scope="col">Verdict</th><th scope="col">Pod</th><th scope="col">Kind</th><th scope="col">Name or address</th><th scope="col" class="wide">Result</th><th scope="col" class="wide">Node</th><th><span class="unseen">Open</span></th></tr></thead>
      <tbody @keydown=${rowKeys} @focusin=${remember("log")}>${repeat(lines, (l) => l.id, (l) => row(l, order))}</tbody>
    </table></div>
    ${lines.length === 0 && !error ? html`<p class="empty">${loading ? "Asking for lines…" : "No line passes the filters. Only pods and nodes that a policy selects have lines."}</p>` : nothing}
    ${more ? html`<p class="more"><button type="button" id="older" @click=${() => load(lines.at(-1)?.id)}>Load older lines</button></p>` : nothing}`;
}

function status() {
  if (paused) return waiting.length > 0 ? `Paused: ${plural(waiting.length, "new line")}` : "Paused";
  return lines.length > 0 ? `${plural(lines.length, "line")}, newest first` : "";
}

function row({ id, line, text }, order) {
  const who = subject(line), to = target(line);
  const open = () => openLine(id, line, text);
  return html`<tr data-row=${id} tabindex=${order(`${id}`)} class=${isOpen(`line:${id}`) ? "opened" : ""} @click=${open}>
    <td class="time">${clock(line.time)}</td>
    <td>${badge(line.verdict)}</td>
    <td class="clip pod" title=${who.text}>${who.pod ? html`<span class="dim">${who.namespace}/</span>${who.pod}` : who.text}</td>
    <td class="kind">${kind(line)}</td>
    <td class="clip name" title=${to.name}>${to.name}${to.port ? html`<span class="dim">:${to.port}</span>` : nothing}${line.count > 1 ? html` <span class="times">× ${line.count}</span>` : nothing}</td>
    <td class="clip wide result" title=${text}>${text}</td>
    <td class="wide dim">${line.node}</td>
    <td><button type="button" class="plain square" tabindex="-1" aria-label="Why, and what to write" @click=${(e) => { e.stopPropagation(); open(); }}>${icon("open")}</button></td>
  </tr>`;
}
