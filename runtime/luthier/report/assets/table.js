"use strict";
// Sortable tables, which show a limited number of rows at first.

const PAGE = 100;
/** Rows at first, if they are cards. */
const CARDS = 10;

/**
 * A sortable table.
 * columns: {name, get(row), show?(value, row), right?, long?, title?}; options: sort (column), pick(row), key(row), label.
 */
function sortable(columns, rows, options = {}) {
  const body = h("tbody");
  const more = h("p", { class: "more" });
  let by = options.sort ?? null, up = false, shown = options.rows ?? PAGE, all = rows, current = null;
  const heads = columns.map((column, at) =>
    h("th", { scope: "col", class: column.right ? "right" : null, title: column.title },
      h("button", { type: "button", click: () => { up = by === at ? !up : !column.right; by = at; draw(); } }, column.name)));
  const table = h("table", { "aria-label": options.label }, h("thead", {}, h("tr", {}, heads)), body);

  function sorted() {
    if (by === null) return all;
    const get = columns[by].get, sign = up ? 1 : -1;
    return [...all].sort((one, other) => {
      const a = get(one), b = get(other);
      if (a === b) return 0;
      if (a === null || a === undefined) return 1;
      if (b === null || b === undefined) return -1;
      return (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))) * sign;
    });
  }

  function draw() {
    heads.forEach((head, at) => (at === by ? head.setAttribute("aria-sort", up ? "ascending" : "descending") : head.removeAttribute("aria-sort")));
    const found = sorted();
    body.replaceChildren(...found.slice(0, shown).map((row) =>
      h("tr", { class: options.pick ? "pick" : null, click: options.pick ? () => options.pick(row) : null, "aria-current": options.key && options.key(row) === current ? "true" : null },
        columns.map((column) => {
          const value = column.get(row);
          const content = column.show ? column.show(value, row) : value ?? "";
          const share = column.most && value > 0 ? value / column.most : 0;
          return h("td", { "data-label": column.name, style: share ? { "--share": `${(100 * share).toFixed(1)}%` } : {}, class: [column.right && "right", column.long && "long", share && "share"].filter(Boolean).join(" ") || null, title: column.hint ? column.hint(row) : null }, content instanceof Node ? content : String(content));
        }))));
    const rest = found.length - shown;
    more.replaceChildren(...(rest > 0 ? [h("button", { type: "button", click: () => { shown += 10 * PAGE; draw(); } }, `Show ${exact(Math.min(rest, 10 * PAGE))} more`), ` of ${exact(rest)} remaining`] : []));
  }

  draw();
  const place = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": options.label }, table);
  fitting(place, table, () => { if (shown === PAGE) { shown = CARDS; draw(); } });
  return {
    element: h("div", { class: options.narrow ? "narrow" : null }, place, more),
    mark: (key) => { current = key; draw(); },
  };
}

/** Show rows as cards if a table is wider than its container, so that no column is cut off. */
function fitting(place, table, asCards) {
  let before = 0;
  new ResizeObserver(() => {
    if (Math.abs(place.clientWidth - before) < 2) return;
    before = place.clientWidth;
    place.classList.remove("cards");
    if (table.scrollWidth > place.clientWidth + 1) { place.classList.add("cards"); asCards(); }
    before = place.clientWidth;
  }).observe(place);
}

/** A value as a bar, which is full at `most`, followed by texts. */
function bar(value, most, ...texts) {
  const width = most ? `${Math.max((100 * value) / most, value ? 0.5 : 0)}%` : "0";
  return h("div", { class: "measure" }, h("span", { class: "track" }, h("span", { class: "bar", style: { width } })), texts.map((text) => h("span", {}, text)));
}

/** Columns whose numbers are identifiers, not amounts. */
const NAMES = /^(block|number|process|device|queue|line|lane|rank|size)$/;

/** A tool's own table: numbers to the right, amounts as bars behind them, so that a table of addresses is a heat map. */
function plainTable(table) {
  const columns = table.columns.map((name, at) => {
    const values = table.rows.map((row) => row[at]), numbers = values.every((one) => one === null || typeof one === "number");
    const amounts = numbers && table.rows.length > 1 && !NAMES.test(name);
    return { name: String(name), get: (row) => row[at], right: numbers, most: amounts ? values.reduce((most, one) => Math.max(most, one ?? 0), 0) : 0,
      show: (value) => (value === null ? "" : numbers ? exact(value) : String(value)), long: !numbers && values.some((one) => String(one ?? "").length > 40) };
  });
  return sortable(columns, table.rows, { label: `${table.tool} ${table.title}`.trim() }).element;
}
