import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { badge, icon } from "./icons.js";
import { get } from "./server.js";
import { ago, clock, kind, number, policiesOf, subject, target } from "./words.js";

// The panel beside a view: a line, why, and what to write. It asks the server when it opens.

let panel = null; // what is open
let back = null; // where the focus was
let changed = () => {};

export const onChange = (f) => { changed = f; };
export const isOpen = (key) => panel?.key === key;
export const present = () => panel !== null;
export const redraw = () => changed();

// open shows a panel: {key, title, verdict, body, explain, suggest}. body is a function that makes
// a template; explain and suggest are the parameters of the two questions, or undefined.
export function open(content) {
  if (panel === null) back = document.activeElement;
  const mine = (panel = { ...content, why: ask("explain", content.explain), write: ask("suggest", content.suggest) });
  changed();
  requestAnimationFrame(() => { if (panel === mine) document.getElementById("panel-title")?.focus(); });
}

// close ends it; the focus returns to the row that opened it.
export function close() {
  if (panel === null) return false;
  panel = null;
  changed();
  if (back?.isConnected) back.focus();
  return true;
}

function ask(path, params) {
  const answer = { asked: params !== undefined, value: null, error: "" };
  if (answer.asked) {
    get(path, params).then((value) => { answer.value = value; }, (e) => { answer.error = e.message; }).finally(() => changed());
  }
  return answer;
}

// openLine shows a line of the log.
export function openLine(id, line, text) {
  const who = subject(line), to = target(line), port = to.port ? `:${to.port}` : "";
  open({
    key: `line:${id}`,
    title: to.ingress ? `${to.name} to ${who.text}${port}` : `${who.text} to ${to.name}${port}`,
    verdict: line.verdict,
    body: () => facts(line, text),
    explain: { ...(who.pod ? { pod: `${who.namespace}/${who.pod}` } : { node: who.node }), [to.ingress ? "from" : "target"]: to.name, port: to.port || "", protocol: to.protocol },
    suggest: to.ingress ? undefined : { namespace: who.namespace, workload: who.workload },
  });
}

function facts(line, text) {
  const who = subject(line), to = target(line);
  const rows = [
    ["Time", `${line.time.slice(0, 10)} ${clock(line.time, true)} UTC`],
    ["Kind", kind(line)],
    ["Workload", who.workload],
    ["Node", line.node],
    ["Direction", line.direction],
    [to.ingress ? "Source" : "Address", to.address],
    ["Names", (line.names ?? []).map((n) => n.name + (n.pod ? ` (asked by ${n.pod})` : "")).join(", ")],
    ["Server name", line.server_name && JSON.stringify(line.server_name)],
    ["Policies", policiesOf(line).join(", ")],
    ["Rule", line.rule && [line.tier && `(${line.tier})`, line.policy, line.rule].filter(Boolean).join(" ")],
    ["Traffic", line.traffic],
    ["Answer", (line.answers ?? []).map((a) => a.address + (a.blocked ? ` (${a.blocked})` : a.granted ? " opened" : "")).join(", ")],
    ["Response code", line.rcode],
    ["Times", line.count > 1 ? `${number(line.count)}, last ${ago(line.last)}` : ""],
  ];
  return html`<p class="said">${text}</p>
    <dl class="facts">${rows.map(([name, value]) => (value ? html`<dt>${name}</dt><dd>${value}</dd>` : nothing))}</dl>`;
}

// view draws the open panel.
export function view() {
  if (panel === null) return nothing;
  return html`
    <aside class="panel" id="panel" aria-labelledby="panel-title">
      <header>
        <div>${panel.verdict ? badge(panel.verdict) : nothing}
          <h2 id="panel-title" tabindex="-1">${panel.title}</h2></div>
        <button type="button" class="plain square" id="panel-close" aria-label="Close" title="Close (Escape)" @click=${close}>${icon("close")}</button>
      </header>
      <div class="content">
        ${panel.body()}
        ${panel.why.asked ? html`<section aria-labelledby="why"><h3 id="why">Why</h3>${answer(panel.why, because)}</section>` : nothing}
        ${panel.write.asked ? html`<section aria-labelledby="write"><h3 id="write">What to write</h3>${answer(panel.write, written)}</section>` : nothing}
      </div>
    </aside>`;
}

function answer({ value, error }, show) {
  if (error) return html`<p class="error" role="alert">${error}</p>`;
  return value ? show(value) : html`<p class="hint" role="status">Asking the agent…</p>`;
}

// because has explain's words. The manifest of its advice is below "What to do" in them.
function because({ text, explanation }) {
  const manifest = explanation?.advice?.manifest || explanation?.advice?.networkPolicy;
  const [words, ...manifests] = text.split(/^---$/m);
  return html`<pre class="words" id="explained" tabindex="0">${words.trim()}</pre>
    ${manifests.map((m) => yaml(m.trim() + "\n", "The manifest of the advice"))}
    ${manifest && manifests.length === 0 ? yaml(manifest, "The manifest of the advice") : nothing}`;
}

function written(suggestion) {
  const notes = suggestion.notes ?? [];
  return html`
    ${suggestion.yaml
      ? html`<p class="hint">A policy for what this workload used in the log. Review it before you apply it.</p>${yaml(suggestion.yaml, "The suggested policy", "suggested")}`
      : html`<p id="suggested">Nothing to write: the log has nothing of this workload that its policies do not cover.</p>`}
    ${notes.length > 0 ? html`<ul class="notes">${notes.map((n) => html`<li>${n}</li>`)}</ul>` : nothing}`;
}

// yaml is a manifest with a button that copies it.
function yaml(text, label, id = nothing) {
  return html`<div class="yaml">
    <button type="button" class="copy" @click=${(e) => copy(e.currentTarget, text)}>${icon("copy")}<span role="status">Copy</span></button>
    <pre id=${id} tabindex="0" aria-label=${label}>${text}</pre></div>`;
}

async function copy(button, text) {
  let word = "Copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without the permission, the text is selected for the reader to copy.
    getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
    word = "Selected: press Ctrl+C";
  }
  const label = button.querySelector("span");
  label.textContent = word;
  setTimeout(() => { label.textContent = "Copy"; }, 2000);
}
