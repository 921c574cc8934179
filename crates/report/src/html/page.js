"use strict";
// What the page does beyond being read: sorts tables, shows details under the pointer and under the arrow keys, switches
// the theme. Everything it shows is in the page already; nothing is stored and nobody is asked.
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const said = document.getElementById("said");
  root.classList.add("script");

  // Theme: what the system prefers, until the switch says otherwise for as long as the page is open.
  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const label = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
  dark.addEventListener("change", label);
  label();

  // Rows in the order they were written in: figures refer to them by number.
  const rows = new Map(all("table.sorts").map((table) => [table.id, [...table.tBodies[0].rows]]));

  // Sorting: numbers by what they are, words by their letters; what has no value stays last either way.
  const sort = (table, heading) => {
    const column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    const numeric = "keyed" in heading.dataset;
    const key = (row) => {
      const cell = row.cells[column];
      return numeric ? (cell.dataset.v === undefined ? null : Number(cell.dataset.v)) : cell.textContent || null;
    };
    const keyed = rows.get(table.id).map((row) => [key(row), row]);
    const order = numeric ? (a, b) => a - b : new Intl.Collator("en", { numeric: true }).compare;
    keyed.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : (down ? -1 : 1) * order(a, b)));
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...keyed.map(([, row]) => row));
    said.textContent = `sorted by ${heading.textContent}, ${down ? "descending" : "ascending"}`;
  };
  for (const table of all("table.sorts")) {
    table.tHead.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) sort(table, button.closest("th"));
    });
  }

  // Rows that hold all the words typed.
  for (const input of all("[data-filters-rows]")) {
    const list = rows.get(input.dataset.filtersRows);
    const texts = list.map((row) => row.textContent.toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      list.forEach((row, i) => {
        row.hidden = !words.every((word) => texts[i].includes(word));
        left += row.hidden ? 0 : 1;
      });
      input.parentElement.querySelector("output").textContent = `${left} of ${list.length}`;
    });
  }

  // A box of details inside a figure, kept within its sides.
  const box = (canvas) => {
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    canvas.append(tip);
    return {
      show(text, x, y) {
        tip.textContent = text;
        const right = canvas.scrollLeft + canvas.clientWidth - tip.offsetWidth - 2;
        tip.style.left = `${Math.max(canvas.scrollLeft, Math.min(x - tip.offsetWidth / 2, right))}px`;
        const above = y - tip.offsetHeight - 14;
        tip.style.top = `${above < 0 ? y + 16 : above}px`;
      },
      hide() { tip.textContent = ""; },
    };
  };
  // The row of a point as lines: its first cell, then every other with its heading.
  const details = (id, number) => {
    const table = document.getElementById(id);
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    const cells = [...rows.get(id)[number].cells].map((cell) => cell.textContent.trim());
    const lines = cells.map((text, i) => (text && i > 0 ? `\n${names[i]}: ${text}` : ""));
    return (cells[0] && /^[\d.]+$/.test(cells[0]) ? `${names[0]}: ${cells[0]}` : cells[0]) + lines.join("");
  };

  const data = JSON.parse(document.getElementById("data").textContent);
  const near = 22;
  for (const canvas of all(".canvas[data-figure]")) {
    const figure = canvas.dataset.figure;
    if (!data[figure]) continue;
    const svg = canvas.querySelector("svg");
    const tip = box(canvas);
    const halo = svg.querySelector(".halo");
    let points = [...data[figure].points].sort((a, b) => a[0] - b[0] || b[1] - a[1]);
    const every = points;
    let at = -1;
    const show = (i) => {
      at = i;
      halo.classList.toggle("off", i < 0);
      if (i < 0) return tip.hide();
      const [x, y, row] = points[i];
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      halo.setAttribute("cx", x);
      halo.setAttribute("cy", y);
      tip.show(details(data[figure].table, row), x * scale, y * scale);
    };
    const nearest = (event) => {
      const sides = svg.getBoundingClientRect();
      const scale = sides.width / svg.viewBox.baseVal.width;
      const [x, y] = [(event.clientX - sides.left) / scale, (event.clientY - sides.top) / scale];
      let [best, least] = [-1, (near / scale) ** 2];
      points.forEach(([px, py], i) => {
        const far = (px - x) ** 2 + (py - y) ** 2;
        if (far < least) [best, least] = [i, far];
      });
      return best;
    };
    svg.addEventListener("pointermove", (event) => { const i = nearest(event); if (i !== at) show(i); });
    svg.addEventListener("pointerdown", (event) => show(nearest(event)));
    svg.addEventListener("pointerleave", () => show(-1));
    canvas.addEventListener("blur", () => show(-1));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") show(-1);
      if (step === undefined || points.length === 0) return;
      event.preventDefault();
      show(Math.max(0, Math.min(points.length - 1, (at < 0 && step < 0 ? points.length : at) + step)));
    });
    for (const pick of all(`[data-filters="${figure}"]`)) {
      pick.addEventListener("change", () => {
        show(-1);
        points = every.filter((point) => pick.value === "" || point[3] === Number(pick.value));
        for (const group of all("[data-group]", svg)) {
          group.classList.toggle("off", pick.value !== "" && group.dataset.group !== pick.value);
        }
      });
    }
  }

  // On paper nobody unfolds: short tables are opened meanwhile, long ones stay as the reader left them.
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = all("details:not(.long):not([open])");
    for (const fold of unfolded) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of unfolded) fold.open = false;
    unfolded = [];
  });

  // The map of winners, field by field.
  for (const map of all(".map")) {
    const fields = all("[data-tip]", map);
    const tip = box(map);
    let at = -1;
    const show = (i) => {
      fields[at]?.classList.remove("on");
      at = i;
      if (i < 0) return tip.hide();
      const field = fields[i];
      field.classList.add("on");
      tip.show(field.dataset.tip, field.offsetLeft + field.offsetWidth / 2, field.offsetTop + field.offsetHeight / 2);
    };
    map.addEventListener("pointerover", (event) => show(fields.indexOf(event.target.closest("[data-tip]"))));
    map.addEventListener("pointerleave", () => show(-1));
    map.addEventListener("blur", () => show(-1));
    map.addEventListener("keydown", (event) => {
      if (event.key === "Escape") show(-1);
      const side = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const line = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!side && !line) return;
      event.preventDefault();
      if (at < 0 || side) return show(Math.max(0, Math.min(fields.length - 1, at + (side || 1))));
      // The next field of the same column that has something to say.
      const column = fields[at].cellIndex;
      const along = fields.map((field, i) => [field, i]).filter(([field]) => field.cellIndex === column).map(([, i]) => i);
      const next = along[along.indexOf(at) + line];
      if (next !== undefined) show(next);
    });
  }
})();
