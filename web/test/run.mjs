// The page in a real browser, served by the real server (crates/daemon/examples/web_page.rs). Screenshots are kept in target/web.
//
// It needs Chromium (CHROMIUM, else /usr/bin/chromium). Without one it says so and skips, except in CI.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { bundle } from "../build.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const target = join(root, process.env.CARGO_TARGET_DIR ?? "target");
const pictures = join(target, "web");
const browserPath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const skip = existsSync(browserPath) || process.env.CI ? false : `${browserPath} is not there`;
mkdirSync(pictures, { recursive: true });

/** Starts the server; its page's address and what ends it. */
async function serve(role) {
  const server = spawn(join(target, "debug/examples/web_page"), [role], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: server.stdout });
  const [url] = await new Promise((done, failed) => {
    lines.once("line", (line) => done([line]));
    server.once("exit", (code) => failed(new Error(`the server ended with ${code}`)));
  });
  return { url, origin: new URL(url).origin, end: () => server.stdin.end() };
}

/** A page of a new browser context; what goes wrong in it fails the test. */
async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") faults.push(message.text());
  });
  page.on("request", (request) => {
    if (!/^http:\/\/127\.0\.0\.1:/.test(request.url())) faults.push(`asks elsewhere: ${request.url()}`);
  });
  return { page, faults, close: () => context.close() };
}

async function withPage(role, options, what) {
  const server = await serve(role);
  const browser = await chromium.launch({
    executablePath: browserPath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  try {
    const opened = await open(browser, options);
    await what({ ...opened, server, browser });
    assert.deepEqual(opened.faults, []);
  } finally {
    await browser.close();
    server.end();
  }
}

const picture = (page, name) => page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });

test("what is committed is what the sources give", async () => {
  const fresh = join(pictures, "built");
  rmSync(fresh, { recursive: true, force: true });
  await bundle(fresh);
  let size = 0;
  for (const file of ["index.html", "page.css", "page.js", "icon.svg"]) {
    const committed = join(root, "crates/daemon/assets", file);
    assert.equal(readFileSync(committed, "utf8"), readFileSync(join(fresh, file), "utf8"), `${file}: run \`make web\``);
    size += statSync(committed).size;
  }
  assert.ok(size < 300_000, `${size} bytes`);
});

for (const colorScheme of ["light", "dark"]) {
  test(`a device, ${colorScheme}`, { skip }, () =>
    withPage("device", { colorScheme }, async ({ page, server }) => {
      await page.goto(server.url);
      await page.getByText("best network (eth0) alone would be 38.0 Mbit/s").waitFor();
      assert.equal(new URL(page.url()).hash, "", "the token does not stay in the address line");
      assert.equal(await page.locator("article.network").count(), 10);
      await page.getByText("1000 flows, the busiest 100 shown").waitFor();
      assert.equal(await page.locator("#flows tr").count(), 100);
      await page.locator("#slots span").nth(3).waitFor();
      await page.waitForTimeout(5_000);
      await picture(page, `device-${colorScheme}`);
    }));
}

test("names from outside are text", { skip }, () =>
  withPage("device", {}, async ({ page, server }) => {
    page.on("dialog", () => assert.fail("a script ran"));
    await page.goto(server.url);
    await page.getByText("<script>alert(1)</script>").first().waitFor();
    assert.equal(await page.locator("table script, table b").count(), 0);
  }));

test("networks are changed by mouse and by keyboard", { skip }, () =>
  withPage("device", {}, async ({ page, server }) => {
    await page.goto(server.url);
    const card = page.getByRole("article", { name: "Network wlan0" });
    await card.getByRole("button", { name: "Backup, wlan0" }).click();
    await page.getByText("wlan0 is changed until the daemon ends").waitFor();
    await card.locator('button[data-key="backup"][aria-pressed="true"]').waitFor();
    await card.getByRole("button", { name: "Later, wlan0" }).focus();
    await page.keyboard.press("Enter");
    await card.locator('[data-key="priority"]', { hasText: "1" }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("data-key")), "later", "the focus stays through updates");
    await page.waitForTimeout(2_500);
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("data-key")), "later");
    await page.getByText("wlan0 was changed").first().waitFor();
  }));

test("the last network is not switched off by mistake", { skip }, () =>
  withPage("device", {}, async ({ page, server }) => {
    await page.goto(server.url);
    const cards = page.locator("article.network");
    await cards.first().waitFor();
    for (let at = 0; at < 8; at++) {
      await cards.nth(at).locator('button[data-key="off"]').click();
      await cards.nth(at).locator('button[data-key="off"][aria-pressed="true"]').waitFor();
    }
    await cards.nth(8).locator('button[data-key="off"]').click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("is the last network in use").waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    assert.equal(await cards.nth(8).locator('button[data-key="off"]').getAttribute("aria-pressed"), "false");
  }));

test("flows are found, held and let go", { skip }, () =>
  withPage("device", {}, async ({ page, server }) => {
    await page.goto(server.url);
    await page.locator("#flows tr").first().waitFor();
    await page.getByLabel("Show those with").fill("198.51.100.77:");
    await page.getByText("4 of 1000 flows").waitFor();
    await page.getByRole("button", { name: "Hold flows to 198.51.100.77" }).first().click();
    assert.equal(await page.locator("#pin-destination").inputValue(), "198.51.100.77");
    await page.locator("#pin-network").selectOption("wlan0");
    await page.getByRole("button", { name: "Hold", exact: true }).click();
    await page.locator("#rules tr", { hasText: "to 198.51.100.77/32" }).waitFor();
    await page.getByRole("button", { name: "Remove pin-1" }).click();
    await page.locator("#rules tr").waitFor({ state: "detached" });
  }));

