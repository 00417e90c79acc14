"use strict";
// Search for kernels, source lines, instructions of all kernels, and tools' tables. `/` focuses it, arrows select, Enter opens, Escape leaves.

function startSearch(data, sources, open) {
  const field = byId("search"), list = byId("found");
  let found = [], chosen = 0, codes = null, asked = 0, looking = Promise.resolve();

  /** The code of all kernels, unpacked at the first search. */
  const unpacked = async () => {
    codes ??= Promise.all(data.coded.map(async (number) => [number, await unpack(`code-${number}`)]));
    return codes;
  };

  async function look() {
    const text = field.value.trim().toLowerCase(), mine = ++asked;
    const kernels = [], lines = [], instructions = [], tables = [];
    if (text) {
      const words = text.split(/\s+/);
      const fits = (...where) => words.every((word) => where.some((one) => one && one.toLowerCase().includes(word)));
      data.kernels.forEach((kernel, number) => { if (fits(kernel.name, kernel.symbol, kernel.object)) kernels.push({ text: kernel.name, note: `kernel, ${short(kernel.launches)} launches`, go: () => open(number) }); });
      data.tables.forEach((table) => {
        const row = fits(table.title, table.tool) ? -1 : table.rows.findIndex((cells) => fits(...cells.map(String)));
        if (row >= 0 || fits(table.title, table.tool)) tables.push({ text: row < 0 ? table.title : table.rows[row].join("  "), note: `table of ${table.tool}`, go: () => { table.element.open = true; table.element.scrollIntoView(); } });
      });
      field.setAttribute("aria-expanded", "true");
      const all = await unpacked();
      if (mine !== asked) return; // more was typed meanwhile
      const first = opened?.number;
      for (const [number, code] of [...all].sort((one, other) => (other[0] === first) - (one[0] === first))) {
        const name = data.kernels[number].name, { source } = code;
        source.line.forEach((line, at) => {
          const { path, lines: texts } = sources[source.file[at]], said = texts?.[line - 1] ?? "";
          if (lines.length < 200 && fits(`${path}:${line}`, said)) lines.push({ text: `${fileName(path)}:${line} ${said.trim()}`, note: `${name}${source.executed ? `, ${short(source.executed[at])}` : ""}`, go: () => open(number, { place: [source.file[at], line], at: null }), executed: source.executed?.[at] ?? 0, open: number === first });
        });
        code.text.forEach((instruction, at) => {
          if (instructions.length < 40 && fits(instruction, hex(code.address[at]))) instructions.push({ text: instruction, note: `${hex(code.address[at])}, block ${code.block[at]}${number === first ? "" : ` of ${cut(name, 30)}`}`, go: () => open(number, { place: null, at }) });
        });
      }
      lines.sort((one, other) => other.open - one.open || other.executed - one.executed);
    }
    found = [...kernels.slice(0, 8), ...lines.slice(0, 12), ...instructions, ...tables.slice(0, 8)];
    chosen = 0;
    draw();
  }

  function draw() {
    const show = field.value.trim() !== "";
    list.hidden = !show;
    field.setAttribute("aria-expanded", String(show));
    list.replaceChildren(...(found.length ? found.map((one, at) => h("li", { role: "option", id: `found-${at}`, "aria-selected": String(at === chosen), mousedown: (event) => { event.preventDefault(); take(at); } }, h("span", { class: "mono" }, cut(one.text, 80)), h("span", { class: "quiet" }, one.note))) : [h("li", { class: "none" }, "nothing found")]));
    if (found.length) field.setAttribute("aria-activedescendant", `found-${chosen}`);
    else field.removeAttribute("aria-activedescendant");
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  function take(at) {
    found[at]?.go();
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.blur();
  }

  const start = () => { looking = look(); };
  field.addEventListener("input", start);
  field.addEventListener("focus", () => { if (field.value) start(); });
  field.addEventListener("blur", () => { list.hidden = true; });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(found.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      draw();
    } else if (event.key === "Enter") looking.then(() => take(chosen));
    else if (event.key === "Escape") { field.value = ""; start(); field.blur(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}
