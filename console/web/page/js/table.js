// Tables and lists by keyboard: one row is in the tab order, arrow keys go to the others.

// rowKeys is a handler of keydown for an element whose rows have the attribute data-row.
export function rowKeys(event) {
  const row = event.target.closest?.("[data-row]");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...event.currentTarget.querySelectorAll("[data-row]")];
  const page = 10, i = rows.indexOf(row);
  const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: rows.length - 1, PageDown: i + page, PageUp: i - page }[event.key];
  if (to !== undefined) {
    event.preventDefault();
    focusRow(rows[Math.min(Math.max(to, 0), rows.length - 1)]);
  } else if (event.key === "Enter" && event.target === row && row.tagName !== "BUTTON") {
    event.preventDefault();
    row.click();
  }
}

function focusRow(row) {
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

// focused has by group the row of the last focus, which stays in the tab order.
const focused = new Map();

export function remember(group) {
  return (event) => {
    const row = event.target.closest?.("[data-row]");
    if (row) focused.set(group, row.dataset.row);
  };
}

// inOrder is a function from the key of a row to its tabindex.
export function inOrder(group, keys) {
  const last = focused.get(group);
  const chosen = keys.includes(last) ? last : keys[0];
  return (key) => (key === chosen ? 0 : -1);
}
