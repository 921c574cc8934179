// Opens the page that the program itself made and does what a reader does with any page. Driven by the test `page` of kernelwise-cli,
// which passes one JSON argument: { modules, browser, page, screenshots }.
import assert from "node:assert/strict";
import { accessible, asked, background, browser, fits, leastContrast, open, prints, shot, troubles } from "./reader.mjs";

try {
  const page = await open(asked.page, 1280, "light");

  // Every section has something to show or says why it has not.
  const sections = await page.$$eval("main section", (all) => all.map((section) => ({ id: section.id, text: section.innerText.length })));
  assert.equal(sections.length, 12);
  for (const { id, text } of sections) assert.ok(text > 60, `${id} is empty`);
  for (const figure of ["roofline", "gains", "regret", "predictions", "errors"]) {
    assert.ok(await page.$(`[data-figure="${figure}"] svg`), `${figure} is drawn`);
  }
  const machine = await page.$eval("#machine", (part) => part.innerText);
  for (const part of ["Warnings", "times were taken", "kernelwise learn", "processors busy"]) assert.ok(machine.includes(part), `${part} in ${machine}`);
  assert.ok(!machine.includes("nobody looked"), "the state of the machine is on the page");

  // Every table sorts by every column, both ways.
  const sorted = await page.evaluate(() => {
    document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
    const wrong = [];
    let columns = 0;
    for (const table of document.querySelectorAll("table.sorts")) {
      for (const heading of table.tHead.rows[0].cells) {
        for (const way of ["ascending", "descending"]) {
          heading.querySelector("button").click();
          const where = `${table.id}: ${heading.textContent}, ${way}`;
          if (heading.getAttribute("aria-sort") !== way) wrong.push(where);
          if (!("keyed" in heading.dataset)) continue;
          const cells = [...table.tBodies[0].rows].map((row) => row.cells[heading.cellIndex].dataset.v);
          const keys = cells.filter((key) => key !== undefined).map(Number);
          const right = keys.every((key, i) => i === 0 || (way === "ascending" ? keys[i - 1] <= key : keys[i - 1] >= key));
          if (!right || cells.slice(keys.length).some((key) => key !== undefined)) wrong.push(where);
        }
        columns += 1;
      }
    }
    document.querySelectorAll("details").forEach((fold) => { fold.open = false; });
    return { wrong, columns };
  });
  assert.deepEqual(sorted.wrong, []);
  assert.ok(sorted.columns > 30, `${sorted.columns} columns`);
  await page.close();

  // As it is opened: pictures, points that tell, both themes.
  const fresh = await open(asked.page, 1280, "light");
  await fresh.focus('[data-figure="roofline"]');
  await fresh.keyboard.press("End");
  const told = await fresh.$eval('[data-figure="roofline"] .tip', (box) => box.textContent);
  assert.match(told, /kernel: cpu-/);
  await fresh.keyboard.press("Escape");
  await fresh.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  const light = await background(fresh);
  assert.ok((await leastContrast(fresh)) >= 4.5);
  await shot(fresh, "real-light");
  await fresh.click("#theme");
  assert.notEqual(await background(fresh), light, "the switch changes the background");
  assert.ok((await leastContrast(fresh)) >= 4.5);
  await fresh.evaluate(() => { document.activeElement.blur(); scrollTo(0, 0); });
  await shot(fresh, "real-dark");
  await fresh.close();

  const findings = {};
  for (const [theme, width] of [["light", 1280], ["dark", 360]]) {
    const read = await open(asked.page, width, theme);
    await fits(read, width);
    if (width === 360) await shot(read, "real-narrow");
    findings[`${theme} ${width}`] = await accessible(read, `${theme} ${width}`);
    await read.close();
  }
  const sheets = await prints(asked.page, "real-print");
  assert.deepEqual(troubles, [], "console and network are quiet");
  console.log(JSON.stringify({ columns: sorted.columns, sheets, other_findings: findings }));
} finally {
  await browser.close();
}
