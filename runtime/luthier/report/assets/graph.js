"use strict";
// The control-flow graph of a kernel, with the layout from the report.

function drawGraph(place, code, shares, onBlock) {
  const graph = code.graph;
  if (!graph) {
    place.replaceChildren(h("p", { class: "notice" }, `${exact(code.blocks.block.length)} blocks are too many to draw.`));
    return { mark: () => {} };
  }
  const [wide, tall] = graph.node, most = Math.max(0, ...shares.map((one) => one ?? 0)), margin = 8;
  const nodes = graph.nodes.map(([x, y], at) => {
    const { blocks } = code, share = shares[at];
    const title = blocks.title[at] || `block ${blocks.block[at]}`;
    const say = `${title}, block ${blocks.block[at]}, ${amount(blocks.instructions[at], "instruction")}${share === null ? "" : `, ${percent(share, 1)} of all executed`}`;
    const node = svg("g", { class: "node", tabindex: "0", role: "button", "aria-label": say, transform: `translate(${x + margin} ${y + margin})`, click: () => onBlock(at), keydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onBlock(at); } } },
      svg("rect", { width: wide, height: tall, rx: 3 }), svg("rect", { class: "warm", width: wide, height: tall, rx: 3, style: { "--warmth": most ? (0.6 * (share ?? 0)) / most : 0 } }),
      svg("text", { x: 8, y: 17 }, `${cut(title, 40).length > 19 ? `…${title.slice(-18)}` : title}${blocks.depth[at] ? ` ${"↻".repeat(Math.min(blocks.depth[at], 4))}` : ""}`),
      svg("text", { class: "small", x: 8, y: 33 }, `${blocks.title[at] ? `b${blocks.block[at]} · ` : ""}${blocks.instructions[at]} instr${share === null ? "" : ` · ${percent(share, 1) || "0 %"}`}`));
    return node;
  });
  const edges = graph.edges.map(([from, to, way, points]) => {
    const back = graph.nodes[to][1] <= graph.nodes[from][1];
    return svg("path", { class: `${way}${back ? " back" : ""}`, "marker-end": "url(#arrow)", d: points.map(([x, y], at) => `${at ? "L" : "M"}${x + margin} ${y + margin}`).join("") });
  });
  const width = graph.width + 2 * margin, height = graph.height + 2 * margin;
  const arrow = svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z" })));
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Control-flow graph" }, arrow, ...edges, ...nodes);
  const view = h("div", { class: "view", tabindex: "0", role: "region", "aria-label": "Control-flow graph" }, drawing);
  let zoom = 1;
  const set = (value) => { zoom = Math.min(2, Math.max(0.1, value)); drawing.setAttribute("width", width * zoom); drawing.setAttribute("height", height * zoom); };
  const button = (text, label, click) => h("button", { type: "button", "aria-label": label, title: label, click }, text);
  const fit = () => set(Math.min(1, (view.clientWidth - 16) / width, (view.clientHeight - 16) / height));
  place.replaceChildren(
    h("div", { class: "tools" }, h("h3", {}, "Control flow"), h("span", { class: "key" }, h("span", { class: "edge taken" }), "taken ", h("span", { class: "edge back" }), "back ", h("span", { class: "edge" }), "falls through ", h("span", { class: "swatch", style: { background: "rgba(var(--heat), .6)" } }), "share of executed"),
      h("span", { class: "push" }, button("−", "Smaller", () => set(zoom / 1.3)), " ", button("+", "Larger", () => set(zoom * 1.3)), " ", button("Fit", "All of it", fit))), view);
  set(Math.max(0.55, Math.min(1, (view.clientWidth - 16) / width)));
  return {
    mark: (at, reveal) => {
      nodes.forEach((node, number) => (number === at ? node.setAttribute("aria-current", "true") : node.removeAttribute("aria-current")));
      if (!reveal) return;
      const [x, y] = graph.nodes[at];
      view.scrollTo({ left: (x + wide / 2) * zoom - view.clientWidth / 2, top: y * zoom - view.clientHeight / 3 });
    },
  };
}
