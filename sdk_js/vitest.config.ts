import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // The machines that run these tests are shared: a slow moment is no failure.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    maxWorkers: 2,
    // And a moment that is too slow may be over: one that needed it is shown with its retry.
    retry: 1,
  },
});
