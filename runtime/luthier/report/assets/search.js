"use strict";
// One field for kernels and the instructions of the open one. `/` goes there, arrows choose, Enter opens, Escape leaves.

function startSearch(data, open) {
  const field = byId("search"), list = byId("found");
  let found = [], chosen = 0;

  function look() {
    const text = field.value.trim().toLowerCase();
    found = [];
    if (text) {
      const words = text.split(/\s+/);
      const fits = (...where) => words.every((word) => where.some((one) => one && one.toLowerCase().includes(word)));
      const kernels = [];
      data.kernels.forEach((kernel, number) => { if (fits(kernel.name, kernel.symbol, kernel.object)) kernels.push({ text: kernel.name, note: `kernel, ${short(kernel.launches)} launches`, go: () => open(number) }); });
      found.push(...kernels.slice(0, 8));
      const listing = opened?.listing;
      if (listing) {
        let many = 0;
        listing.code.text.forEach((instruction, at) => {
          if (!fits(instruction, hex(listing.code.address[at]), listing.code.line?.[at] ? `${listing.code.file?.[at]}:${listing.code.line[at]}` : null)) return;
          if (++many <= 40) found.push({ text: instruction, note: `${hex(listing.code.address[at])}, block ${listing.code.block[at]}`, go: () => { byId("kernel-code").scrollIntoView(); listing.goTo(listing.rowOf.get(at)); } });
        });
      }
    }
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

  field.addEventListener("input", look);
  field.addEventListener("focus", () => { if (field.value) look(); });
  field.addEventListener("blur", () => { list.hidden = true; });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(found.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      draw();
    } else if (event.key === "Enter") take(chosen);
    else if (event.key === "Escape") { field.value = ""; look(); field.blur(); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}