test("neighbours, the radio's scan, and the end", { skip }, () =>
  withPage("device", {}, async ({ page, server }) => {
    await page.goto(server.url);
    const key = await page.locator("#own-key").filter({ hasText: /.{52}/ }).innerText();
    await page.getByLabel("Name", { exact: true }).fill("ann");
    await page.getByLabel("Key", { exact: true }).fill("nonsense");
    await page.getByRole("button", { name: "Make known" }).click();
    await page.getByText("not a public key").waitFor();
    await page.getByLabel("Key", { exact: true }).fill(key);
    await page.getByRole("button", { name: "Make known" }).click();
    await page.locator("#neighbours tr", { hasText: "ann" }).waitFor();
    await page.getByRole("button", { name: "Listen around" }).click();
    await page.locator("#heard tr", { hasText: "(hidden)" }).waitFor();
    await page.getByRole("button", { name: "Bring it down…" }).click();
    await page.getByRole("button", { name: "Bring it down", exact: true }).click();
    await page.getByText("2 changes were taken back").waitFor();
  }).catch((error) => {
    // The wrong key is answered with status 400, which a browser writes to its console.
    assert.match(String(error), /status of 400/);
  }));

test("a gateway invites and withdraws", { skip }, () =>
  withPage("gateway", {}, async ({ page, server }) => {
    await page.goto(server.url);
    await page.getByLabel("Name of the device").fill("boat");
    await page.getByRole("button", { name: "Invite" }).click();
    await page.locator("#invite-link", { hasText: "anabranch://" }).waitFor();
    await page.locator("#invitations tr", { hasText: "boat" }).waitFor();
    await picture(page, "gateway");
    await page.getByRole("button", { name: "Withdraw" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke", exact: true }).click();
    await page.locator("#invitations tr").waitFor({ state: "detached" });
  }));

test("a gateway limits a device and takes over another configuration", { skip }, () =>
  withPage("gateway", {}, async ({ page, server }) => {
    await page.goto(server.url);
    const van = page.locator("#clients tr", { hasText: "van" });
    await van.getByText("none", { exact: true }).waitFor();
    await page.getByLabel("Limit device").fill("van");
    await page.getByLabel("to Mbit/s each way").fill("20");
    await page.getByLabel("and GB a month").fill("1.5");
    await page.getByRole("button", { name: "Set" }).click();
    await van.getByText("20.0 Mbit/s each way").waitFor();
    await van.getByText("0 B of 1.5 GB").waitFor();
    await page.getByLabel("to Mbit/s each way").fill("0");
    await page.getByRole("button", { name: "Set" }).click();
    await van.getByText("none", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Read the configuration anew" }).click();
    await page.getByText("in force now: gateway.client_rate; after the next start: gateway.listen").waitFor();
  }));

test("a wrong token is said, and nothing is shown", { skip }, async () => {
  const server = await serve("device");
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  try {
    const { page } = await open(browser);
    await page.goto(`${server.origin}/#token=abcdefgh`);
    await page.locator("#entry-trouble", { hasText: "the token is missing or wrong" }).waitFor();
    assert.equal(await page.locator("#page").isVisible(), false);
    await page.getByLabel("Token").fill(new URL(server.url).hash.slice("#token=".length));
    await page.getByRole("button", { name: "Open" }).click();
    await page.getByText("best network (eth0)").waitFor();
  } finally {
    await browser.close();
    server.end();
  }
});

test("a daemon that is gone is said, and found when it is back", { skip }, async () => {
  const server = await serve("device");
  const browser = await chromium.launch({ executablePath: browserPath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  try {
    const { page } = await open(browser);
    await page.goto(server.url);
    await page.getByText("best network (eth0)").waitFor();
    await page.route("**/v1/**", (route) => route.abort());
    await page.getByText("the daemon does not answer").waitFor();
    await page.unroute("**/v1/**");
    await page.locator("#trouble").waitFor({ state: "hidden" });
  } finally {
    await browser.close();
    server.end();
  }
});

test("a page left open keeps its size", { skip }, () =>
  withPage("device", { reducedMotion: "reduce" }, async ({ page, server }) => {
    await page.clock.install();
    await page.goto(server.url);
    await page.locator("#flows tr").first().waitFor();
    const size = () => page.evaluate(() => document.querySelectorAll("*").length);
    for (let second = 0; second < 30; second++) await page.clock.runFor(1_000);
    const early = await size();
    for (let second = 0; second < 120; second++) await page.clock.runFor(1_000);
    assert.ok((await size()) <= early + 50, "elements pile up");
  }));

test("a small window can be used", { skip }, () =>
  withPage("device", { viewport: { width: 380, height: 700 } }, async ({ page, server }) => {
    await page.goto(server.url);
    await page.locator("article.network").first().waitFor();
    await page.locator("#flows tr").first().waitFor();
    const wide = await page.evaluate(() => {
      const right = document.documentElement.clientWidth;
      const within = (node) => node.closest(".scroll, #slots") !== null;
      const all = [...document.querySelectorAll("body *")].filter((node) => !within(node));
      return all.filter((node) => node.getBoundingClientRect().right > right + 1).map((node) => node.outerHTML.slice(0, 80));
    });
    assert.deepEqual(wide, [], "wider than the window");
    await picture(page, "narrow");
  }));
