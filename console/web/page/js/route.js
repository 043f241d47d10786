// The view and its filters are in the fragment of the URL: #/log?namespace=shop&verdict=denied.

export const views = ["traffic", "log", "grants", "policies", "nodes"];

// The filters of each view. One that a view does not have stays in the URL for the others.
export const filtersOf = {
  traffic: ["namespace", "workload", "name", "verdict", "policy"],
  log: ["namespace", "workload", "name", "verdict", "policy"],
  grants: ["namespace", "pod", "name"],
  policies: ["namespace", "policy"],
  nodes: [],
};

const known = [...new Set(Object.values(filtersOf).flat())];

function fragment() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path, params: new URLSearchParams(query ?? "") };
}

// route reads the URL.
export function route() {
  const { path, params } = fragment();
  const filters = {};
  for (const name of known) filters[name] = params.get(name) ?? "";
  return { view: views.includes(path) ? path : views[0], filters };
}

// hasToken is whether the URL is the address that `namegate ui` printed: #/?token=TOKEN.
export const hasToken = () => fragment().params.has("token");

// takeToken takes the token out of the URL, and so out of bookmarks and the address bar.
export function takeToken() {
  const token = fragment().params.get("token");
  const { view, filters } = route();
  if (token !== null) history.replaceState(null, "", href(view, filters));
  return token;
}

// href is the URL of a view with filters.
export function href(view, filters) {
  const params = new URLSearchParams();
  for (const name of known) if (filters[name]) params.set(name, filters[name]);
  const query = params.toString();
  return `#/${view}${query && "?" + query}`;
}

// go changes the filters of the present view. Typing replaces the entry of the history, so that
// the browser's Back leads to the view before.
export function go(changed, view = route().view) {
  const now = route();
  const url = href(view, { ...now.filters, ...changed });
  if (view === now.view) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// active are the filters of a view that are set.
export function active(view, filters) {
  return filtersOf[view].filter((name) => filters[name] !== "");
}
