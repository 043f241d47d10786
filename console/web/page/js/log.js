import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { repeat } from "../vendor/lit-html/directives/repeat.js";
import { badge, icon } from "./icons.js";
import { onLines } from "./live.js";
import { isOpen, openLine } from "./panel.js";
import { get } from "./server.js";
import { inOrder, remember, rowKeys } from "./table.js";
import { clock, kind, plural, subject, target } from "./words.js";

// The log: DNS decisions and connections, newest first. The server has the last 10,000 lines; the
// page holds the newest of them that pass the filters. The server alone knows which pass: with
// filters, new lines are a reason to ask it.

const page = 200, most = 1000;

let lines = [], more = false, error = "", loading = true;
let paused = false, waiting = false;
let filters = null, changed = () => {}, asked = 0, busy = false, again = false;

// start shows the view; the returned function ends it.
export function start(onChange) {
  changed = onChange;
  const stop = onLines(arrived);
  return () => { stop(); filters = null; paused = false; asked++; };
}

// filter takes the filters of the URL and asks for lines when they differ. While a reader types,
// questions wait a little.
export function filter(next) {
  if (filters && JSON.stringify(filters) === JSON.stringify(next)) return;
  const first = filters === null;
  filters = { ...next };
  lines = [];
  waiting = busy = again = false;
  loading = true;
  const mine = ++asked;
  setTimeout(() => { if (mine === asked) load(); }, first ? 0 : 150);
}

// load asks for the newest lines, or for those before one.
async function load(before = 0) {
  if (busy && !before) {
    again = true;
    return;
  }
  busy = true;
  const mine = asked;
  let answer = null;
  try {
    answer = await get("lines", { ...filters, before, limit: page });
    error = "";
  } catch (e) {
    error = e.message;
  }
  if (mine !== asked) return; // other filters by now
  busy = loading = false;
  if (answer) merge(answer.lines ?? [], answer.more, before);
  if (again) {
    again = false;
    load();
  }
  changed();
}

// merge adds lines by their number. Newest lines that do not reach to those that are known replace
// them: none is missing in between.
function merge(some, someMore, before) {
  const newest = lines[0]?.id ?? 0;
  if (before || lines.length === 0) more = someMore;
  else if (someMore && some.at(-1)?.id > newest) {
    lines = [];
    more = true;
  }
  const known = new Set(lines.map((l) => l.id));
  lines = [...some.filter((l) => !known.has(l.id)), ...lines].sort((a, b) => b.id - a.id);
  if (!before && lines.length > most) {
    lines.length = most;
    more = true;
  }
}

function arrived(some, left) {
  if (!filters) return;
  if (loading) again = true; // the answer may be from before these lines
  else if (paused) waiting = true;
  else if (left > 0 || Object.values(filters).some(Boolean)) load();
  else merge(some, false, 0);
}

function pause() {
  paused = !paused;
  if (!paused && waiting) {
    waiting = false;
    load();
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
  if (paused) return waiting ? "Paused: there are new lines" : "Paused";
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
    <td class="clip name" title=${to.name}>${to.ingress ? html`<span class="dim">from </span>` : nothing}${to.name}${to.port ? html`<span class="dim">${to.ingress ? " to " : ""}:${to.port}</span>` : nothing}${line.count > 1 ? html` <span class="times">× ${line.count}</span>` : nothing}</td>
    <td class="clip wide result" title=${text}>${text}</td>
    <td class="wide dim">${line.node}</td>
    <td><button type="button" class="plain square" tabindex="-1" aria-label="Why, and what to write" @click=${(e) => { e.stopPropagation(); open(); }}>${icon("open")}</button></td>
  </tr>`;
}
