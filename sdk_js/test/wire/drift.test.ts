/** src/wire is what scripts/wire.mjs makes of the schema. */
import { readFileSync } from "node:fs";
import { format } from "prettier";
import { describe, expect, test } from "vitest";
// @ts-expect-error: a script, without types
import { FILES } from "../../scripts/wire.mjs";

describe.each(Object.entries(FILES as Record<string, () => string>))("%s", (name, render) => {
  test("has not drifted: else npm run wire", async () => {
    const made = await format(render(), { parser: "typescript", printWidth: 100, tabWidth: 2 });
    const url = new URL(`../../src/wire/${name}`, import.meta.url);
    expect(readFileSync(url, "utf8")).toBe(made);
  });
});
