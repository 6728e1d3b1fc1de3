// What the page costs a browser: ten networks, a thousand flows, drawn by the processor alone. Prints figures, asserts nothing.

import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const SECONDS = 20;
const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const server = spawn(join(root, "target/debug/examples/web_page"), ["device"], { stdio: ["pipe", "pipe", "inherit"] });
const url = await new Promise((done) => createInterface({ input: server.stdout }).once("line", done));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1200, height: 900 } });
  await page.goto(url);
  await page.locator("#flows tr").first().waitFor();
  await page.locator("#graphs-title").scrollIntoViewIfNeeded();
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const figures = async () => Object.fromEntries((await session.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
  const before = await figures();
  const frames = await page.evaluate(
    (seconds) =>
      new Promise((done) => {
        const begun = performance.now();
        let count = 0;
        const each = () => (performance.now() - begun < seconds * 1_000 ? (count++, requestAnimationFrame(each)) : done(count));
        requestAnimationFrame(each);
      }),
    SECONDS,
  );
  const after = await figures();
  const busy = (name) => (((after[name] - before[name]) / SECONDS) * 100).toFixed(1);
  console.log(`frames a second      ${(frames / SECONDS).toFixed(1)}`);
  console.log(`busy, % of a second  script ${busy("ScriptDuration")}, layout ${busy("LayoutDuration")}, style ${busy("RecalcStyleDuration")}, all tasks ${busy("TaskDuration")}`);
} finally {
  await browser.close();
  server.stdin.end();
}
