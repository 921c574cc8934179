// Opens pages of made-up facts in a headless browser and does what a reader does. Driven by tests/browser.rs, which passes one JSON
// argument: { modules, browser, page, small, big, hostile, screenshots }. Ends 0 if all is well; says on standard output what was seen.
import assert from "node:assert/strict";
import { accessible, asked, background, browser, fits, leastContrast, open, prints, shot, troubles } from "./reader.mjs";

try {
  const page = await open(asked.page, 1280, "light");

  // Sorting: by click, then the other way by keyboard.
  const column = (table, n) => page.$$eval(`#${table} tbody tr`, (rows, n) => rows.map((row) => row.cells[n].dataset.v ?? row.cells[n].textContent), n);
  const heading = (n) => `#gain-list thead th:nth-child(${n})`;
  const state = (n) => page.$eval(heading(n), (cell) => cell.getAttribute("aria-sort"));
  const before = await column("gain-list", 1);
  await page.click(`${heading(2)} button`);
  const upward = (await column("gain-list", 1)).map(Number);
  assert.notDeepEqual(upward, before.map(Number), "sorting changes the order");
  assert.deepEqual(upward, [...upward].sort((a, b) => a - b));
  assert.equal(await state(2), "ascending");
  await page.focus(`${heading(2)} button`);
  await page.keyboard.press("Enter");
  const downward = (await column("gain-list", 1)).map(Number);
  assert.deepEqual(downward, [...downward].sort((a, b) => b - a));
  assert.equal(await state(2), "descending");
  await page.focus(`${heading(1)} button`);
  await page.keyboard.press("Space");
  const names = await column("gain-list", 0);
  assert.deepEqual(names, [...names].sort());
  assert.deepEqual([await state(1), await state(2)], ["ascending", "none"]);
  // What has no value stays last, whichever way.
  for (const _ of [1, 2]) {
    await page.click(`${heading(3)} button`);
    const shown = await page.$$eval("#gain-list tbody tr", (rows) => rows.map((row) => row.cells[2].textContent));
    assert.equal(shown.at(-1).trim(), "unknown");
  }

  // Details of a point: under the pointer, then by arrow keys; Escape puts them away.
  const spot = await page.evaluate(() => {
    const points = JSON.parse(document.getElementById("data").textContent).roofline.points;
    const svg = document.querySelector('[data-figure="roofline"] svg');
    svg.scrollIntoView({ block: "center" });
    const sides = svg.getBoundingClientRect();
    const scale = sides.width / svg.viewBox.baseVal.width;
    const [x, y, row] = points[Math.floor(points.length / 2)];
    const cells = [...document.querySelectorAll("#times tbody tr")[row].cells].map((cell) => cell.textContent);
    return { x: sides.left + x * scale, y: sides.top + y * scale, workload: cells[0], kernel: cells[1], time: cells[3] };
  });
  const tip = () => page.$eval('[data-figure="roofline"] .tip', (box) => ({ text: box.textContent, shown: box.offsetWidth > 0 }));
  assert.equal((await tip()).shown, false);
  await page.mouse.move(spot.x, spot.y);
  const pointed = await tip();
  assert.ok(pointed.shown, "details are seen");
  for (const part of [spot.workload, spot.kernel, `time: ${spot.time}`]) assert.ok(pointed.text.includes(part), `${part} in ${pointed.text}`);
  await page.mouse.move(4, 4);
  assert.equal((await tip()).shown, false);
  await page.focus('[data-figure="roofline"]');
  await page.keyboard.press("ArrowRight");
  const first = (await tip()).text;
  await page.keyboard.press("End");
  const last = (await tip()).text;
  assert.ok(first && last && first !== last, "arrow keys walk");
  await page.keyboard.press("Escape");
  assert.equal((await tip()).shown, false);

  // One operation alone.
  await page.select("#roofline-operation", "0");
  const groups = await page.$$eval('[data-figure="roofline"] [data-group]', (list) => list.map((group) => getComputedStyle(group).display !== "none"));
  assert.deepEqual(groups, await page.$$eval('[data-figure="roofline"] [data-group]', (list) => list.map((group) => group.dataset.group === "0")));
  assert.ok(groups.includes(true) && groups.includes(false));
  await page.select("#roofline-operation", "");

  // A field of the map.
  await page.hover(".map .field");
  const told = await page.$eval(".map .tip", (box) => box.textContent);
  assert.match(told, /^cpu-.*\n.*fastest on \d+ of \d+ workload/s);
  await page.mouse.move(4, 4);

  // Rows with a word.
  await page.evaluate(() => { document.getElementById("times-fold").open = true; });
  await page.type("#times-filter", "softmax openblas");
  const kept = await page.$$eval("#times tbody tr", (rows) => rows.filter((row) => !row.hidden).map((row) => row.textContent));
  assert.ok(kept.length > 0 && kept.every((text) => text.includes("softmax") && text.includes("openblas")), "the filter keeps what was asked for");
  await page.evaluate(() => { document.getElementById("times-fold").open = false; });

  // Both themes, wide and narrow, on a page with something in every section and few rows: axe looks at every cell.
  const findings = {};
  for (const [theme, width] of [["light", 1280], ["dark", 1280], ["light", 360]]) {
    const small = await open(asked.small, width, theme);
    findings[`${theme} ${width}`] = await accessible(small, `${theme} ${width}`);
    await small.close();
  }

  const light = await background(page);
  assert.ok((await leastContrast(page)) >= 4.5, `contrast of the map, light: ${await leastContrast(page)}`);
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, "light");

  // The switch, and that it is forgotten.
  await page.click("#theme");
  const dark = await background(page);
  assert.notEqual(dark, light, "the switch changes the background");
  assert.equal(await page.$eval("#theme", (button) => button.textContent), "Light theme");
  assert.ok((await leastContrast(page)) >= 4.5, `contrast of the map, dark: ${await leastContrast(page)}`);
  await page.evaluate(() => scrollTo(0, 0));
  await shot(page, "dark");
  await page.reload();
  assert.equal(await background(page), light, "nothing is stored");
  await page.close();

  // A system that prefers dark gets it without asking.
  const night = await open(asked.page, 1280, "dark");
  assert.equal(await background(night), dark);
  await night.close();
  const sheets = await prints(asked.page, "print");

  // Narrow: nothing sticks out.
  for (const width of [360, 768]) {
    const narrow = await open(asked.page, width, "light");
    await fits(narrow, width);
    if (width === 360) await shot(narrow, "narrow");
    await narrow.close();
  }

  // A page of thousands of rows still sorts all of them, and points are found.
  const big = await open(asked.big, 1280, "light");
  await big.evaluate(() => { document.getElementById("times-fold").open = true; });
  await big.$eval("#times thead th:nth-child(4) button", (button) => button.click());
  const times = await big.$$eval("#times tbody tr", (rows) => rows.map((row) => Number(row.cells[3].dataset.v)));
  assert.deepEqual(times, [...times].sort((a, b) => a - b));
  await big.close();

  // Hostile records do nothing; their text is there to be read.
  const hostile = await open(asked.hostile, 1280, "light");
  assert.equal(await hostile.$$eval("img", (images) => images.length), 0);
  assert.equal(await hostile.evaluate(() => globalThis.harmed), undefined);
  assert.ok((await hostile.$eval("#machine", (part) => part.textContent)).includes("<img src=x onerror="));
  await hostile.close();

  assert.deepEqual(troubles, [], "console and network are quiet");
  console.log(JSON.stringify({ light, dark, rows: times.length, sheets, other_findings: findings }));
} finally {
  await browser.close();
}
