import { html, nothing } from "../vendor/lit-html/lit-html.js";
import { live as current } from "../vendor/lit-html/directives/live.js";
import { active, filtersOf, go, route } from "./route.js";
import { verdicts } from "./words.js";

const labels = { namespace: "Namespace", workload: "Workload", name: "Name", verdict: "Verdict", policy: "Policy", pod: "Pod" };
const hints = { namespace: "all", workload: "part of its labels", name: "part of a name", policy: "part of its name", pod: "part of a name, or node/NAME" };

// bar is the filters of a view. namespaces are offered; only is the one namespace that the reader
// may see, "" for all.
export function bar(view, filters, { namespaces = [], only = "" } = {}) {
  const names = filtersOf[view].filter((name) => name !== "namespace" || !only);
  if (names.length === 0) return nothing;
  return html`
    <form class="filters" role="search" aria-label="Filters" @submit=${(e) => e.preventDefault()}>
      ${names.map((name) => (name === "verdict" ? choice(filters) : field(name, filters)))}
      ${active(view, filters).length > 0
        ? html`<button type="button" class="plain" id="clear" @click=${clear}>Clear filters</button>`
        : html`<span class="hint">Press <kbd>/</kbd> to filter</span>`}
      <datalist id="namespaces">${namespaces.map((ns) => html`<option value=${ns}></option>`)}</datalist>
    </form>`;
}

const set = (name) => (e) => go({ [name]: e.target.value.trim() });

const field = (name, filters) => html`
  <label class="field field-${name}"><span>${labels[name]}</span>
    <input id="filter-${name}" type="text" autocomplete="off" spellcheck="false" autocapitalize="off"
      list=${name === "namespace" ? "namespaces" : nothing} placeholder=${hints[name]}
      class=${filters[name] ? "set" : ""} .value=${current(filters[name])} @input=${set(name)}>
  </label>`;

const choice = (filters) => html`
  <label class="field"><span>${labels.verdict}</span>
    <select id="filter-verdict" class=${filters.verdict ? "set" : ""} .value=${current(filters.verdict)} @change=${set("verdict")}>
      <option value="">all</option>
      ${verdicts.map((v) => html`<option value=${v.word} ?selected=${v.word === filters.verdict}>${v.word}</option>`)}
    </select>
  </label>`;

function clear() {
  const { view } = route();
  go(Object.fromEntries(filtersOf[view].map((name) => [name, ""])));
  focus();
}

// focus goes to the filter that a reader most probably wants.
export function focus() {
  for (const name of ["name", "policy", "namespace"]) {
    const input = document.getElementById(`filter-${name}`);
    if (input) {
      input.focus();
      input.select();
      return true;
    }
  }
  return false;
}

