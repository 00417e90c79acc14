"use strict";
// Who launched the kernels: a flame graph of numbers by the host's stack of calls, by range, or by Python function.

/** The calls that lead to a row, outermost first, each as [name, file, kind, line]; the last one is the kernel. */
function flamePath(stacks, row, by, kernels, starts) {
  const [kernel, frames, first, ranges] = row, calls = by === "python" ? frames.filter((at) => stacks.python[at]) : frames.slice(starts ? 0 : first);
  const path = by === "range" ? ranges.map((name) => [name, "range of the program (roctx)", "range", 0]) : calls.map((at) => { const [name, file, line] = stacks.frames[at]; return [name, file, stacks.python[at] ? "python" : "native", line]; });
  if (!path.length) path.push([{ range: "(no range)", python: "(no Python function)" }[by] ?? "(unknown)", "", "native", 0]);
  return [...path, [kernels[kernel]?.name ?? "unknown kernel", "kernel", "kernel", 0, kernel]];
}

function flameTree(stacks, kernels, by, number, starts) {
  const root = { name: "all", place: "", kind: "all", value: 0, children: new Map(), parent: null, lines: new Set() };
  for (const row of stacks.rows) {
    const value = row[4][number] ?? 0;
    if (!value) continue;
    let node = root;
    node.value += value;
    for (const [name, place, kind, line, kernel] of flamePath(stacks, row, by, kernels, starts)) {
      const key = `${kind} ${name} ${place}`;
      if (!node.children.has(key)) node.children.set(key, { name, place, kind, kernel, value: 0, children: new Map(), parent: node, lines: new Set() });
      node = node.children.get(key);
      if (line) node.lines.add(line);
      node.value += value;
    }
  }
  return root;
}

function drawFlame(data, open) {
  const { stacks } = data;
  if (!stacks) return;
  byId("stacks").hidden = false;
  const row = 20, least = 0.001, most = 1500, labels = { time: data.emulated ? "emulation time" : "time on devices", lanes: "active lanes" };
  const pick = (label, values) => h("select", { "aria-label": label, change: () => draw() }, values.map(([value, text]) => h("option", { value }, text)));
  const preferred = Math.max(stacks.known.indexOf("instructions"), 0);
  const numbers = pick("Number", stacks.known.map((name, at) => [at, labels[name] ?? name]));
  numbers.value = preferred;
  const groups = pick("Group by", [["stack", "all calls"], ...(stacks.python.some(Boolean) ? [["python", "Python functions"]] : []), ...(stacks.rows.some((one) => one[3].length) ? [["range", "ranges"]] : [])]);
  const starts = h("input", { type: "checkbox", change: () => draw() }), back = h("button", { type: "button", click: () => show(shown.parent ?? shown) }, "Back"), note = h("span", { class: "quiet" });
  const chart = h("div", { class: "flame", role: "group", "aria-label": "Flame graph" });
  let root, shown;
  const value = (one) => (stacks.known[numbers.value] === "time" ? duration(one) : short(one));

  function show(node) {
    shown = node;
    chart.textContent = "";
    back.hidden = !node.parent;
    let deepest = 0, drawn = 0, left = 0;
    const put = (one, from, width, level, click) => {
      deepest = Math.max(deepest, level);
      drawn += 1;
      const text = `${one.name}\n${one.place}${one.lines.size ? `, line ${[...one.lines].sort((a, b) => a - b).slice(0, 8).join(", ")}` : ""}\n${value(one.value)}, ${percent(one.value, root.value)}`;
      chart.append(h("button", { type: "button", class: one.kind, title: text, "aria-label": text.replaceAll("\n", ", "), click, style: { left: `${100 * from}%`, width: `${100 * width}%`, top: `${level * row}px` } }, width > 0.02 ? one.name : ""));
    };
    const ways = [];
    for (let one = node.parent; one; one = one.parent) ways.unshift(one);
    ways.forEach((one, level) => put(one, 0, 1, level, () => show(one)));
    const walk = (one, from, width, level) => {
      if (width < least || drawn > most) { left += 1; return; }
      put(one, from, width, level, () => (one.kernel === undefined ? show(one) : open(one.kernel)));
      let at = from;
      for (const child of [...one.children.values()].sort((a, b) => b.value - a.value)) {
        const part = (width * child.value) / one.value;
        walk(child, at, part, level + 1);
        at += part;
      }
    };
    walk(node, 0, 1, ways.length);
    chart.style.height = `${(deepest + 1) * row}px`;
    note.textContent = [left ? `${exact(left)} narrow parts are not drawn` : "", stacks.left_out ? `${exact(stacks.left_out)} stacks are in the run folder only` : "", ...(["instructions", "lanes"].includes(stacks.known[numbers.value]) ? ["counts of a kernel are divided among its stacks by waves", stacks.partial] : [])].filter(Boolean).join("; ");
  }

  function draw() {
    root = flameTree(stacks, data.kernels, groups.value, Number(numbers.value), starts.checked);
    show(root);
  }

  byId("stack-graph").append(h("div", { class: "flame-head" }, numbers, groups, h("label", {}, starts, " starts of threads"), back, note), chart);
  draw();
}
