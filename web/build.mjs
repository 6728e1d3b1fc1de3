// Builds the page into the daemon's sources: one script, readable, nothing from elsewhere. The result is committed, so that
// the daemon is built without Node.js; the tests compare.

import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));

export async function bundle(into) {
  mkdirSync(into, { recursive: true });
  await build({
    absWorkingDir: here,
    entryPoints: ["src/main.ts"],
    bundle: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    banner: { js: "// Built from web/src by `make web`." },
    outfile: join(into, "page.js"),
  });
  for (const file of ["index.html", "page.css", "icon.svg"]) copyFileSync(join(here, "src", file), join(into, file));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await bundle(join(here, "../crates/daemon/assets"));
}
