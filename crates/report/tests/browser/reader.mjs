// What reading a page in a headless browser takes; used by check.mjs (pages of made-up facts) and real.mjs (a page of the program).
// The test that starts them passes one JSON argument, in which are at least { modules, browser, screenshots }.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

export const asked = JSON.parse(process.argv[2]);
const require = createRequire(asked.modules + "/");
const puppeteer = require("puppeteer-core");
const axe = require("axe-core").source;

export const browser = await puppeteer.launch({
  executablePath: asked.browser,
  // Without a user namespace (containers, root) the sandbox cannot start; the pages are our own.
  // A busy machine is no failure of the page.
  protocolTimeout: 600_000,
  timeout: 300_000,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars"],
});

// What the console and the network said, which should be nothing.
export const troubles = [];
export const open = async (file, width, theme) => {
  const page = await browser.newPage();
  page.setDefaultTimeout(300_000);
  page.setDefaultNavigationTimeout(300_000);
  page.on("console", (message) => { if (["error", "warn"].includes(message.type())) troubles.push(message.text()); });
  page.on("pageerror", (error) => troubles.push(String(error)));
  page.on("request", (request) => {
    const url = request.url();
    if (url !== pathToFileURL(file).href && !url.startsWith("data:")) troubles.push(`asked for ${url}`);
  });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }, { name: "prefers-reduced-motion", value: "reduce" }]);
  await page.setViewport({ width, height: 900, deviceScaleFactor: 1 });
  await page.goto(pathToFileURL(file).href, { waitUntil: "load" });
  return page;
};
export const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
export const shot = (page, name) => page.screenshot({ path: `${asked.screenshots}/${name}.png`, fullPage: true });

// Findings that keep people out; tables behind folds are looked at too.
export const accessible = async (page, where) => {
  await page.evaluate(() => document.querySelectorAll("details").forEach((fold) => { fold.open = true; }));
  // The policy of the page lets no script in; the debugger is not bound by it.
  await page.evaluate(axe + "\n0");
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations", "incomplete"] }));
  const grave = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  const words = grave.map((one) => `${one.id}: ${one.help}\n  ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + " " + (node.any[0]?.message ?? "")).join("\n  ")}`);
  assert.deepEqual(words, [], `${where}: serious findings`);
  return found.violations.map((one) => `${one.id} (${one.impact})`);
};

// What axe leaves open: text on coloured and hatched fields of the map, worked out from the colours as they are drawn.
export const leastContrast = (page) => page.evaluate(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const drawn = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((part) => part / 255);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratios = [...document.querySelectorAll(".field, .key")].map((field) => {
    const style = getComputedStyle(field);
    const [a, b] = [light(drawn(style.color)), light(drawn(style.backgroundColor))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
  return Math.min(...ratios);
});

// Whether nothing sticks out to the right.
export const fits = async (page, width) => {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= width, `${wide} px of page in a window of ${width}`);
};

// The page on paper: short tables are unfolded, long ones say that they are left out, nothing runs off the sheet, and there are
// several sheets with text.
export const prints = async (file, name) => {
  // A4 at 96 dots per inch, less a centimetre to each side.
  const sheet = 718;
  const page = await open(file, sheet, "dark");
  await page.emulateMediaType("print");
  assert.equal(await background(page), "rgb(255, 255, 255)", "paper is white");
  await fits(page, sheet);
  const folds = await page.$$eval("details", (all) => all.map((fold) => ({
    long: fold.classList.contains("long"),
    height: fold.querySelector("table").getBoundingClientRect().height,
    says: getComputedStyle(fold.querySelector("summary"), "::after").content,
    wide: fold.querySelector("table").getBoundingClientRect().right,
  })));
  for (const fold of folds) {
    if (fold.long) assert.match(fold.says, /not printed/);
    else assert.ok(fold.height > 20, "short tables are printed");
    assert.ok(fold.wide <= sheet + 1, `a table ends at ${fold.wide} of ${sheet}`);
  }
  const path = `${asked.screenshots}/${name}.pdf`;
  await page.pdf({ path, format: "A4", margin: { top: "1cm", right: "1cm", bottom: "1cm", left: "1cm" } });
  await page.close();
  const pdf = (await readFile(path)).toString("latin1");
  assert.ok(pdf.startsWith("%PDF-"));
  const sheets = pdf.match(/\/Type\s*\/Page\b/g)?.length ?? 0;
  assert.ok(sheets > 1, `${sheets} sheets`);
  assert.ok(/\/Type\s*\/Font\b/.test(pdf), "there is text on them");
  return sheets;
};
