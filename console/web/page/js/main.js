import { html, nothing, render } from "../vendor/lit-html/lit-html.js";
import * as filters from "./filters.js";
import * as grants from "./grants.js";
import { badge, icon } from "./icons.js";
import { connect, live } from "./live.js";
import * as log from "./log.js";
import * as nodes from "./nodes.js";
import * as panel from "./panel.js";
import * as policies from "./policies.js";
import { filtersOf, hasToken, href, route, views } from "./route.js";
import { get, keepToken } from "./server.js";
import * as traffic from "./traffic.js";
import { plural } from "./words.js";

const pages = { traffic, log, grants, policies, nodes };
const titles = { traffic: "Traffic", log: "Log", grants: "Grants", policies: "Policies", nodes: "Nodes" };

let session = null, failure = "", shown = "", end = () => {}, drawn = false;

// changed draws soon, once for all changes before the next frame.
function changed() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => { drawn = false; draw(); });
}

function draw() {
  const { view, filters: set } = route();
  if (view !== shown) {
    end();
    panel.close();
    shown = view;
    end = pages[view].start(changed);
    document.title = `${titles[view]} – Namegate`;
    scrollTo(0, 0);
  }
  if (view === "log") log.filter(Object.fromEntries(filtersOf.log.map((name) => [name, set[name]])));
  render(page(view, set), document.getElementById("page"));
  document.body.classList.toggle("with-panel", panel.present());
}

const page = (view, set) => html`
  <a class="skip" href=${location.hash || "#/traffic"} @click=${toMain}>Skip to the content</a>
  <header class="top">
    <span class="brand">${icon("logo")}Namegate</span>
    <nav aria-label="Views">${views.map((v) => html`<a href=${href(v, set)} aria-current=${v === view ? "page" : nothing}>${titles[v]}${v === "nodes" ? count() : nothing}</a>`)}</nav>
    <span class="scope">${scope()}</span>${state()}
  </header>
  ${notices()}
  ${failure ? nothing : filters.bar(view, set, { namespaces: namespaces(), only: session?.namespace })}
  <main id="main" tabindex="-1" aria-label=${titles[view]}>${failure ? nothing : pages[view].view(set)}</main>
  ${panel.view()}`;

function toMain(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function count() {
  const n = nodes.troubled(live.agents);
  return n > 0 ? html`<span class="count" title="nodes with something wrong">${n}<span class="unseen"> with something wrong</span></span>` : nothing;
}

// scope is what the reader sees: the context, and the namespace where the rights end.
function scope() {
  if (!session) return nothing;
  return html`${session.context ? html`<span class="clip" title="context ${session.context}">${session.context}</span>` : nothing}
    ${session.namespace ? html`<span class="tag" id="only">namespace ${session.namespace}</span>` : nothing}`;
}

function state() {
  if (failure || live.failure) return html`<span class="state">${badge("unreachable", "disconnected")}</span>`;
  if (!live.agents) return html`<span class="state">${badge("connecting", "connecting")}</span>`;
  const well = live.agents.filter((a) => a.state === "well").length;
  return html`<span class="state" role="status">${badge(well > 0 ? "well" : "connecting", `live, ${well} of ${plural(live.agents.length, "agent")}`)}</span>`;
}

function notices() {
  const away = (live.agents ?? []).filter((a) => !["well", "connecting"].includes(a.state));
  return html`
    ${failure ? html`<p class="notice error" role="alert">${failure}</p>` : nothing}
    ${live.failure ? html`<p class="notice error" role="alert">The page shows the last state, and connects again by itself: ${live.failure}</p>` : nothing}
    ${away.length > 0 && shown !== "nodes" ? html`<p class="notice warn" role="status">${icon("problem")}<span>${away.slice(0, 3).map((a) => `${a.node || "the agent"} is ${a.state}`).join(", ")}${away.length > 3 ? ` and ${away.length - 3} more` : ""}: its lines are missing here. <a href=${href("nodes", {})}>Nodes</a> has more.</span></p>` : nothing}`;
}

// namespaces are offered as values of the filter.
function namespaces() {
  if (namespaces.version !== live.version) {
    namespaces.version = live.version;
    namespaces.all = [...new Set([...live.edges.values()].map((e) => e.namespace))].filter(Boolean).sort().slice(0, 300);
  }
  return namespaces.all;
}

function keys(event) {
  if (event.key === "Escape" && !event.defaultPrevented) {
    if (panel.close()) event.preventDefault();
    else if (event.target.closest?.(".filters")) document.getElementById("main").querySelector("[data-row][tabindex='0']")?.focus();
  }
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && filters.focus()) event.preventDefault();
}

panel.onChange(changed);
// The printed address may be opened in a tab that has the page already.
addEventListener("hashchange", () => { if (hasToken()) location.reload(); else changed(); });
addEventListener("keydown", keys);
changed();
get("session").then(
  (s) => { session = s; keepToken(); connect(changed); },
  (e) => { failure = e.message; },
).finally(changed);
